#!/usr/bin/env python3
"""Joins of TPC-H's tables in which rows have several matches, including keys of text, and averages that decide which
groups are returned: whole queries on the CPU and with the GPU, which must agree.

    benches/gpu/joins.py [--vectile target/release/vectile] [--scale 10] [--data DIR] [--runs 4]

Each query runs so many times in one process in the modes `off` and `on`. The median of all but the first counts. The
script prints how often something was left to the CPU. It exits with 1 if answers differ.
"""

import argparse
import pathlib
import sys
import tempfile
from statistics import median_high as median

import sql

QUERIES = {
    "each part's suppliers": "SELECT count(*) AS n, sum(l_quantity * ps_availqty) AS s FROM lineitem "
    "JOIN partsupp ON l_partkey = ps_partkey",
    "cheaper suppliers": "SELECT count(*) AS n, sum(l_extendedprice) AS s FROM lineitem "
    "JOIN partsupp ON l_partkey = ps_partkey WHERE ps_supplycost * l_quantity < l_extendedprice",
    "by nation of them": "SELECT n_name, count(*) AS n, sum(ps_supplycost) AS s FROM lineitem "
    "JOIN partsupp ON l_partkey = ps_partkey JOIN supplier ON ps_suppkey = s_suppkey "
    "JOIN nation ON s_nationkey = n_nationkey WHERE l_shipdate >= DATE '1998-01-01' GROUP BY n_name ORDER BY n_name",
    "neighbours": "SELECT s_nationkey, count(*) AS n FROM customer JOIN supplier ON c_nationkey = s_nationkey "
    "WHERE c_acctbal < s_acctbal AND s_suppkey % 100 = 0 GROUP BY s_nationkey ORDER BY s_nationkey",
    "a key of text and a number": "SELECT count(*) AS n, sum(g.n) AS s FROM lineitem l JOIN (SELECT l_shipmode AS mode, "
    "l_linenumber AS line, count(*) AS n FROM lineitem WHERE l_shipdate < DATE '1992-03-01' GROUP BY 1, 2) g "
    "ON l.l_shipmode = g.mode AND l.l_linenumber = g.line",
    "averages in HAVING": "SELECT l_orderkey, avg(l_quantity) AS a FROM lineitem GROUP BY l_orderkey "
    "HAVING avg(l_quantity) > 49.5 AND count(*) > 2 ORDER BY l_orderkey",
    "first by an average": "SELECT l_partkey, avg(l_extendedprice) AS a FROM lineitem GROUP BY l_partkey "
    "ORDER BY a DESC, l_partkey LIMIT 10",
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", type=pathlib.Path)
    parser.add_argument("--runs", type=int, default=4)
    options = parser.parse_args()
    folder = options.data or pathlib.Path(tempfile.gettempdir()) / f"vectile-tpch-{options.scale:g}"
    files = sql.generate(options.vectile, "tpch", options.scale, folder)
    sql.read(files)
    differ = 0
    print(f"TPC-H at scale {options.scale:g}, medians in ms of {options.runs - 1} runs after the first")
    print(f"{'':28} {'CPU':>9} {'GPU first':>9} {'GPU':>9} {'ratio':>7} {'left to the CPU':>16}")
    for name, query in QUERIES.items():
        found, ms = {}, {}
        for mode in ("off", "on"):
            statements = [f"set vectile.gpu = '{mode}'", *[query] * options.runs]
            ran = sql.answers(options.vectile, files, statements)
            found[mode] = [rows for rows, _ in ran]
            ms[mode] = [ms for _, ms in ran]
        same = all(rows == found["off"][0] for mode in found.values() for rows in mode)
        differ += not same
        script = f"set vectile.gpu = 'on'; explain analyze {query}"
        plan, _ = sql.vectile(options.vectile, *sql.command(files, script))
        left = sum(sql.metrics(plan, "fallbacks")) if "FusedAggregateExec" in plan else float("nan")
        cpu, gpu = median(ms["off"][1:]), median(ms["on"][1:])
        said = "" if same else "  DIFFERENT ANSWERS"
        print(f"{name:28} {cpu:9.1f} {ms['on'][0]:9.1f} {gpu:9.1f} {cpu / gpu:7.1f} {left:16.0f}{said}", flush=True)
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
