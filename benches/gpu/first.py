#!/usr/bin/env python3
"""The first runs of a query in a fresh process: on the CPU, on the GPU, and as `auto` decides, which must never lose.

    benches/gpu/first.py [--vectile target/release/vectile] [--benchmark ssb|tpch] [--scale 20] [--data DIR]
                         [--queries 1.1,2.1] [--json FILE]

Tables are generated in DIR if they are not there yet, and read once, so that they are in the page cache. Every
query runs RUNS times in one process, in each of the modes `off`, `require` and `auto`; the latter two with no
kernel on disk (`new`), and with the kernels that a run before left there (`kept`). Times are milliseconds from the
statement's text to its last row. Runs follow each other at once, so that there is little time in the background.
A run of `auto` loses if it takes more than 1.1 times the better of the others, and 20 ms. Exits with 1 if answers
differ. `require` counts only where the whole query can be on the GPU.
"""

import argparse
import hashlib
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import sql

RUNS = 5
MOST_RATIO, MOST_MS = 1.1, 20


def runs(options, files, query, mode, cache):
    """Milliseconds of each run, and a digest of the answers; None if the query cannot run so."""
    script = ";".join([f"set vectile.gpu = '{mode}'"] + [sql.text(options.benchmark, query)] * RUNS)
    environment = os.environ | {"VECTILE_CACHE": cache}
    command = [options.vectile, *sql.command(files, script)]
    done = subprocess.run(command, capture_output=True, encoding="utf-8", env=environment)
    if done.returncode != 0:
        if mode == "require" and "vectile.gpu = require" in done.stderr:
            return None, None
        sys.exit(f"{query}, {mode}: {done.stderr}")
    return [whole for whole, _ in sql.times(done.stderr)[1:]], hashlib.md5(done.stdout.encode()).hexdigest()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--benchmark", default="ssb", choices=["ssb", "tpch"])
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--queries")
    parser.add_argument("--json")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    data = pathlib.Path(options.data or f"target/{options.benchmark}-{options.scale}")
    files = sql.generate(options.vectile, options.benchmark, options.scale, data)
    sql.read(files)
    with tempfile.TemporaryDirectory() as folder:
        facts, different = measure(options, files, folder)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    sys.exit(1 if different else 0)


def measure(options, files, folder):
    """Prints the table; returns what is in it, and the queries whose answers differ. Kernels are kept in `folder`."""
    queries = options.queries.split(",") if options.queries else sql.QUERIES[options.benchmark]
    facts, lost, different = {}, 0, []
    print(f"{options.benchmark}, scale {options.scale}, {os.cpu_count()} cores; milliseconds of runs 1, 2 and {RUNS}\n")
    print(f"{'query':<6}{'kernels':<8}{'off':>24}{'require':>24}{'auto':>24}  lost")
    for query in queries:
        caches = {mode: tempfile.mkdtemp(dir=folder) for mode in ["require", "auto"]}
        off, expected = runs(options, files, query, "off", folder)
        for kernels in ["new", "kept"]:
            ways = {"off": off}
            for mode, cache in caches.items():
                ways[mode], answers = runs(options, files, query, mode, cache)
                if answers not in (None, expected):
                    different.append(query)
            # kept are all kernels of the query, if it can be on the GPU as a whole
            caches = dict.fromkeys(caches, caches["require" if ways["require"] else "auto"])
            losses = []
            for run in range(RUNS):
                others = [ways[mode][run] for mode in ["off", "require"] if ways[mode]]
                if ways["auto"][run] > min(others) * MOST_RATIO + MOST_MS:
                    losses.append(run + 1)
            lost += len(losses)
            facts[f"{query}, {kernels}"] = ways | {"lost": losses}
            shown = [
                "/".join(f"{way[run]:.0f}" for run in [0, 1, RUNS - 1]) if way else "-" for way in ways.values()
            ]
            print(f"{query:<6}{kernels:<8}{shown[0]:>24}{shown[1]:>24}{shown[2]:>24}  {losses or ''}", flush=True)
    count = len(facts) * RUNS
    print(f"\n{lost} of {count} runs of auto lost" + (f"; answers differ: {different}" if different else ""))
    return facts, different


if __name__ == "__main__":
    main()
