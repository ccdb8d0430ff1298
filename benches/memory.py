#!/usr/bin/env python3
"""Peak memory of TPC-H's queries on the CPU, with DuckDB beside Vectile where the Python package duckdb is installed.

    benches/memory.py [--vectile target/release/vectile] [--scale 10] [--data DIR] [--queries 1,6] [--runs 2]

Tables are those of `suite.py`: DIR/tpch-SCALE, by default in target. Each query has a process of its own, which runs it
so many times and prints its rows; the largest resident set of the process counts, in megabytes. Vectile has its default
settings without a GPU, so that it keeps the encoded columns that it has read. DuckDB reads its database file and has as
many threads as there are cores, and its default limit of memory.
"""

import argparse
import pathlib
import subprocess
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent / "gpu"))
import sql  # noqa: E402

# runs a command and prints the kilobytes of its largest resident set
MEASURED = """
import resource, subprocess, sys
done = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)
sys.exit(done.returncode)
"""

THEIRS = """
import duckdb, sys
database = duckdb.connect(sys.argv[1], read_only=True)
for _ in range(int(sys.argv[2])):
    print(database.execute(sys.argv[3]).fetchall())
"""

FILL = """
import duckdb, sys
database = duckdb.connect(sys.argv[1])
for table in sys.argv[2:]:
    name, _, parquet = table.partition("=")
    database.execute(f"create table {name} as select * from '{parquet}'")
database.execute("checkpoint")
"""


def megabytes(*command):
    done = subprocess.run([sys.executable, "-c", MEASURED, *map(str, command)], capture_output=True, encoding="utf-8")
    if done.returncode != 0:
        sys.exit(f"failed: {' '.join(map(str, command))[:300]}")
    return int(done.stdout) / 1024


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data", default="target")
    parser.add_argument("--queries")
    parser.add_argument("--runs", type=int, default=2)
    options = parser.parse_args()
    folder = pathlib.Path(options.data) / f"tpch-{options.scale:g}"
    files = sql.generate(options.vectile, "tpch", options.scale, folder)
    database = folder / "tables.duckdb"
    has_duckdb = subprocess.run([sys.executable, "-c", "import duckdb"], stderr=subprocess.DEVNULL).returncode == 0
    if has_duckdb and not database.exists():
        parquet = sql.generate(options.vectile, "tpch", options.scale, folder, "parquet")
        tables = [f"{name}={file}" for name, file in parquet.items()]
        subprocess.run([sys.executable, "-c", FILL, database, *tables], check=True)
    print(f"{'query':<6}{'vectile':>10}" + (f"{'duckdb':>10}" if has_duckdb else ""))
    largest = [0.0, 0.0]
    for name in options.queries.split(",") if options.queries else sql.QUERIES["tpch"]:
        query = sql.text("tpch", name)
        script = "; ".join(["set vectile.gpu = 'off'", *[query] * options.runs])
        found = [megabytes(options.vectile, *sql.command(files, script))]
        if has_duckdb:
            found.append(megabytes(sys.executable, "-c", THEIRS, database, options.runs, query))
        largest = [max(pair) for pair in zip(largest, found)]
        print(f"{name:<6}" + "".join(f"{value:>10.0f}" for value in found), flush=True)
    print(f"{'most':<6}" + "".join(f"{value:>10.0f}" for value in largest[: 1 + has_duckdb]))


if __name__ == "__main__":
    main()
