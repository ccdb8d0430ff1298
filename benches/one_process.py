#!/usr/bin/env python3
"""Queries of a suite as a service runs them: many in one process, on the GPU and on the CPU.

    benches/one_process.py SUITE [--vectile target/release/vectile] [--scale 1] [--data DIR] [--queries 1,6]
                           [--tpcds FOLDER] [--runs 3] [--each 16] [--limit 120] [--gpu on] [--plans FILE]

SUITE and its tables are those of benches/suite.py, which has two processes for each query. Here, each process runs so
many queries (--each), one after the other, each so many times, first all with `vectile.gpu` on, then all with it off.
For each query: the median of all but the first run and the first run on the GPU, the same median on the CPU, and if
answers differ, between the two or from run to run. A query is slow if it takes above 1.1 times and 5 ms of the CPU's
time. --plans writes EXPLAIN ANALYZE of each query on the GPU. Milliseconds.

Exits with 1 if answers differ or queries fail.
"""

import argparse
import csv
import io
import pathlib
import re
import statistics
import subprocess
import sys

import suite

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))
import sql  # noqa: E402

MARK = re.compile(r"^mark\n(\S+)\n", re.M)


def marked(mark, statement):
    return f"select '{mark}' as mark;\n{statement};\n"


def run(options, files, queries, mode, explains):
    """Times, the first answer, if all are equal, and the plan of each query, by its name."""
    results = {}
    for first in range(0, len(queries), options.each):
        part = queries[first : first + options.each]
        script = f"set vectile.gpu = '{mode}';\n"
        for name, query in part:
            script += "".join(marked(f"{name}/{run}", query) for run in range(options.runs))
            script += marked(f"{name}/plan", f"explain analyze {query}") if explains else ""
        command = [options.vectile, *sql.command(files, "--file=-")]
        done = subprocess.run(command, input=script, capture_output=True, encoding="utf-8", timeout=options.limit)
        if done.returncode != 0:
            print(done.stderr.strip().splitlines()[-1], file=sys.stderr)
        # the mark of a statement is one, too
        times = [whole for whole, _ in sql.times(done.stderr)][2::2]
        pieces = MARK.split(done.stdout)
        answers = dict(zip(pieces[1::2], pieces[2::2]))
        each = options.runs + explains
        for number, (name, _) in enumerate(part):
            own = [answers.get(f"{name}/{run}") for run in range(options.runs)]
            if None in own:
                continue
            results[name] = {
                "times": times[number * each :][: options.runs],
                "rows": list(csv.reader(io.StringIO(own[0])))[1:],
                "is_equal": len(set(own)) == 1,
                "plan": answers.get(f"{name}/plan", ""),
            }
    return results


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suite", choices=suite.SUITES)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--data", default="target")
    parser.add_argument("--queries")
    parser.add_argument("--tpcds")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--each", type=int, default=16)
    parser.add_argument("--limit", type=float, default=120)
    parser.add_argument("--gpu", default="on")
    parser.add_argument("--plans", type=pathlib.Path)
    options = parser.parse_args()
    folder = pathlib.Path(options.data) / f"{options.suite}-{options.scale:g}"
    files = sql.generate(options.vectile, options.suite, options.scale, folder)
    sql.read(files)
    queries = list(suite.texts(options, options.suite).items())
    on = run(options, files, queries, options.gpu, True)
    off = run(options, files, queries, "off", False)
    print(f"{'query':<6}{'gpu':>10}{'first':>10}{'cpu':>10}")
    sums, failed, plans = [0, 0, 0], False, []
    for name, _ in queries:
        if name not in on or name not in off:
            print(f"{name:<6} failed")
            failed = True
            continue
        of_gpu, of_cpu = on[name], off[name]
        medians = [statistics.median(of["times"][1:] or of["times"]) for of in (of_gpu, of_cpu)]
        line = [medians[0], of_gpu["times"][0], medians[1]]
        sums = [total + value for total, value in zip(sums, line)]
        slow = " slow" if medians[0] > suite.SLOW_RATIO * medians[1] + suite.SLOW_MS else ""
        equal = suite.same(of_gpu["rows"], of_cpu["rows"]) and of_gpu["is_equal"] and of_cpu["is_equal"]
        failed |= not equal
        print(f"{name:<6}" + "".join(f"{value:>10.1f}" for value in line) + slow + ("" if equal else " answers differ"))
        plans.append(f"-- {name}\n{of_gpu['plan']}\n")
    print(f"{'all':<6}" + "".join(f"{value:>10.0f}" for value in sums))
    if options.plans:
        options.plans.write_text("".join(plans))
    return failed


if __name__ == "__main__":
    sys.exit(main())
