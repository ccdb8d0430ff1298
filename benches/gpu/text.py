#!/usr/bin/env python3
"""Text on the GPU beside all cores of the CPU: tests of it, scans that return it, and keys that are text.

    benches/gpu/text.py [--vectile target/release/vectile] [--scale 10] [--data DIR] [--parts tests,values,keys]
                        [--encodings fsst,onpair] [--limit SECONDS] [--json FILE]

Tables are made of TPC-H's, with their text in each of the encodings; they are written to DIR if they are not there yet
(`--parts ''` does no more). Milliseconds are those of whole queries from the statement's text to its last row, those of
kernels are by the device's clock; medians of RUNS runs, CPU_RUNS on the CPU, behind a first one. Kernels of several
partitions may run beside each other; their times are added up.

`tests` counts rows with columns in GPU memory. Rates are bytes of text as it would be without compression, by the time
of the kernel. The floor is the time in which the device reads the bytes of the column in the file.

`values` returns rows that a number selects, with `off`, `on`, and `auto` when the GPU is ready. EXPLAIN ANALYZE drops
the rows. Rates are bytes of the rows' text.

`keys` groups by text of few and many different values, counts them, and joins with a small table. First runs are in a
process that has opened the device: the first of all compiles kernels, the next finds them on disk; both load the text
and number its strings.

Reasons why something was not on the GPU follow each table. Exits with 1 if answers differ, or after SECONDS of
measuring.
"""

import argparse
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
import tpch

RUNS = 5
CPU_RUNS = 3
# the columns whose encoding is pinned, and the rows; outer joins, which are not reordered, keep the order of line items
TABLES = {
    "comments": (["text"], "SELECT l_comment AS text, l_partkey AS number FROM lineitem"),
    "urls": (
        ["text"],
        """SELECT concat('https://www.shop', l_suppkey % 90, '.example.com/catalog/', lower(l_shipmode), '/item?id=',
        l_partkey, '&session=', l_orderkey, '&ref=', l_linenumber) AS text, l_partkey AS number
        FROM lineitem WHERE l_orderkey % 3 = 0""",
    ),
    "names": (
        ["text"],
        """SELECT p_name AS text, l_partkey AS number FROM lineitem LEFT JOIN part ON l_partkey = p_partkey
        WHERE l_orderkey % 2 = 0""",
    ),
    "keys": (
        ["few", "many"],
        """SELECT few.p_name AS few, many.p_name AS many, l_partkey AS number FROM lineitem
        LEFT JOIN part few ON few.p_partkey = l_partkey % 3000 + 1 LEFT JOIN part many ON many.p_partkey = l_suppkey
        WHERE l_orderkey % 2 = 0""",
    ),
    "kinds": (
        [],
        "SELECT p_name AS name, p_partkey % 25 AS kind FROM part WHERE p_partkey <= 3000 AND p_partkey % 3 = 0",
    ),
}
URL = "https://www.shop17.example.com/catalog/rail/item?id=1017&session=3"
TESTS = {
    "comments": [
        "text LIKE '%special%requests%'",
        "text LIKE '%final%'",
        "text LIKE '%e%'",
        "text NOT LIKE '%a%b%'",
        "text LIKE 'carefully%'",
        "text LIKE 'e%'",
        "text NOT LIKE 'e%'",
        "text = 'carefully final deposits'",
        "text IN ('even', 'final', 'furiously', 'sleep', 'requests', 'slyly', 'deposits', 'the', 'special', 'quickly')",
        "text < 'c'",
    ],
    "urls": [
        "text LIKE '%shop17.%rail%'",
        "text LIKE '%shop1%item%'",
        "text NOT LIKE '%shop1%item%'",
        "text LIKE 'https://www.shop17.example.com/catalog/rail%'",
        "text LIKE 'https://www.shop8%'",
        "text NOT LIKE 'https://www.shop8%'",
        "text LIKE '%ref=7'",
        f"text = '{URL}&ref=1'",
        "text IN (" + ", ".join(f"'{URL}{more}&ref={ref}'" for more in ["", 9] for ref in range(1, 6)) + ")",
    ],
    "names": [
        "text LIKE '%almond%drab%'",
        "text LIKE '%ea%o%'",
        "text LIKE '%r%e%'",
        "text LIKE 'forest i%'",
        "text LIKE 'b%'",
        "text NOT LIKE 'b%'",
        "text = 'forest green ivory lace rose'",
        "text IN ('almond', 'blue', 'coral', 'drab', 'forest', 'green', 'ivory', 'lace', 'rose', 'snow')",
    ],
}
LENGTHS = [0.001, 0.1, 0.9]
ROWS = [1_000, 100_000, 10_000_000]
KEYS = {
    "GROUP BY": "select count(*), sum(n), sum(n * octet_length(key)), sum(total), min(key), max(key) from "
    "(select {0} as key, count(*) as n, sum(number) as total from keys group by {0})",
    "count(DISTINCT)": "select count(distinct {0}) from keys",
    "JOIN": "select kind, count(*), sum(number) from keys join kinds on {0} = name group by kind order by kind",
    "IN (SELECT)": "select count(*), sum(number) from keys where {0} in (select name from kinds where kind < 5)",
}


