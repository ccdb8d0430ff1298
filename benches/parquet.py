#!/usr/bin/env python3
"""Queries over Parquet files, scanned by DataFusion's reader and by Vectile, and over Vectile's own files.

    benches/parquet.py {tpch,ssb} [--vectile target/release/vectile] [--scale 1] [--data DIR] [--queries 1,6]
                       [--writer pyarrow] [--compression snappy] [--runs 5] [--gpu off]

The tables are generated in DIR if they are not there yet. With --writer, pyarrow or DuckDB writes the Parquet files anew,
with that compression, and row groups of a million rows or of its own; otherwise they are as `vectile gen` writes them. Each
query has a process of its own for each of the three, which runs it so many times. With a GPU, a query of a small table
opens it before. Files are in the page cache.

For each query: the first run and the median of the others, DataFusion's reader (`vectile.parquet = off`), Vectile's scans
of the same files (`on`), Vectile's own files; and how many times as fast Vectile's scans are as DataFusion's reader, first
and later. At the end geometric means and sums. Milliseconds. Exits with 1 if answers differ.
"""

import argparse
import csv
import io
import pathlib
import statistics
import subprocess
import sys

import suite

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))
import sql  # noqa: E402

NAMES = ["reader, first", "later", "scans, first", "later", "own files, first", "later", "ratio, first", "later"]


# opens the device
OPENING = "select sum(n_nationkey) from nation"


def rewritten(files, folder, writer, compression):
    """The tables as pyarrow or DuckDB writes them, made if they are not there yet."""
    folder.mkdir(parents=True, exist_ok=True)
    others = {name: folder / file.name for name, file in files.items()}
    for name, other in others.items():
        if other.exists():
            continue
        if writer == "duckdb":
            import duckdb

            copy = f"copy (from '{files[name]}') to '{other}' (format parquet, codec '{compression}')"
            duckdb.sql(f"set preserve_insertion_order = true; {copy}")
        else:
            import pyarrow.parquet

            pyarrow.parquet.write_table(pyarrow.parquet.read_table(files[name]), other, compression=compression)
    return others


def run(options, files, query, parquet):
    """The answer, the first time, and the median of the others."""
    settings = [f"set vectile.gpu = '{options.gpu}'", f"set vectile.parquet = '{parquet}'"]
    if options.gpu != "off" and "nation" in files:
        settings.append(OPENING)
    script = "; ".join([*settings, *[query] * options.runs])
    command = [options.vectile, *sql.command(files, "--file=-")]
    done = subprocess.run(command, input=script, capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(done.stderr)
    rows = list(csv.reader(io.StringIO(done.stdout)))
    if OPENING in settings:
        del rows[:2]
    times = [whole for whole, _ in sql.times(done.stderr)[len(settings) :]]
    return rows[: len(rows) // options.runs], times[0], statistics.median(times[1:])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("benchmark", choices=["tpch", "ssb"])
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=1)
    parser.add_argument("--data", type=pathlib.Path, default="target/bench-data")
    parser.add_argument("--queries")
    parser.add_argument("--writer", choices=["pyarrow", "duckdb"])
    parser.add_argument("--compression", default="snappy")
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--gpu", default="off")
    options = parser.parse_args()
    folder = options.data / f"{options.benchmark}-{options.scale:g}"
    own = sql.generate(options.vectile, options.benchmark, options.scale, folder / "vectile")
    parquet = sql.generate(options.vectile, options.benchmark, options.scale, folder / "parquet", "parquet")
    of = "as generated"
    if options.writer:
        of = f"{options.writer}-{options.compression}"
        parquet = rewritten(parquet, folder / of, options.writer, options.compression)
    for files in (own, parquet):
        sql.read(files)
    queries = options.queries.split(",") if options.queries else sql.QUERIES[options.benchmark]
    rows, differ = [], []
    for name in queries:
        query = sql.text(options.benchmark, name)
        answers, firsts, laters = zip(
            run(options, parquet, query, "off"), run(options, parquet, query, "on"), run(options, own, query, "off")
        )
        if not all(suite.same(answers[0], other) for other in answers[1:]):
            differ.append(name)
        times = [time for pair in zip(firsts, laters) for time in pair]
        rows.append((name, [*times, firsts[0] / firsts[1], laters[0] / laters[1]]))
    columns = list(zip(*(values for _, values in rows)))
    rows.append(("sum", [*map(sum, columns[:6]), "", ""]))
    rows.append(("geometric mean", [*map(statistics.geometric_mean, columns)]))
    sql.table(f"{options.benchmark}, scale {options.scale:g}, {of}, gpu {options.gpu}", NAMES, rows)
    slower = sum(ratio < 1 for ratio in columns[6]), sum(ratio < 1 for ratio in columns[7])
    print(f"\nslower than DataFusion's reader: {slower[0]} first, {slower[1]} later; answers differ: {differ or 'none'}")
    sys.exit(bool(differ))


if __name__ == "__main__":
    main()
