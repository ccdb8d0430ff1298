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
import re
import shutil
import subprocess
import sys
import tempfile

RUNS = 5
ROOT = pathlib.Path(__file__).resolve().parents[2] / "sql-tests"
SSB = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"]
TABLES = {
    "ssb": ["lineorder", "date", "customer", "supplier", "part"],
    "tpch": ["lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"],
}
MOST_RATIO, MOST_MS = 1.1, 20


def runs(options, files, query, mode, cache):
    """Milliseconds of each run, and a digest of the answers; None if the query cannot run so."""
    text = (ROOT / options.benchmark / f"q{query}.sql").read_text().strip().rstrip(";")
    tables = [word for name, file in files.items() for word in ("-t", f"{name}={file}")]
    command = [options.vectile, "sql", "--timing", "--format", "csv", *tables, "-f", "-"]
    environment = os.environ | {"VECTILE_CACHE": str(cache)}
    process = subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, env=environment, text=True
    )
    out, log = process.communicate(f"set vectile.gpu = '{mode}';" + f"{text};" * RUNS)
    if process.returncode != 0:
        if mode == "require" and "vectile.gpu = require" in log:
            return None, None
        sys.exit(f"{query}, {mode}: {log}")
    times = [float(t) for t in re.findall(r"^statement \d+: ([0-9.]+) ms", log, re.M)]
    each = len([part for part in text.split(";") if part.strip()])
    times = times[1:]
    return [sum(times[at * each : (at + 1) * each]) for at in range(RUNS)], hashlib.md5(out.encode()).hexdigest()


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
    files = {name: data / f"{name}.vectile" for name in TABLES[options.benchmark]}
    if not all(file.exists() for file in files.values()):
        command = [options.vectile, "gen", options.benchmark, "--scale", str(options.scale), "--out", str(data), "-q"]
        subprocess.run(command, check=True)
    for file in files.values():
        with open(file, "rb") as opened:
            while opened.read(1 << 24):
                pass
    known = SSB if options.benchmark == "ssb" else [str(number) for number in range(1, 23)]
    queries = options.queries.split(",") if options.queries else known
    facts, lost, different = {}, 0, []
    print(f"{options.benchmark}, scale {options.scale}, {os.cpu_count()} cores; milliseconds of runs 1, 2 and {RUNS}\n")
    print(f"{'query':<6}{'kernels':<8}{'off':>24}{'require':>24}{'auto':>24}  lost")
    for query in queries:
        cache = pathlib.Path(tempfile.mkdtemp())
        off, expected = runs(options, files, query, "off", cache)
        for kernels in ["new", "kept"]:
            ways = {"off": off}
            for mode in ["require", "auto"]:
                if kernels == "new":
                    shutil.rmtree(cache)
                    cache.mkdir()
                ways[mode], answers = runs(options, files, query, mode, cache)
                if answers not in (None, expected):
                    different.append(query)
            if kernels == "new" and ways["require"]:
                # so that they are all there for the runs with kept ones
                runs(options, files, query, "require", cache)
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
        shutil.rmtree(cache)
    count = len(facts) * RUNS
    print(f"\n{lost} of {count} runs of auto lost" + (f"; answers differ: {different}" if different else ""))
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    sys.exit(1 if different else 0)


if __name__ == "__main__":
    main()
