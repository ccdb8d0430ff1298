#!/usr/bin/env python3
"""Whole suites of queries on the CPU, with DuckDB beside Vectile where the Python package duckdb is installed, and
with the GPU beside the CPU.

    benches/suite.py SUITE ... [--vectile target/release/vectile] [--scale 1] [--data DIR] [--queries 1,6]
                     [--tpcds FOLDER] [--runs 5] [--limit 60] [--set SETTING=VALUE] [--gpu on|auto|require] [--json FILE]

SUITE is tpch, ssb, hits or tpcds. The queries of tpcds are the files FOLDER/*.sql; docs/testing.md says where they are
to be had. Tables are generated in DIR/SUITE-SCALE, by default in target, if they are not there yet:
Vectile files, and Parquet files of the same rows, from which DuckDB fills its tables. It has them twice, in memory and
in a database file that was written, checkpointed and opened again; for each query the faster one counts.

Each query runs so many times in one process, and so many times in each of DuckDB's databases. The median of all but
the first run counts, in milliseconds. A ratio is DuckDB's time over Vectile's, so more is better. DuckDB's includes
that Python fetches the rows, Vectile's that they are printed. Answers are compared: floats to five digits, and rows in
any order if not in the same one. A query that takes longer than LIMIT seconds in Vectile is an error.

With --gpu, each query also runs in a process with that mode of `vectile.gpu`. `first` is its first run there, which
opens the device and loads columns, `gpu` the median of the others; kernels on disk are those of the queries before it.
The lines below a query say what the CPU does of it, and why. A query is slow if `gpu` is above 1.1 times `vectile` and
5 ms.

Exits with 1 if answers differ or queries fail.
"""

import argparse
import csv
import datetime
import decimal
import io
import json
import math
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile
import time

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))
import sql  # noqa: E402

try:
    import duckdb
except ImportError:
    duckdb = None

SUITES = ["tpch", "ssb", "hits", "tpcds"]
# functions that DuckDB has under another name
MACROS = ["regexp_like(text, pattern) as regexp_matches(text, pattern)"]
DIGITS = 1e-5
SLOW_RATIO, SLOW_MS = 1.1, 5
PLAN = "the plan follows"
# the reasons of EXPLAIN ANALYZE for what is not on the GPU: of a plan node, and of what went back when it ran
LEFT = re.compile(r"(not_(?:on_gpu|fused)=.*?)(?=, metrics=|, not_fused=|$)|((?:fallbacks|builds_on_cpu) \(.*?\)=[1-9]+)(?=,|])", re.M)


def ours(options, files, query, mode="off", cache=None):
    """Rows and milliseconds of Vectile, or its error; with a GPU, also what it leaves to the CPU."""
    settings = [f"set {name} = '{value}'" for name, _, value in (given.partition("=") for given in options.set)]
    explained = [f"select '{PLAN}' as mark", f"explain analyze {query}"] if mode != "off" else []
    script = "; ".join([f"set vectile.gpu = '{mode}'", *settings, *[query] * options.runs, *explained])
    environment = os.environ | ({"VECTILE_CACHE": cache} if cache else {})
    # arguments may not be as long as some scripts
    command = [options.vectile, *sql.command(files, "--file=-")]
    try:
        done = subprocess.run(
            command, input=script, capture_output=True, encoding="utf-8", timeout=options.limit, env=environment
        )
    except subprocess.TimeoutExpired:
        return {"error": f"took longer than {options.limit:g} s"}
    if done.returncode != 0:
        return {"error": (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]}
    times = [whole for whole, _ in sql.times(done.stderr)[1 + len(settings) :][: options.runs]]
    answers, _, plan = done.stdout.partition(f"mark\n{PLAN}\n")
    rows = list(csv.reader(io.StringIO(answers)))
    each = len(rows) // options.runs
    if any(rows[:each] != rows[start : start + each] for start in range(0, len(rows), each)):
        return {"error": "its runs have different answers"}
    left = list(dict.fromkeys(reason.strip() for found in LEFT.findall(plan) for reason in found if reason))
    return {"rows": rows[1:each], "times": times, "ms": statistics.median(times[1:] or times), "left": left}