class Bench:
    """The command line, its tables, and the results."""

    def __init__(self, options):
        self.options = options
        self.encodings = options.encodings.split(",")
        self.results = {}
        self.different = []
        self.deadline = None

    def write(self):
        """Writes the tables that are not there yet, and reads all once, so that they are in the page cache."""
        folder = pathlib.Path(self.options.data)
        suffix = f"{self.options.scale:g}.vectile"
        self.files = {encoding: {} for encoding in self.encodings}
        source = None
        for encoding, files in self.files.items():
            for table, (columns, query) in TABLES.items():
                files[table] = folder / (f"{table}-{encoding}-{suffix}" if columns else f"{table}-{suffix}")
                if not files[table].exists():
                    tables = folder / f"tpch-{self.options.scale:g}"
                    source = source or sql.generate(self.options.vectile, "tpch", self.options.scale, tables)
                    pins = ", ".join(f"'encoding.{column}' '{encoding}'" for column in columns)
                    copy = f"COPY ({query}) TO '{files[table]}' STORED AS VECTILE" + f" OPTIONS ({pins})" * bool(pins)
                    sql.vectile(self.options.vectile, *sql.command(source, f"set vectile.gpu = 'off'; {copy}"))
            sql.read(files)
        self.facts = {"scale": self.options.scale, "cores": os.cpu_count()} | tpch.device(self.options.vectile)
        self.reads = self.facts["reads_bytes_per_s"]
        head = f"text, scale {self.options.scale:g}, {os.cpu_count()} cores, {self.facts['device'] or 'no GPU'}"
        print(head + (f" ({self.reads / 1e12:.2f} TB/s)\n" if self.reads else "\n"), flush=True)
        self.deadline = time.monotonic() + self.options.limit

    def ask(self, encoding, statements, **more):
        """Rows and milliseconds of each statement but `SET`, which run in one process."""
        left = self.deadline - time.monotonic()
        return sql.answers(self.options.vectile, self.files[encoding], statements, timeout=left, **more)

    def check(self, answers, *of):
        if any(answer != answers[0] for answer in answers):
            self.different.append(" ".join(of))

    def add(self, part, **facts):
        self.results.setdefault(part, []).append(facts)


def explained(rows):
    """Milliseconds of kernels, bytes of columns, whether the GPU did it, and why not, by EXPLAIN ANALYZE VERBOSE."""
    plans = {row["plan_type"]: row["plan"] for row in rows}
    short, full = (plans[kind] for kind in tpch.PLANS)
    nodes = [node["metrics"] for of_kind in tpch.on_gpu(short) for node in of_kind]
    kernel, cached = (sum(node[name] for node in nodes) for name in ["kernel_time", "bytes_cached"])
    done = bool(nodes) and not any(node["fallbacks"] for node in nodes)
    return kernel, cached, done, list(tpch.reasons_of(full))


def number(value, width, digits):
    return f"{value:{width}.{digits}f}" if value else f"{'-':>{width}}"


def tell(reasons):
    """Why something was not on the GPU, with the rows of the table where it was not."""
    for reason, rows in reasons.items():
        print(f"  {', '.join(rows)}: {reason}", flush=True)


