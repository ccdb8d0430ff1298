#!/usr/bin/env python3
"""Tests of text on the GPU, on its codes, and text that scans return from there, beside the CPU.

    benches/gpu/text.py [--vectile target/release/vectile] [--scale 10] [--data DIR] [--json FILE]

Tables are TPC-H's, and one of URLs that is made of them; they are written to DIR if they are not there yet. Each
predicate counts rows: RUNS times on the GPU with the column in its memory, and on the CPU. Milliseconds of kernels are
by the device's clock, those of whole queries from the statement's text to its last row; medians. Rates are bytes of
the text as it would be without compression, and of the column in the file, by the time of the kernel.

Then, scans that return a column of text, of selected rows: with a part of them selected by a number, and with all. Times
are those of EXPLAIN ANALYZE, which drops the rows. Those of kernels are added up over partitions, whose kernels may run
beside each other. Rates are bytes of the selected text, by the time of the kernels and of the whole query.

Exits with 1 if answers differ.
"""

import argparse
import json
import pathlib
import statistics
import sys

import sql

RUNS = 5
URLS = """COPY (SELECT concat('https://www.shop', l_suppkey % 90, '.example.com/catalog/', lower(l_shipmode), '/item?id=',
l_partkey, '&session=', l_orderkey, '&ref=', l_linenumber) AS url FROM lineitem WHERE l_orderkey % 3 = 0)
TO '{}' STORED AS VECTILE"""
PREDICATES = {
    ("lineitem", "l_comment"): [
        "LIKE '%special%requests%'",
        "LIKE '%final%'",
        "LIKE '%e%'",
        "LIKE 'carefully%'",
        "= 'carefully final deposits'",
        "IN ('even', 'final', 'furiously', 'sleep', 'requests', 'slyly', 'deposits', 'the', 'special', 'quickly')",
        "NOT LIKE '%a%b%'",
        "< 'c'",
    ],
    ("urls", "url"): [
        "LIKE '%shop17.%rail%'",
        "LIKE 'https://www.shop8%'",
        "LIKE '%ref=7'",
        "LIKE '%shop1%' OR url LIKE '%/air/%'",
    ],
    ("part", "p_name"): ["LIKE '%green%'", "LIKE 'forest%'"],
    ("orders", "o_comment"): ["NOT LIKE '%special%requests%'"],
}

VALUES = [("lineitem", "l_comment", "l_partkey"), ("orders", "o_comment", "o_custkey"), ("part", "p_name", "p_partkey")]
SELECTED = ["% 1000 = 1", "% 10 = 1", "> 0"]


def tests(options, files):
    """Results of tests of text, and whether all answers were the same."""
    results, is_same = [], True
    print(f"{'column':10} {'predicate':44} {'rows %':>7} {'kernel ms':>9} {'TB/s':>6} {'GB/s':>6} {'GPU ms':>7} {'CPU ms':>7}")
    for (table, column), predicates in PREDICATES.items():
        about = f"set vectile.gpu = 'off'; select sum(octet_length({column})), count(*) from {table}"
        out, _ = sql.vectile(options.vectile, *sql.command(files, about))
        raw, rows = map(int, out.splitlines()[-1].split(","))
        for predicate in predicates:
            query = f"select count(*) from {table} where {column} {predicate}"
            statements = ["set vectile.gpu = 'require'", query, *[query] * RUNS, *[f"explain analyze {query}"] * RUNS]
            statements += ["set vectile.gpu = 'off'", *[query] * RUNS]
            out, log = sql.vectile(options.vectile, *sql.command(files, ";".join(statements)))
            times = [whole for whole, _ in sql.times(log)]
            plans = [line for line in out.splitlines() if "GpuAggregateExec" in line]
            kernel = statistics.median(sum(sql.metrics(line, "kernel_time")) for line in plans)
            counts = {line for line in out.splitlines() if line.isdigit()}
            is_same = is_same and len(counts) == 1
            count = int(next(iter(counts)))
            cached = sum(sql.metrics(plans[0], "bytes_cached"))
            gpu = statistics.median(times[2 : 2 + RUNS])
            cpu = statistics.median(times[-RUNS:])
            results.append((table, column, predicate, count, rows, raw, cached, kernel, gpu, cpu))
            print(
                f"{column:10} {predicate[:44]:44} {100 * count / rows:7.2f} {kernel:9.3f} {raw / kernel / 1e9:6.2f} "
                f"{cached / kernel / 1e6:6.0f} {gpu:7.1f} {cpu:7.1f}",
                flush=True,
            )
    return results, is_same


def values(options, files):
    """Results of scans that return text, and whether all answers were the same."""
    results, is_same = [], True
    print(f"\n{'column':10} {'selected':20} {'rows %':>7} {'kernels ms':>10} {'TB/s':>6} {'GPU ms':>7} {'GB/s':>6} {'CPU ms':>7}")
    for table, column, number in VALUES:
        for selected in SELECTED:
            query = f"select {column} from {table} where {number} {selected}"
            answer = f"select count(*), sum(octet_length({column})), min({column}), max({column}) from ({query})"
            explained = [f"explain analyze {query}"] * (1 + RUNS)
            statements = ["set vectile.gpu = 'require'", answer, *explained]
            statements += ["set vectile.gpu = 'off'", answer, *explained, f"select count(*) from {table}"]
            out, log = sql.vectile(options.vectile, *sql.command(files, ";".join(statements)))
            times = [whole for whole, _ in sql.times(log)]
            gpu, cpu = (statistics.median(times[start : start + RUNS]) for start in (3, 5 + RUNS + 1))
            plans = [line for line in out.splitlines() if "gpu=filter and project" in line]
            kernels = statistics.median(sum(sql.metrics(line, "kernel_time")) for line in plans[1:])
            answers = [line for line in out.splitlines() if line[:1].isdigit() and "," in line]
            is_same = is_same and len(answers) == 2 and answers[0] == answers[1]
            count, raw = map(int, answers[0].split(",")[:2])
            rows = int(out.splitlines()[-1])
            results.append((table, column, selected, count, rows, raw, kernels, gpu, cpu))
            print(
                f"{column:10} {f'{number} {selected}':20} {100 * count / rows:7.2f} {kernels:10.3f} {raw / kernels / 1e9:6.2f} "
                f"{gpu:7.1f} {raw / gpu / 1e6:6.1f} {cpu:7.1f}",
                flush=True,
            )
    return results, is_same


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", default="text-data")
    parser.add_argument("--json")
    options = parser.parse_args()
    files = sql.generate(options.vectile, "tpch", options.scale, pathlib.Path(options.data) / f"tpch-{options.scale:g}")
    urls = pathlib.Path(options.data) / f"urls-{options.scale:g}.vectile"
    if not urls.exists():
        sql.vectile(options.vectile, *sql.command(files, f"set vectile.gpu = 'off'; {URLS.format(urls)}"))
    files["urls"] = urls
    sql.read(files)
    of_tests, tests_agree = tests(options, files)
    of_values, values_agree = values(options, files)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps({"tests": of_tests, "values": of_values}))
    sys.exit(not (tests_agree and values_agree))


if __name__ == "__main__":
    main()
