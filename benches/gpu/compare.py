#!/usr/bin/env python3
"""Two builds of `vectile` on one GPU, in turn: kernels and whole queries of SSB and TPC-H.

    benches/gpu/compare.py OLD NEW [--scale 10] [--data DIR] [--benchmark ssb,tpch] [--rounds 4] [--runs 6]

Tables are generated in DIR by NEW if they are not there yet, and read by both. In each round each build runs each
benchmark in a process of its own, with `vectile.gpu = on`: every query so many times, and as often with EXPLAIN
ANALYZE, which has the time of all kernels by the device's clock; `planning` is a part of the whole. The order of the builds turns each round (OLD NEW,
NEW OLD). A number is the median over rounds of each round's smallest time. Exits with 1 if answers differ.
"""

import argparse
import json
import math
import os
import pathlib
import re
import sys
import tempfile
from statistics import median

import sql


def run(program, files, benchmark, runs, cache):
    """The answer of each query, and its smallest milliseconds: kernels, planning, whole."""
    statements = []
    for name in sql.QUERIES[benchmark]:
        text = sql.text(benchmark, name)
        statements += [f"select 'query {name}' as mark"] + [text] * runs + [f"explain analyze {text}"] * runs
    script = "; ".join(["set vectile.gpu = 'on'", *statements])
    with tempfile.NamedTemporaryFile("w", suffix=".sql") as file:
        # longer than an argument may be
        file.write(script)
        file.flush()
        arguments = sql.command(files, f"--file={file.name}")
        out, log = sql.vectile(program, *arguments, env=os.environ | {"VECTILE_CACHE": cache})
    times = sql.times(log)[1:]
    each = 1 + 2 * runs
    found = {}
    for at, part in enumerate(re.split(r"^mark\nquery [0-9.]+\n", out, flags=re.M)[1:]):
        answer, *plans = part.split("plan_type,plan")
        kernels = [sum(sql.metrics(plan, "kernel_time")) for plan in plans]
        wholes, plannings = zip(*times[at * each + 1 : at * each + 1 + runs])
        found[sql.QUERIES[benchmark][at]] = (answer, min(kernels), min(plannings), min(wholes))
    return found


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("old")
    parser.add_argument("new")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data")
    parser.add_argument("--benchmark", default="ssb,tpch")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--runs", type=int, default=6)
    parser.add_argument("--json")
    options = parser.parse_args()
    programs = [str(pathlib.Path(path).resolve()) for path in (options.old, options.new)]
    caches = [tempfile.mkdtemp(), tempfile.mkdtemp()]
    different, facts = [], {}
    for benchmark in options.benchmark.split(","):
        folder = pathlib.Path(options.data or "target") / f"{benchmark}-{options.scale:g}"
        files = sql.generate(programs[1], benchmark, options.scale, folder)
        sql.read(files)
        rounds = [[], []]
        for number in range(options.rounds):
            for which in (0, 1) if number % 2 == 0 else (1, 0):
                rounds[which].append(run(programs[which], files, benchmark, options.runs, caches[which]))
        print(f"\n{benchmark}, scale {options.scale:g}, milliseconds: old, new, new / old\n")
        print("query" + "".join(f"{name:>24}{'':>9}" for name in ("kernels", "planning", "whole")))
        ratios, sums = ([], [], []), [0] * 6
        for query in sql.QUERIES[benchmark]:
            cells, line = [], f"{query:>5}"
            for part in range(1, 4):
                old, new = (median(each[query][part] for each in rounds[which]) for which in (0, 1))
                cells += [old, new]
                if old and new:
                    ratios[part - 1].append(new / old)
                line += f"{old:>12.3f}{new:>12.3f}{new / old if old else 0:>9.3f}"
            sums = [before + cell for before, cell in zip(sums, cells)]
            facts[f"{benchmark} {query}"] = cells
            answers = {each[query][0] for own in rounds for each in own}
            if len(answers) != 1:
                different.append(f"{benchmark} {query}")
            print(line, flush=True)
        means = [math.exp(sum(map(math.log, each)) / max(len(each), 1)) for each in ratios]
        sums = zip(sums[::2], sums[1::2], means)
        print("  all" + "".join(f"{old:>12.3f}{new:>12.3f}{mean:>9.3f}" for old, new, mean in sums))
        print("the last line has sums, and geometric means of ratios", flush=True)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    if different:
        sys.exit(f"answers differ: {', '.join(different)}")


if __name__ == "__main__":
    main()
