#!/usr/bin/env python3
"""The Star Schema Benchmark through SQL on a GPU: kernels beside their floor and beside plain columns, whole
queries beside the CPU, DataFusion on Parquet and DuckDB.

    benches/gpu/ssb.py [--vectile target/release/vectile] [--scale 20] [--data DIR] [--json FILE]
                       [--plain] [--cpu] [--parquet] [--duckdb]

Tables are generated in DIR if they are not there yet; so are, where asked for, `lineorder` with plain columns
and Parquet files (zstd level 3). Every query runs RUNS times in one process, of which the median of all but
the first two counts, and as often with EXPLAIN ANALYZE, whose kernel times are by the device's clock. The
answers of all ways must be the same. DuckDB (Python package duckdb) reads the Parquet files into its own
tables first.
"""

import argparse
import csv
import hashlib
import io
import json
import math
import os
import pathlib
import re
import sys
import time
from statistics import median_high as median

import sql

RUNS = 9
SLOW_RUNS = 4
TEXT = {name: sql.text("ssb", name) for name in sql.QUERIES["ssb"]}
TABLES = sql.TABLES["ssb"]
COLUMNS = sql.LINEORDER


def warm(times):
    """The median of all but the first two, where there are enough."""
    return median(times[min(2, len(times) // 2) :])


def digest(rows):
    text = "\n".join("|".join(str(value) for value in row) for row in rows)
    return hashlib.md5(text.encode()).hexdigest()[:12]


def run(options, files, mode, runs, analyze):
    """For each query: digest of the answer, milliseconds of each run and of planning it, plans of EXPLAIN ANALYZE."""
    script, counts = f"set vectile.gpu = '{mode}';", 1
    for name in TEXT:
        script += f"select 'query {name}' as mark;" + f"{TEXT[name]};" * runs
        script += f"explain analyze {TEXT[name]};" * (runs if analyze else 0)
    out, log = sql.vectile(options.vectile, *sql.command(files, script))
    times = sql.times(log)
    each = 1 + runs + (runs if analyze else 0)
    parts = re.split(r"^mark\nquery [0-9.]+\n", out, flags=re.M)[1:]
    results = {}
    for at, (name, part) in enumerate(zip(TEXT, parts)):
        own = times[counts + at * each + 1 : counts + at * each + 1 + runs]
        plans = part.split("plan_type,plan")
        answer = list(csv.reader(io.StringIO(plans[0])))
        rows = answer[1 : len(answer) // runs]
        times_of = {"times": [whole for whole, _ in own], "planning": [planning for _, planning in own]}
        results[name] = {"digest": digest(rows), "plans": plans[1:]} | times_of
    return results


def metric(plan, name):
    """The metric of the GPU's node, in milliseconds or ones; None without such a node."""
    node = re.search(r"FusedAggregateExec.*", plan)
    found = node and sql.metrics(node.group(), name)
    return found[0] if found else None


def duckdb_times(data):
    import duckdb

    con = duckdb.connect()
    for name in TABLES:
        columns = ", ".join(COLUMNS) if name == "lineorder" else "*"
        con.execute(f"create table {name} as select {columns} from '{data}/parquet/{name}/*.parquet'")
    results = {}
    for name in TEXT:
        times = []
        for _ in range(SLOW_RUNS):
            start = time.perf_counter()
            rows = con.execute(TEXT[name]).fetchall()
            times.append((time.perf_counter() - start) * 1e3)
        results[name] = {"digest": digest(rows), "times": times}
    return results, f"DuckDB {duckdb.__version__}"


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--json")
    for name in ["plain", "cpu", "parquet", "duckdb"]:
        parser.add_argument(f"--{name}", action="store_true")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    if options.duckdb:
        import duckdb  # noqa: F401, to fail before anything is measured
    data = pathlib.Path(options.data or f"target/ssb-{options.scale}")
    files = sql.generate(options.vectile, "ssb", options.scale, data)
    plain = sql.with_plain_columns(options.vectile, files) if options.plain else files
    parquet = {name: data / "parquet" / name for name in TABLES}
    if (options.parquet or options.duckdb) and not parquet["part"].exists():
        for name in TABLES:
            columns = ", ".join(COLUMNS) if name == "lineorder" else "*"
            copy = f"copy (select {columns} from {name}) to '{parquet[name]}/' stored as parquet "
            copy += "options ('compression' 'zstd(3)')"
            sql.vectile(options.vectile, *sql.command(files, copy))
    device, _ = sql.vectile(options.vectile, "device")
    reads = re.search(r"([0-9.]+) TB/s", device)
    reads = float(reads[1]) * 1e12 if reads else math.nan
    print(f"SSB, scale {options.scale}, {os.cpu_count()} cores, {len(TEXT)} queries\n{device.strip()}\n")

    ways = {"encoded": run(options, files, "require", RUNS, True)}
    if options.plain:
        ways["plain"] = run(options, plain, "require", RUNS, True)
    if options.cpu:
        ways["cpu"] = run(options, files, "off", SLOW_RUNS, False)
    if options.parquet:
        ways["parquet"] = run(options, parquet, "off", SLOW_RUNS, False)
    if options.duckdb:
        ways["duckdb"], version = duckdb_times(data)
        print(version)

    others = [way for way in ways if way not in ("encoded", "plain")]
    head = f"{'query':<6}{'MB':>7}{'floor':>8}{'kernel':>8}{'/floor':>7}"
    head += f"{'plain':>8}{'ratio':>6}" if options.plain else ""
    head += f"{'whole':>8}{'planning':>9}{'first':>8}" + "".join(f"{way:>10}" for way in others)
    print(head + ("   best/whole" if others else "") + "   (milliseconds)")
    lines, sums, ratios = [], {}, []
    for name in TEXT:
        results = {way: result[name] for way, result in ways.items()}
        if len({result["digest"] for result in results.values()}) != 1:
            sys.exit(f"{name}: answers differ: {[(w, r['digest']) for w, r in results.items()]}")
        line = {"query": name, "digest": results["encoded"]["digest"]}
        for way, result in results.items():
            line[way] = {"whole_ms": warm(result["times"])}
            line[way]["first_ms"] = result["times"][0]
            line[way]["all_ms"] = result["times"]
            if "planning" in result:
                line[way]["planning_ms"] = warm(result["planning"])
            plans = [plan for plan in result.get("plans", []) if "FusedAggregateExec" in plan]
            if plans:
                line[way]["kernel_ms"] = median([metric(plan, "kernel_time") for plan in plans])
                line[way]["bytes"] = metric(plans[-1], "bytes_cached")
                for part in ["build", "compile"]:
                    line[way][f"{part}_ms"] = median([metric(plan, f"{part}_time") or 0 for plan in plans])
        own = line["encoded"]
        own["floor_ms"] = own["bytes"] / reads * 1e3
        text = f"{name:<6}{own['bytes'] / 1e6:>7.0f}{own['floor_ms']:>8.3f}{own['kernel_ms']:>8.3f}"
        text += f"{own['kernel_ms'] / own['floor_ms']:>7.2f}"
        if options.plain:
            other = line["plain"]
            text += f"{other['kernel_ms']:>8.3f}{other['kernel_ms'] / own['kernel_ms']:>6.2f}"
        text += f"{own['whole_ms']:>8.2f}{own['planning_ms']:>9.2f}{own['first_ms']:>8.0f}"
        text += "".join(f"{line[way]['whole_ms']:>10.1f}" for way in others)
        if others:
            ratios.append(min(line[way]["whole_ms"] for way in others) / own["whole_ms"])
            text += f"{ratios[-1]:>13.1f}"
        print(text, flush=True)
        lines.append(line)
        for way in ways:
            for part in ["whole_ms", "planning_ms", "build_ms", "compile_ms", "kernel_ms"]:
                sums[way, part] = sums.get((way, part), 0) + (line[way].get(part) or 0)
    for (way, part), value in sums.items():
        if value:
            print(f"all 13, {way}, {part}: {value:.2f}")
    if ratios:
        print(f"geometric mean of best/whole: {math.exp(sum(map(math.log, ratios)) / len(ratios)):.1f}")
    if options.json:
        facts = {"scale": options.scale, "reads_bytes_per_s": reads, "queries": lines}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))


if __name__ == "__main__":
    main()
