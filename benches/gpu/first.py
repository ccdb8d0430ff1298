#!/usr/bin/env python3
"""The first runs of a query in a fresh process: on the CPU, on the GPU, and as `auto` decides, which must never lose.

    benches/gpu/first.py [--vectile target/release/vectile] [--benchmark ssb|tpch] [--scale 20] [--data DIR]
                         [--queries 1.1,2.1] [--pause SECONDS] [--json FILE]

Tables are generated in DIR if they are not there yet, and read once, so that they are in the page cache. Every
query runs RUNS times in one process, in each of the modes `off`, `require` and `auto`; the latter two with no
kernel on disk (`new`), and with what earlier processes left there in either mode (`kept`): kernels, and what
queries took. Times are milliseconds from the statement's text to its last row. A sum is that of a run and those
before it: a user who runs a query five times has waited for the fifth sum. A run of `auto` loses if it takes 20 ms
more than 1.1 times the better of the others; so does a sum. Exits with 1 if answers differ. `require` counts only
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

import sql

RUNS = 5
SHOWN = [1, 2, RUNS]
MODES = ["off", "require", "auto"]
# a megabyte, where pipes hold 64 KiB; the command line reads a script to its end before it begins
PAUSE = "select repeat('.', 1000000) as pause"
MOST_RATIO, MOST_MS = 1.1, 20


def runs(options, files, query, mode, cache):
    """Milliseconds of each run, and a digest of the answers; None if the query cannot run so."""
    pauses = mode == "auto" and options.pause
    between = f";{PAUSE};" if pauses else ";"
    script = f"set vectile.gpu = '{mode}';" + between.join([sql.text(options.benchmark, query)] * RUNS)
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
        sys.exit(f"{query}, {mode}: {log}")
    return [whole for whole, _ in sql.times(log)[1 :: 2 if pauses else 1]], digest.hexdigest()


def lost(ways):
    """The runs of `auto`, from 1 on, that took too long."""
    others = zip(*(times for mode, times in ways.items() if mode != "auto"))
    pairs = enumerate(zip(ways["auto"], map(min, others)), 1)
    return [run for run, (auto, best) in pairs if auto > best * MOST_RATIO + MOST_MS]


def show(*words, ways, losses):
    shown = ["/".join(f"{ways[mode][run - 1]:.0f}" for run in SHOWN) if mode in ways else "-" for mode in MODES]
    print("{:<6}{:<8}{:<5}{:>20}{:>20}{:>20}  {}".format(*words, *shown, losses or "").rstrip(), flush=True)


def measure(options, files, folder):
    """Prints the table; returns what is in it, and the queries whose answers differ. Kernels are kept in `folder`."""
    queries = options.queries.split(",") if options.queries else sql.QUERIES[options.benchmark]
    results, different = [], []
    print(f"{options.benchmark}, scale {options.scale}, {os.cpu_count()} cores, pauses of {options.pause:g} s")
    print(f"milliseconds of runs {', '.join(map(str, SHOWN))}, and sums up to them\n")
    print(f"{'query':<6}{'kernels':<13}" + "".join(f"{mode:>20}" for mode in MODES) + "  lost")
    for query in queries:
        caches = {mode: tempfile.mkdtemp(dir=folder) for mode in ["require", "auto"]}
        off, expected = runs(options, files, query, "off", folder)
        for kernels in ["new", "kept"]:
            ways = {"off": off}
            for mode, cache in caches.items():
                times, answers = runs(options, files, query, mode, cache)
                if times:
                    ways[mode] = times
                if answers not in (None, expected):
                    different.append(query)
            if kernels == "new":
                # all kernels of the query are kept, if it can be on the GPU as a whole, and what it took either
                caches = dict.fromkeys(caches, caches["require" if "require" in ways else "auto"])
                runs(options, files, query, "auto", caches["auto"])
            sums = {mode: list(itertools.accumulate(times)) for mode, times in ways.items()}
            losses = {"lost": lost(ways), "lost_sums": lost(sums)}
            show(query, kernels, "runs", ways=ways, losses=losses["lost"])
            show("", "", "sums", ways=sums, losses=losses["lost_sums"])
            results.append({"query": query, "kernels": kernels} | ways | losses)
    counts = [sum(len(result[what]) for result in results) for what in ["lost", "lost_sums"]]
    print(f"\n{counts[0]} of {len(results) * RUNS} runs of auto lost, {counts[1]} of as many sums", end="")
    print(f"; answers differ: {different}" if different else "")
    return results, different


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--benchmark", default="ssb", choices=["ssb", "tpch"])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--queries")
    parser.add_argument("--pause", type=float, default=0, metavar="SECONDS")
    parser.add_argument("--json")
    options = parser.parse_args()
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
