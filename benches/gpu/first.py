#!/usr/bin/env python3
"""The first runs of a query in a fresh process: on the CPU, on the GPU, and as `auto` decides, which must never lose.

    benches/gpu/first.py [--vectile target/release/vectile] [--benchmark ssb|tpch|tpcds] [--scale 20] [--data DIR]
                         [--statements DIR] [--queries 1.1,2.1] [--modes off,auto] [--pause SECONDS] [--json FILE]

Tables are generated in DIR if they are not there yet, and read once, so that they are in the page cache. Queries are
those of `sql-tests`, or the files `*.sql` of --statements, which TPC-DS needs. Every
query runs RUNS times in one process, in each of the modes `off`, `require` and `auto`; the latter two with no
kernel on disk (`new`), and with what earlier processes left there in either mode (`kept`): kernels, and what
queries took. Times are milliseconds from the statement's text to its last row. A sum is that of a run and those
before it: a user who runs a query five times has waited for the fifth sum. A run of `auto` loses if it takes 20 ms
more than 1.1 times the better of the others; so does a sum. Beside `off` alone, a median of `auto` is slow above 1.1
times and 5 ms, a run above 1.5 times and 20 ms. Exits with 1 if answers differ. `require` counts only
where the whole query can be on the GPU.

Without --pause, the next run begins as soon as the one before has ended. With it, a process in `auto` waits between
two runs as long as a user takes to read an answer: it prints more than a pipe holds, and its output is not read for SECONDS.
Its other threads go on, so that the background can work. No time includes the pause.
"""

import argparse
import hashlib
import itertools
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import time
from statistics import median

import sql

RUNS = 5
SHOWN = [1, 2, RUNS]
MODES = ["off", "require", "auto"]
# a megabyte, where pipes hold 64 KiB; the command line reads a script to its end before it begins
PAUSE = "select repeat('.', 1000000) as pause"
MOST_RATIO, MOST_MS = 1.1, 20
SLOW_MEDIAN, SLOW_RUN = (1.1, 5), (1.5, 20)


def runs(options, files, text, mode, cache):
    """Milliseconds of each run, and a digest of the answers; None if the query cannot run so."""
    pauses = mode == "auto" and options.pause
    between = f";{PAUSE};" if pauses else ";"
    script = f"set vectile.gpu = '{mode}';" + between.join([text] * RUNS)
    environment = os.environ | {"VECTILE_CACHE": cache}
    command, pipe = [options.vectile, *sql.command(files, script)], subprocess.PIPE
    digest = hashlib.md5()
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, encoding="utf-8", env=environment) as process:
        for line in process.stdout:
            if line == "pause\n":
                time.sleep(options.pause)
            elif not line.startswith("...."):
                digest.update(line.encode())
        log = process.stderr.read()
    if process.returncode != 0:
        if mode == "require" and "vectile.gpu = require" in log:
            return None, None
        sys.exit(f"{text}\n\n{mode}: {log}")
    return [whole for whole, _ in sql.times(log)[1 :: 2 if pauses else 1]], digest.hexdigest()


def lost(ways):
    """The runs of `auto`, from 1 on, that took too long."""
    others = zip(*(times for mode, times in ways.items() if mode != "auto"))
    pairs = enumerate(zip(ways["auto"], map(min, others)), 1)
    return [run for run, (auto, best) in pairs if auto > best * MOST_RATIO + MOST_MS]


def is_slow(auto, off, most):
    ratio, ms = most
    return auto > off * ratio + ms


def slow(ways):
    """Whether the median of `auto` is slow beside `off`, and the runs that are, from 1 on."""
    auto, off = ways["auto"], ways["off"]
    runs = [run for run, pair in enumerate(zip(auto, off), 1) if is_slow(*pair, SLOW_RUN)]
    return is_slow(median(auto), median(off), SLOW_MEDIAN), runs