def duckdb_databases(tables, folder):
    """Two databases with the tables: in memory, and in a file."""
    file = folder / "tables.duckdb"
    file.unlink(missing_ok=True)
    memory, written = duckdb.connect(), duckdb.connect(str(file))
    for database in (memory, written):
        for name, parquet in tables.items():
            database.execute(f"create table {name} as select * from '{parquet}'")
    written.execute("checkpoint")
    written.close()
    databases = {"memory": memory, "file": duckdb.connect(str(file), read_only=True)}
    for database in databases.values():
        for macro in MACROS:
            database.execute(f"create or replace temp macro {macro}")
    return databases


def theirs(options, database, query):
    """Rows and milliseconds of DuckDB, or its error."""
    times = []
    try:
        for _ in range(options.runs):
            start = time.perf_counter()
            rows = database.execute(query).fetchall()
            times.append((time.perf_counter() - start) * 1e3)
    except duckdb.Error as error:
        return {"error": str(error).splitlines()[0]}
    return {"rows": rows, "times": times, "ms": statistics.median(times[1:] or times)}


def comparable(value):
    """A value as an integer, a float or as Vectile prints it."""
    if value is None or value == "":
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, datetime.date):
        return value.isoformat()
    if isinstance(value, (int, float)):
        return value
    if isinstance(value, decimal.Decimal):
        return float(value)
    for number in (int, float):
        try:
            return number(value)
        except ValueError:
            pass
    return value


def close(left, right):
    if left == right or isinstance(left, str) or isinstance(right, str):
        return left == right
    if isinstance(left, int) and isinstance(right, int):
        return False
    return math.isclose(left, right, rel_tol=DIGITS, abs_tol=1e-6) or (math.isnan(left) and math.isnan(right))


def same(left, right):
    """True if two answers have the same rows, in this order or another."""
    left, right = ([[comparable(value) for value in row] for row in rows] for rows in (left, right))
    if len(left) != len(right):
        return False

    def agree():
        return all(len(a) == len(b) and all(map(close, a, b)) for a, b in zip(left, right))

    if agree():
        return True
    for rows in (left, right):
        rows.sort(key=lambda row: [value if isinstance(value, str) else f"{value:.3g}" for value in row])
    return agree()


def number(name):
    """The number in a file's name, or 0."""
    return int("".join(letter for letter in name if letter.isdigit()) or 0)


def texts(options, suite):
    """The queries of a suite: name and text. If a file has several, the name of each has a letter."""
    if suite == "tpcds":
        found = {}
        for file in sorted(pathlib.Path(options.tpcds).glob("*.sql"), key=lambda file: (number(file.stem), file.stem)):
            parts = [part.strip() for part in file.read_text().split(";") if part.strip()]
            letters = "abcdefgh" if len(parts) > 1 else [""]
            found |= {f"{number(file.stem)}{letter}": part for letter, part in zip(letters, parts)}
        chosen = options.queries.split(",") if options.queries else list(found)
        return {name: found[name] for name in chosen}
    chosen = options.queries.split(",") if options.queries else sql.QUERIES[suite]
    return {name: sql.text(suite, name) for name in chosen}


def measure(options, suite):
    """Runs a suite, prints it, and returns its lines."""
    folder = pathlib.Path(options.data) / f"{suite}-{options.scale:g}"
    files = sql.generate(options.vectile, suite, options.scale, folder)
    sql.read(files)
    databases = {}
    if duckdb:
        databases = duckdb_databases(sql.generate(options.vectile, suite, options.scale, folder, "parquet"), folder)
    version = f", DuckDB {duckdb.__version__}" if duckdb else ", without DuckDB"
    program = sql.vectile(options.vectile, "--version")[0].strip()
    print(f"\n{suite}, scale {options.scale:g}, {os.cpu_count()} cores, {program}{version}; milliseconds\n")
    titles = ["vectile", *(["first", "gpu"] if options.gpu else []), *databases]
    print(f"{'query':<6}" + "".join(f"{title:>10}" for title in titles) + f"{'ratio':>8}")
    lines = []
    cache = tempfile.TemporaryDirectory()
    for name, query in texts(options, suite).items():
        line = {"query": name, "vectile": ours(options, files, query)}
        line |= {database: theirs(options, opened, query) for database, opened in databases.items()}
        if options.gpu:
            line["gpu"] = ours(options, files, query, options.gpu, cache.name)
        found = [line[database] for database in databases if "ms" in line[database]]
        if "ms" in line["vectile"] and found:
            line["ratio"] = min(result["ms"] for result in found) / line["vectile"]["ms"]
            line["agrees"] = all(same(line["vectile"]["rows"], result["rows"]) for result in found)
        if "rows" in line.get("gpu", {}) and "rows" in line["vectile"]:
            line["agrees"] = line.get("agrees", True) and same(line["vectile"]["rows"], line["gpu"]["rows"])
            line["slow"] = line["gpu"]["ms"] > SLOW_RATIO * line["vectile"]["ms"] + SLOW_MS
        print(text_of(line, [engine for engine in ["vectile", "gpu", *databases] if engine in line]), flush=True)
        lines.append(line)
    cache.cleanup()
    for line in lines:
        for engine in ["vectile", "gpu", *databases]:
            line.get(engine, {}).pop("rows", None)
    summary(lines)
    return lines