def tests(bench):
    titles = f"encoding table    {'test':44} rows %  kernel ms   TB/s  floor ms  of floor"
    print(f"{titles}   GPU ms   CPU ms")
    reasons = {}
    for encoding in bench.encodings:
        for table, predicates in TESTS.items():
            about = "select length(text) as n, count(*) as rows, sum(octet_length(text)) as bytes"
            about += f" from {table} group by 1 order by 1"
            [(lengths, _)] = bench.ask(encoding, ["set vectile.gpu = 'off'", about])
            rows, raw = (sum(row[name] for row in lengths) for name in ["rows", "bytes"])
            predicates = predicates + [f"length(text) < {bound(lengths, share * rows)}" for share in LENGTHS]
            statements, each = [], 2 * RUNS + 1 + CPU_RUNS + 1
            for predicate in predicates:
                query = f"select count(*) as n from {table} where {predicate}"
                statements += ["set vectile.gpu = 'on'", *[query] * (1 + RUNS)]
                statements += [f"explain analyze verbose {query}"] * RUNS
                statements += ["set vectile.gpu = 'off'", *[query] * (1 + CPU_RUNS)]
            ran = bench.ask(encoding, statements)
            for at, predicate in enumerate(predicates):
                ours = ran[at * each : (at + 1) * each]
                gpu, plans, cpu = ours[: 1 + RUNS], ours[1 + RUNS : 1 + 2 * RUNS], ours[1 + 2 * RUNS :]
                bench.check([answer for answer, _ in gpu + cpu], encoding, table, predicate)
                kernels, cached, done, why = zip(*(explained(plan) for plan, _ in plans))
                kernel = median(kernels) if all(done) else None
                floor = cached[0] / bench.reads * 1e3 if bench.reads else None
                of_floor = floor / kernel if kernel and floor else None
                for reason in why[0] * (kernel is None):
                    reasons.setdefault(reason, []).append(f"{encoding} {table} {predicate[:44]}")
                count = gpu[0][0][0]["n"]
                gpu, cpu = (median(ms for _, ms in runs[1:]) for runs in [gpu, cpu])
                print(
                    f"{encoding:8} {table:8} {predicate[:44]:44} {100 * count / rows:6.2f} {number(kernel, 10, 3)} "
                    f"{number(kernel and raw / kernel / 1e9, 6, 2)} {number(floor, 9, 3)} {number(of_floor, 9, 2)} "
                    f"{gpu:8.1f} {cpu:8.1f}",
                    flush=True,
                )
                facts = {"count": count, "rows": rows, "text": raw, "bytes": cached[0], "kernel_ms": kernel}
                facts |= {"floor_ms": floor, "gpu_ms": gpu, "cpu_ms": cpu, "reasons": why[0]}
                bench.add("tests", encoding=encoding, table=table, test=predicate, **facts)
    tell(reasons)


def bound(lengths, wanted):
    """The length below which about that many strings are."""
    counts = itertools.accumulate(row["rows"] for row in lengths)
    return min((abs(count - wanted), row["n"] + 1) for count, row in zip(counts, lengths))[1]