def show(*words, ways, losses):
    shown = ["/".join(f"{ways[mode][run - 1]:.0f}" for run in SHOWN) if mode in ways else "-" for mode in MODES]
    print("{:<6}{:<8}{:<5}{:>20}{:>20}{:>20}  {}".format(*words, *shown, losses or "").rstrip(), flush=True)


def measure(options, files, folder):
    """Prints the table; returns what is in it, and the queries whose answers differ. Kernels are kept in `folder`."""
    results, different = [], []
    print(f"{options.benchmark}, scale {options.scale}, {os.cpu_count()} cores, pauses of {options.pause:g} s")
    print(f"milliseconds of runs {', '.join(map(str, SHOWN))}, and sums up to them\n")
    print(f"{'query':<6}{'kernels':<13}" + "".join(f"{mode:>20}" for mode in MODES) + "  lost")
    for query, text in options.texts.items():
        caches = {mode: tempfile.mkdtemp(dir=folder) for mode in options.modes if mode != "off"}
        off, expected = runs(options, files, text, "off", folder)
        for kernels in ["new", "kept"]:
            ways = {"off": off}
            for mode, cache in caches.items():
                times, answers = runs(options, files, text, mode, cache)
                if times:
                    ways[mode] = times
                if answers not in (None, expected):
                    different.append(query)
            if kernels == "new":
                # all kernels of the query are kept, if it can be on the GPU as a whole, and what it took either
                caches = dict.fromkeys(caches, caches["require" if "require" in ways else "auto"])
                runs(options, files, text, "auto", caches["auto"])
            sums = {mode: list(itertools.accumulate(times)) for mode, times in ways.items()}
            losses = {"lost": lost(ways), "lost_sums": lost(sums)}
            show(query, kernels, "runs", ways=ways, losses=losses["lost"])
            show("", "", "sums", ways=sums, losses=losses["lost_sums"])
            losses["slow_median"], losses["slow_runs"] = slow(ways)
            if losses["slow_median"] or losses["slow_runs"]:
                print(f"      slow beside off: {'median; ' * losses['slow_median']}runs {losses['slow_runs']}", flush=True)
            results.append({"query": query, "kernels": kernels} | ways | losses)
    counts = [sum(len(result[what]) for result in results) for what in ["lost", "lost_sums"]]
    print(f"\n{counts[0]} of {len(results) * RUNS} runs of auto lost, {counts[1]} of as many sums", end="")
    print(f"; answers differ: {different}" if different else "")
    slow_medians = sum(result["slow_median"] for result in results)
    print(f"beside off: {slow_medians} of {len(results)} medians slow, {sum(len(r['slow_runs']) for r in results)} runs")
    for kernels in ["new", "kept"]:
        of_kind = [result for result in results if result["kernels"] == kernels]
        sums = {mode: sum(result[mode][-1] for result in of_kind) for mode in ["off", "auto"]}
        medians = {mode: sum(median(result[mode]) for result in of_kind) for mode in ["off", "auto"]}
        shown = ", ".join(f"{mode} {sums[mode]:.0f} ({medians[mode]:.0f})" for mode in sums)
        print(f"{kernels}: sums of fifth runs (of medians): {shown}")
    return results, different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--benchmark", default="ssb", choices=["ssb", "tpch", "tpcds"])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--statements", metavar="DIR")
    parser.add_argument("--modes", default=",".join(MODES))
    parser.add_argument("--queries")
    parser.add_argument("--pause", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.modes = options.modes.split(",")
    if not {"off", "auto"} <= set(options.modes) <= set(MODES):
        sys.exit(f"modes are some of {', '.join(MODES)}, with off and auto")
    options.texts = sql.texts(options)
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    data = pathlib.Path(options.data or f"target/{options.benchmark}-{options.scale}")
    files = sql.generate(options.vectile, options.benchmark, options.scale, data)
    sql.read(files)
    with tempfile.TemporaryDirectory() as folder:
        results, different = measure(options, files, folder)
    if options.json:
        facts = {"benchmark": options.benchmark, "scale": options.scale, "pause": options.pause, "queries": results}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
