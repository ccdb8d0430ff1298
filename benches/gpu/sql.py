"""Benchmarks through `vectile sql`, for the scripts here and `../suite.py`: queries, tables, times and metrics."""

import json
import pathlib
import re
import subprocess
import sys

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "sql-tests"
QUERIES = {
    "ssb": ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"],
    "tpch": [str(number) for number in range(1, 23)],
    "hits": [str(number) for number in range(1, 44)],
}
TABLES = {
    "ssb": ["lineorder", "date", "customer", "supplier", "part"],
    "tpch": ["lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"],
    "hits": ["hits"],
    "tpcds": ["inventory", "store_sales", "catalog_sales", "customer_demographics", "web_sales", "store_returns"]
    + ["catalog_returns", "customer", "time_dim", "date_dim", "web_returns", "customer_address", "item"]
    + ["catalog_page", "household_demographics", "promotion", "reason", "web_page", "web_site", "income_band"]
    + ["ship_mode", "store", "call_center", "warehouse"],
}
# what queries of the Star Schema Benchmark read of it
LINEORDER = ["lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_quantity", "lo_extendedprice"]
LINEORDER += ["lo_discount", "lo_revenue", "lo_supplycost"]
UNITS = {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3, "": 1, "K": 1e3, "M": 1e6, "B": 1e9, "G": 1e9, "T": 1e12}


def text(benchmark, query):
    return (FOLDER / benchmark / f"q{query}.sql").read_text().strip().rstrip(";")


def texts(options):
    """The queries by name: `*.sql` in the folder `statements`, or those of a benchmark; of these, `queries`."""
    if options.statements:
        files = sorted(pathlib.Path(options.statements).glob("*.sql"))
        found = {file.stem: file.read_text().strip().rstrip(";") for file in files}
    elif options.benchmark in QUERIES:
        found = {name: text(options.benchmark, name) for name in QUERIES[options.benchmark]}
    else:
        sys.exit(f"{options.benchmark} needs --statements")
    return {name: found[name] for name in options.queries.split(",")} if options.queries else found


def vectile(program, *arguments, **more):
    """The output of a command, and its log."""
    done = subprocess.run([program, *arguments], capture_output=True, encoding="utf-8", **more)
    if done.returncode != 0:
        sys.exit(f"vectile {' '.join(arguments)[:300]}: {done.stderr}")
    return done.stdout, done.stderr


def generate(program, benchmark, scale, folder, form="vectile"):
    """The file of each table; they are generated in `folder` if they are not there yet."""
    files = {name: pathlib.Path(folder) / f"{name}.{form}" for name in TABLES[benchmark]}
    if not all(file.exists() for file in files.values()):
        vectile(program, "gen", benchmark, "--scale", f"{scale:g}", "--out", str(folder), "--format", form, "-q")
    return files


def with_plain_columns(program, files):
    """Tables with plain columns of lineorder, made if they are not there yet."""
    plain = files["lineorder"].with_name("lineorder-plain.vectile")
    if not plain.exists():
        pins = [word for column in LINEORDER for word in ("--encoding", f"{column}=plain")]
        vectile(program, "convert", str(files["lineorder"]), str(plain), "-q", *pins)
    return files | {"lineorder": plain}


def read(files):
    """Reads files once, so that they are in the page cache."""
    for file in files.values():
        with open(file, "rb") as opened:
            while opened.read(1 << 24):
                pass


def command(files, script, form="csv", flags=()):
    """The arguments for a script over tables."""
    tables = [word for name, file in files.items() for word in ("-t", f"{name}={file}")]
    return ["sql", "--timing", "--format", form, *flags, *tables, script]


def times(log):
    """Milliseconds of each statement, and of planning it."""
    found = re.findall(r"^statement \d+: ([0-9.]+) ms, of which planning ([0-9.]+)", log, re.M)
    return [(float(whole), float(planning)) for whole, planning in found]


def answers(program, files, statements, **more):
    """The rows of each statement but `SET`, which has none, and its milliseconds."""
    out, log = vectile(program, *command(files, "; ".join(statements), "json"), **more)
    rows, decoder = [], json.JSONDecoder()
    while out := out.lstrip():
        answer, end = decoder.raw_decode(out)
        rows.append(answer)
        out = out[end:]
    timed = zip(statements, times(log))
    return list(zip(rows, [ms for statement, (ms, _) in timed if not statement.startswith("set ")]))


def metrics(plan, name):
    """The values of a metric in a plan, in milliseconds or ones."""
    found = re.findall(rf"\b{name}=([0-9.]+) ?([a-zA-Zµ]*)", plan)
    return [float(number) * UNITS[unit] for number, unit in found]


def table(title, names, rows):
    """Prints lines of (name, numbers) as a Markdown table."""
    print(f"\n{title}\n\n| | {' | '.join(names)} |\n| --- |{' ---: |' * len(names)}")
    for name, values in rows:
        print(f"| {name} | {' | '.join(value if isinstance(value, str) else f'{value:.3g}' for value in values)} |")
    sys.stdout.flush()