def values(bench):
    print("encoding table         rows  kernels ms   off ms    on ms  auto ms  off/on  on GB/s  auto is")
    reasons = {}
    for encoding in bench.encodings:
        for table in TESTS:
            [([counted], _)] = bench.ask(encoding, ["set vectile.gpu = 'off'", f"select count(*) as n from {table}"])
            for wanted in ROWS:
                query = f"select text from {table} where number % {max(counted['n'] // wanted, 1)} = 0"
                answer = f"select count(*) as n, sum(octet_length(text)) as bytes, min(text), max(text) from ({query})"
                plans, statements = [f"explain analyze verbose {query}"] * (1 + RUNS), []
                for mode in ["off", "on", "auto"]:
                    statements += [f"set vectile.gpu = '{mode}'", answer, *plans]
                ran = bench.ask(encoding, statements)
                modes = [ran[at : at + 2 + RUNS] for at in range(0, len(ran), 2 + RUNS)]
                bench.check([mode[0][0] for mode in modes], encoding, table, str(wanted))
                [answers] = modes[0][0][0]
                off, on, auto = (median(ms for _, ms in mode[2:]) for mode in modes)
                plans = [explained(plan) for plan, _ in modes[1][2:]]
                kernels = median(kernel for kernel, *_ in plans)
                chosen = "GPU" if explained(modes[2][-1][0])[2] else "CPU"
                for reason in plans[0][3]:
                    reasons.setdefault(reason, []).append(f"{encoding} {table} {answers['n']}")
                print(
                    f"{encoding:8} {table:8} {answers['n']:9} {number(kernels, 11, 3)} {off:8.1f} {on:8.1f} {auto:8.1f} "
                    f"{off / on:7.2f} {answers['bytes'] / on / 1e6:8.1f}  {chosen}",
                    flush=True,
                )
                facts = {"rows": answers["n"], "text": answers["bytes"], "kernels_ms": kernels, "off_ms": off}
                facts |= {"on_ms": on, "auto_ms": auto, "auto": chosen, "reasons": plans[0][3]}
                bench.add("values", encoding=encoding, table=table, **facts)
    tell(reasons)


def keys(bench):
    titles = "encoding key   query            kernels ms  CPU first  CPU warm  GPU new  GPU first  GPU warm"
    print(f"{titles}    ratio  on the")
    reasons = {}
    for encoding in bench.encodings:
        for key in TABLES["keys"][0]:
            for name, query in KEYS.items():
                query = query.format(key)
                on = ["set vectile.gpu = 'on'", "select count(*) from keys where number = 1"]
                with tempfile.TemporaryDirectory() as cache:
                    environment = {"env": os.environ | {"VECTILE_CACHE": cache}}
                    off = ["set vectile.gpu = 'off'", *[query] * (1 + CPU_RUNS)]
                    *cpu, _, new = bench.ask(encoding, [*off, *on, query], **environment)
                    again = [*on, *[query] * (1 + RUNS), f"explain analyze verbose {query}"]
                    _, *gpu, (plan, _) = bench.ask(encoding, again, **environment)
                bench.check([answer for answer, _ in [*cpu, new, *gpu]], encoding, key, name)
                kernel, _, done, why = explained(plan)
                for reason in why:
                    reasons.setdefault(reason, []).append(f"{encoding} {key} {name}")
                (cpu_first, cpu_warm), (gpu_first, gpu_warm) = (
                    (runs[0][1], median(ms for _, ms in runs[1:])) for runs in [cpu, gpu]
                )
                print(
                    f"{encoding:8} {key:5} {name:16} {number(kernel, 10, 3)} {cpu_first:10.1f} {cpu_warm:9.1f} "
                    f"{new[1]:8.1f} {gpu_first:10.1f} {gpu_warm:9.1f} {cpu_warm / gpu_warm:8.2f}  "
                    f"{'GPU' if done else 'CPU'}",
                    flush=True,
                )
                facts = {"kernel_ms": kernel, "cpu_first_ms": cpu_first, "cpu_warm_ms": cpu_warm, "is_on_gpu": done}
                facts |= {"gpu_new_ms": new[1], "gpu_first_ms": gpu_first, "gpu_warm_ms": gpu_warm, "reasons": why}
                bench.add("keys", encoding=encoding, key=key, query=name, **facts)
    tell(reasons)


PARTS = {"tests": tests, "values": values, "keys": keys}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", default="text-data")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--encodings", default="fsst,onpair")
    parser.add_argument("--limit", type=float, default=3600, metavar="SECONDS")
    parser.add_argument("--json")
    bench = Bench(parser.parse_args())
    bench.write()
    stopped = None
    try:
        for part in filter(None, bench.options.parts.split(",")):
            PARTS[part](bench)
            print()
    except subprocess.TimeoutExpired:
        stopped = f"stopped after {bench.options.limit:g} s"
    if bench.options.json:
        pathlib.Path(bench.options.json).write_text(json.dumps(bench.facts | bench.results, indent=1))
    if bench.different:
        sys.exit("answers differ: " + "; ".join(bench.different))
    sys.exit(stopped)


if __name__ == "__main__":
    main()
