#!/usr/bin/env python3
"""Groups of many keys, and counts of distinct values, on the GPU beside the CPU.

    benches/gpu/groups.py [--vectile target/release/vectile] [--rows 100] [--keys 10] [--data DIR] [--runs 4]
                          [--kernels interpreted,generated]

A table of ROWS million rows is written to DIR if it is not there yet: numbers of 64 bits, KEYS million different ones (at
most 10 million) and far apart, and a number of 20 bits. Each query runs once and then RUNS times in one process, on the CPU
and by each kind of kernels. Printed are the median of these runs in milliseconds, and the time of kernels by the device's clock. Exits with 1
if answers differ.
"""

import argparse
import pathlib
import sys
from statistics import median

import sql

FILES = 8
ROW = "(value * 2654435761) % {keys} * 922337203685 as key, (value * 40503) % 1048576 - 524288 as amount"
QUERIES = {
    "groups": "select count(*) as n, sum(c) as rows, sum(s) as total, max(s) as most from "
    "(select key, count(*) as c, sum(amount) as s from t group by key) as g",
    "distinct": "select count(distinct key) as keys, count(distinct amount) as amounts from t",
}


def write(options, folder):
    each = options.rows * 1_000_000 // FILES
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(FILES):
        file = folder / f"part{number}.vectile"
        if not file.exists():
            row = ROW.format(keys=options.keys * 1_000_000)
            rows = f"select {row} from generate_series({number * each}, {(number + 1) * each - 1})"
            sql.vectile(options.vectile, "sql", f"copy ({rows}) to '{file}' stored as vectile")


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--rows", type=int, default=100)
    parser.add_argument("--keys", type=int, default=10)
    parser.add_argument("--data")
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--kernels", default="interpreted,generated")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    folder = pathlib.Path(options.data or f"target/groups-{options.rows}-{options.keys}")
    write(options, folder)
    files = {"t": f"{folder}/"}
    rows, differ = [], []
    for name, query in QUERIES.items():
        answers, numbers = [], []
        for kind in ["off", *options.kernels.split(",")]:
            mode = "off" if kind == "off" else "on"
            settings = [f"set vectile.gpu = '{mode}'", "set vectile.keep_plans = false"]
            settings += [f"set vectile.gpu.kernels = '{kind}'"] if mode == "on" else []
            statements = [*settings, *[query] * (1 + options.runs), f"explain analyze {query}"]
            *runs, (plan, _) = sql.answers(options.vectile, files, statements)
            answers += [answer for answer, _ in runs]
            numbers.append(median(ms for _, ms in runs[1:]))
            if mode == "on":
                numbers.append(sum(sql.metrics(str(plan), "kernel_time")))
        if any(answer != answers[0] for answer in answers):
            differ.append(name)
        rows.append((name, numbers))
    kinds = [title for kind in options.kernels.split(",") for title in (kind, "its kernels")]
    sql.table(f"{options.rows} million rows, {options.keys} million keys; milliseconds", ["CPU", *kinds], rows)
    if differ:
        sys.exit(f"answers differ: {', '.join(differ)}")


if __name__ == "__main__":
    main()