def text_of(line, engines):
    numbers = []
    for engine in engines:
        answer = line[engine]
        times = [*([answer.get("times", [None])[0]] if engine == "gpu" else []), answer.get("ms")]
        numbers += [f"{time:>10.2f}" if time is not None else f"{'-':>10}" for time in times]
    ratio = f"{line['ratio']:>8.2f}" if "ratio" in line else f"{'-':>8}"
    errors = [f"  {engine}: {line[engine]['error']}" for engine in engines if "error" in line[engine]]
    notes = ("  slow" if line.get("slow") else "") + ("" if line.get("agrees", True) else "  answers differ")
    left = [f"\n      {reason[:150]}" for reason in line.get("gpu", {}).get("left", [])]
    return f"{line['query']:<6}" + "".join(numbers) + ratio + notes + "".join(errors + left)


def summary(lines):
    answered = [line["vectile"]["ms"] for line in lines if "ms" in line["vectile"]]
    print(f"\n{len(answered)} of {len(lines)} queries, {sum(answered):.1f} ms in all")
    both = [line for line in lines if "slow" in line]
    if both:
        cpu, gpu = (sum(line[engine]["ms"] for line in both) for engine in ("vectile", "gpu"))
        first = sum(line["gpu"]["times"][0] for line in both)
        slow, whole = [line["query"] for line in both if line["slow"]], [line for line in both if not line["gpu"]["left"]]
        print(f"gpu: {len(both)} queries, {gpu:.1f} ms for {cpu:.1f} ms of vectile, {first:.1f} ms the first time")
        print(f"{len(whole)} without anything left to the CPU; {len(slow)} slow: {', '.join(slow)}")
    rated = [line for line in lines if "ratio" in line]
    if rated:
        mean = math.exp(statistics.fmean(math.log(line["ratio"]) for line in rated))
        worst = min(rated, key=lambda line: line["ratio"])
        print(f"ratio: {mean:.2f} (geometric mean), {worst['ratio']:.2f} at worst (query {worst['query']})")


def main():
    csv.field_size_limit(1 << 30)
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("suites", nargs="+", choices=SUITES, metavar="SUITE")
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--data", default="target")
    parser.add_argument("--queries")
    parser.add_argument("--tpcds", metavar="FOLDER")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--limit", type=float, default=60)
    parser.add_argument("--set", action="append", default=[], metavar="SETTING=VALUE")
    parser.add_argument("--gpu", choices=["on", "auto", "require"])
    parser.add_argument("--json")
    options = parser.parse_args()
    if "tpcds" in options.suites and not options.tpcds:
        parser.error("tpcds needs --tpcds FOLDER with its queries")
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    results = {suite: measure(options, suite) for suite in options.suites}
    if options.json:
        facts = {"scale": options.scale, "cores": os.cpu_count(), "runs": options.runs, "suites": results}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    bad = [
        f"{suite} {line['query']}"
        for suite, lines in results.items()
        for line in lines
        if "error" in line["vectile"] or "error" in line.get("gpu", {}) or not line.get("agrees", True)
    ]
    if bad:
        sys.exit(f"failed or different: {', '.join(bad)}")


if __name__ == "__main__":
    main()
