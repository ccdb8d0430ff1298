#!/usr/bin/env python3
"""Queries of TPC-H and SSB over zlib ORC files, which the GPU inflates and decodes, beside the CPU, Vectile files and
Parquet.

    benches/gpu/orc.py [--vectile target/release/vectile] [--scale 20] [--data DIR] [--parts sizes,queries,...]
                       [--queries tpch/1,ssb/2.1] [--orc-rust PROGRAM] [--json FILE]

The tables are made in DIR if they are not there yet: Vectile files by `vectile gen`, from them Parquet files (zstd
level 3), and from those ORC files, with as many processes as there are cores. A large table is a directory of FILES
ORC files, each with its share of the Parquet row groups. `--parts ''` only makes the tables, and those of a benchmark
only if a query is of it. Needs the Python package pyarrow.

`sizes` has megabytes of tables. `queries` has milliseconds from a statement's text to its last row. `first` is the
first query of a process, with the files in the page cache and kernels on disk; `opened` is the same after a query of
another table, which opens the device: medians of PROCESSES processes. `later` is the median of RUNS runs in one
process (SLOW_RUNS on the CPU) without the first two. Kernel times are by the device's clock. The answers of all ways
must be the same. `columns` has the first query of a process that reads one column, after the device was opened.
`convert` has seconds of `vectile convert` of `lineitem` to a Vectile file, without a GPU: the least of CONVERSIONS.

`--orc-rust` is the program of benches/orc-rust, built for release. `queries` then has the time that orc-rust takes to
read the columns that a query needs of the large table, which is the least for any engine that reads by it.

Without a GPU, the ways that need one are left out.
"""

import argparse
import concurrent.futures
import json
import multiprocessing
import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile
import time
from statistics import median_high as median

import sql
import ssb
import tpch

RUNS, SLOW_RUNS, PROCESSES, CONVERSIONS = 9, 4, 3, 2
FILES = 16
QUERIES = ["tpch/1", "tpch/6", "ssb/1.1", "ssb/2.1", "ssb/3.1", "ssb/4.1"]
TABLES = {"tpch": ["lineitem"], "ssb": sql.TABLES["ssb"]}
SMALLEST = {"tpch": 0, "ssb": 1}
# Each: the format of the files, whether the GPU is used.
WAYS = {"ORC, GPU": ("orc", "on"), "ORC, CPU": ("orc", "off"), "Vectile, GPU": ("vectile", "on")}
WAYS |= {"Parquet, CPU": ("parquet", "off")}
# A query of a small Vectile table that opens the device.
OPENER = {
    "tpch": ("region", "select count(*) from opener where r_regionkey > 1"),
    "ssb": ("date", "select count(*) from opener where d_year = 1993"),
}
# A column, and a query of it that statistics do not answer.
COLUMNS = {
    "tpch/lineitem": {
        **{f"l_{name}": f"sum(l_{name})" for name in ["orderkey", "partkey", "quantity", "extendedprice", "discount"]},
        "l_shipdate": "l_shipdate <> date '1995-06-17'",
        "l_returnflag": "l_returnflag <> 'N'",
        "l_shipinstruct": "l_shipinstruct <> 'COLLECT COD'",
        "l_comment": "l_comment > 'k'",
    },
    "ssb/lineorder": {
        **{f"lo_{name}": f"sum(lo_{name})" for name in ["orderkey", "custkey", "orderdate", "discount", "revenue"]},
        "lo_shipmode": "lo_shipmode <> 'RAIL'",
    },
}
# Columns of the large table that each query reads.
READS = {
    "tpch/1": "l_quantity,l_extendedprice,l_discount,l_tax,l_returnflag,l_linestatus,l_shipdate",
    "tpch/6": "l_quantity,l_extendedprice,l_discount,l_shipdate",
    "ssb/1.1": "lo_orderdate,lo_quantity,lo_extendedprice,lo_discount",
    "ssb/2.1": "lo_partkey,lo_suppkey,lo_orderdate,lo_revenue",
    "ssb/3.1": "lo_custkey,lo_suppkey,lo_orderdate,lo_revenue",
    "ssb/4.1": "lo_custkey,lo_partkey,lo_suppkey,lo_orderdate,lo_revenue,lo_supplycost",
}
LARGE = {"tpch": "lineitem", "ssb": "lineorder"}
# ORC's default is not to use dictionaries; writers in Java have this threshold.
ORC = {"compression": "zlib", "compression_block_size": 1 << 16, "row_index_stride": 10_000}
ORC |= {"dictionary_key_size_threshold": 0.8}
BATCH_ROWS = 1 << 16


class Bench:
    """Tables in each format, and the results."""

    def __init__(self, options, cache):
        self.options = options
        self.environment = os.environ | {"VECTILE_CACHE": cache}
        self.queries = [query.split("/") for query in options.queries.split(",")]
        self.tables, self.openers = {}, {}
        for benchmark in dict.fromkeys(benchmark for benchmark, _ in self.queries):
            scale = max(options.scale, SMALLEST[benchmark])
            folder = pathlib.Path(options.data or "target") / f"{benchmark}-{scale:g}"
            vectile = sql.generate(options.vectile, benchmark, scale, folder)
            self.openers[benchmark] = vectile[OPENER[benchmark][0]]
            vectile = {name: vectile[name] for name in TABLES[benchmark]}
            parquet = {name: self.parquet(name, file) for name, file in vectile.items()}
            self.tables[benchmark] = {"vectile": vectile, "parquet": parquet, "orc": orc_tables(parquet)}
        self.device = tpch.device(options.vectile)["device"]
        self.ways = {name: way for name, way in WAYS.items() if self.device or way[1] == "off"}
        self.results = {"scale": options.scale, "cores": os.cpu_count(), "device": self.device}

    def parquet(self, name, file):
        """The rows of a Vectile file in the same order, in row groups that are compressed in parallel."""
        target = file.parent / "rows" / f"{name}.parquet"
        if not target.exists():
            settings = ["target_partitions = 1", f"parquet.maximum_parallel_row_group_writers = {os.cpu_count()}"]
            settings += ["parquet.maximum_buffered_record_batches_per_stream = 64"]
            script = "".join(f"set datafusion.execution.{setting};" for setting in settings)
            part = target.with_suffix(".part")
            part.parent.mkdir(exist_ok=True)
            script += f"copy {name} to '{part}' stored as parquet options ('compression' 'zstd(3)')"
            sql.vectile(self.options.vectile, *sql.command({name: file}, script))
            part.rename(target)
        return target

    def answers(self, benchmark, form, mode, *statements, opened=False):
        """The rows and milliseconds of each statement of a process."""
        files = self.tables[benchmark][form] | {"opener": self.openers[benchmark]}
        script = [f"set vectile.gpu = '{mode}'", *[OPENER[benchmark][1]] * opened, *statements]
        return sql.answers(self.options.vectile, files, script, env=self.environment)[opened:]

    def read(self):
        """Reads all files once, so that they are in the page cache."""
        for forms in self.tables.values():
            for tables in forms.values():
                for path in tables.values():
                    sql.read(dict(enumerate(files_of(path))))


def files_of(path):
    return sorted(path.iterdir()) if path.is_dir() else [path]


def megabytes(path):
    return sum(file.stat().st_size for file in files_of(path)) / 1e6


def orc_tables(parquet):
    """An ORC file of each table, or a directory of them."""
    import pyarrow.parquet

    tables, jobs, done = {}, [], []
    for name, source in parquet.items():
        groups = list(range(pyarrow.parquet.ParquetFile(source).num_row_groups))
        count = FILES if len(groups) >= FILES else 1
        target = tables[name] = source.parent / (name if count > 1 else f"{name}.orc")
        if not target.exists():
            part = target.with_name(target.name + ".part")
            shutil.rmtree(part, ignore_errors=True)
            done.append((part, target))
            shares = [groups[at * len(groups) // count : (at + 1) * len(groups) // count] for at in range(count)]
            files = [part / f"{at:02}.orc" for at in range(count)] if count > 1 else [part]
            jobs += [(source, share, file) for share, file in zip(shares, files)]
    # Processes share no threads with this one, so that none is forked while it holds a lock.
    with concurrent.futures.ProcessPoolExecutor(mp_context=multiprocessing.get_context("spawn")) as pool:
        for job in [pool.submit(write_orc, *job) for job in jobs]:
            job.result()
    for part, target in done:
        part.rename(target)
    return tables


def write_orc(source, groups, target):
    """Some row groups of a Parquet file as an ORC file."""
    import pyarrow
    import pyarrow.orc
    import pyarrow.parquet

    pyarrow.set_cpu_count(1)
    target.parent.mkdir(exist_ok=True)
    rows = pyarrow.parquet.ParquetFile(source)
    text = [pyarrow.types.is_string_view(field.type) for field in rows.schema_arrow]
    fields = zip(rows.schema_arrow, text)
    schema = pyarrow.schema([field.with_type(pyarrow.string()) if view else field for field, view in fields])
    with pyarrow.orc.ORCWriter(str(target), **ORC) as writer:
        for batch in rows.iter_batches(BATCH_ROWS, row_groups=groups, use_threads=False):
            writer.write(pyarrow.Table.from_batches([batch]).cast(schema))


def plan_of(answer):
    """The output of EXPLAIN ANALYZE."""
    rows, _ = answer
    return "\n".join(row["plan"] for row in rows)


def reasons_of(plan):
    """Why something was not on the GPU."""
    found = re.findall(r"\b(?:not_on_gpu|not_fused)=(.*?)(?:, metrics=|$)", plan, re.M)
    return sorted({*found, *re.findall(r"\bfallbacks \((.*?)\)=", plan)})


def same(what, rows):
    """Exits if one of the ways has other rows."""
    if any(other != next(iter(rows.values())) for other in rows.values()):
        sys.exit(f"{what}: answers differ: {json.dumps(rows)[:2000]}")


def number(value, digits=1):
    """A number, or a dash for one that is missing: a query that was not on the GPU has no kernel."""
    return "-" if not value else f"{value:.{digits}f}"


def ratio(slow, fast):
    return f"{slow / fast:.2f}" if slow and fast else "-"


def sizes(bench):
    found, rows = {}, []
    for forms in bench.tables.values():
        for name in forms["orc"]:
            found[name] = {form: megabytes(forms[form][name]) for form in ["orc", "vectile", "parquet"]}
            rows.append((name, [number(mb) for mb in found[name].values()]))
    sql.table("Tables, MB", ["ORC", "Vectile", "Parquet"], rows)
    bench.results["sizes_mb"] = found


def measure(bench, benchmark, text, form, mode):
    """The times of a query in one of the ways, its rows and plans."""

    def firsts(**more):
        return [bench.answers(benchmark, form, mode, text, **more)[0] for _ in range(PROCESSES)]

    gpu = mode != "off"
    runs, explain = RUNS if gpu else SLOW_RUNS, f"explain analyze {text}"
    # This process compiles the kernels for the next ones, too.
    later = bench.answers(benchmark, form, mode, *[text] * runs, *[explain] * (runs if gpu else 1))
    plans = [plan_of(answer) for answer in later[runs:]]
    answers = {"later": later[:runs], "first": firsts()}
    facts = {"later_ms": ssb.warm([ms for _, ms in answers["later"]])}
    facts["first_ms"] = median([ms for _, ms in answers["first"]])
    facts |= {"bytes_scanned": sum(sql.metrics(plans[0], "bytes_scanned")), "plan": plans[-1]}
    if gpu:
        answers["opened"] = firsts(opened=True)
        facts["opened_ms"] = median([ms for _, ms in answers["opened"]])
        facts["kernel_ms"] = median([sum(sql.metrics(plan, "kernel_time")) for plan in plans[2:]])
        facts["opened_plan"] = plan_of(bench.answers(benchmark, form, mode, explain, opened=True)[0])
    facts["all_ms"] = {name: [ms for _, ms in each] for name, each in answers.items()}
    rows = [rows for each in answers.values() for rows, _ in each]
    same(f"{form}, vectile.gpu = {mode}", dict(enumerate(rows)))
    return facts | {"rows": rows[0]}


def by_orc_rust(bench, query):
    """Milliseconds that orc-rust takes to read what a query needs, if that is asked for."""
    if not bench.options.orc_rust or query not in READS:
        return None
    benchmark, _ = query.split("/")
    files = bench.tables[benchmark]["orc"][LARGE[benchmark]]
    command = [bench.options.orc_rust, str(files), READS[query]]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    return float(out.split()[-1])


def queries(bench):
    found, lines, reasons = {}, [], []
    for benchmark, name in bench.queries:
        query, text = f"{benchmark}/{name}", sql.text(benchmark, name)
        ways = {way: measure(bench, benchmark, text, *how) for way, how in bench.ways.items()}
        same(query, {way: facts["rows"] for way, facts in ways.items()})
        found[query] = ways

        def of(way, what):
            return ways.get(way, {}).get(what)

        orc, cpu, vectile, parquet = WAYS
        line = [number(of(cpu, "bytes_scanned") / 1e6)]
        line += [number(of(orc, f"{what}_ms")) for what in ["first", "opened", "later"]]
        line += [number(of(orc, "kernel_ms"), 3), number(of(cpu, "first_ms")), number(of(cpu, "later_ms"))]
        line += [number(of(vectile, f"{what}_ms")) for what in ["first", "opened", "later"]]
        line += [number(of(vectile, "kernel_ms"), 3), number(of(parquet, "first_ms"))]
        line += [ratio(of(cpu, "first_ms"), of(orc, f"{what}_ms")) for what in ["first", "opened"]]
        line.append(ratio(of(orc, "later_ms"), of(vectile, "later_ms")))
        orc_rust = ways["orc-rust, reading"] = by_orc_rust(bench, query)
        line += [number(orc_rust), ratio(orc_rust, of(orc, "first_ms")), ratio(orc_rust, of(orc, "opened_ms"))]
        lines.append((query, line))
        for way in [orc, vectile]:
            for plan in ["opened_plan", "plan"]:
                reasons += [f"{query}, {way}: {reason}" for reason in reasons_of(of(way, plan) or "")]
    titles = ["MB of ORC", "ORC, GPU: first", "opened", "later", "kernel", "ORC, CPU: first", "later"]
    titles += ["Vectile, GPU: first", "opened", "later", "kernel", "Parquet, CPU: first"]
    titles += ["CPU first / GPU first", "CPU first / GPU opened", "ORC later / Vectile later"]
    titles += ["orc-rust, reading", "of that / GPU first", "of that / GPU opened"]
    sql.table("Queries, ms", titles, lines)
    print(*dict.fromkeys(reasons), sep="\n")
    bench.results["queries"] = found


def columns(bench):
    found, lines = {}, []
    modes = list(dict.fromkeys(mode for form, mode in bench.ways.values() if form == "orc"))
    for place, of_table in COLUMNS.items():
        benchmark, table = place.split("/")
        for column, what in of_table.items() if benchmark in bench.tables else ():
            what = what if what.startswith("sum(") else f"count(*) from {table} where {what}"
            text = f"select {what}" + ("" if " from " in what else f" from {table}")
            facts, rows = {}, {}
            for mode in modes:
                # The first process compiles kernels.
                plan = plan_of(bench.answers(benchmark, "orc", mode, f"explain analyze {text}", opened=True)[0])
                runs = [bench.answers(benchmark, "orc", mode, text, opened=True)[0] for _ in range(PROCESSES)]
                rows[mode] = runs[0][0]
                facts[mode] = {"ms": median([ms for _, ms in runs]), "all_ms": [ms for _, ms in runs], "plan": plan}
            same(text, rows)
            size = sum(sql.metrics(facts["off"]["plan"], "bytes_scanned"))
            found[column] = {"query": text, "bytes": size} | facts
            on, off = (facts.get(mode, {}).get("ms") for mode in ["on", "off"])
            line = [number(size / 1e6), number(on), number(off), ratio(off, on), ratio(size / 1e6, on)]
            lines.append((column, line))
    titles = ["MB", "GPU, ms", "CPU, ms", "CPU / GPU", "GPU, GB/s of ORC"]
    sql.table("First query of a column of ORC files", titles, lines)
    bench.results["columns"] = found


def convert(bench):
    if "tpch" not in bench.tables:
        return
    found, rows = {}, {}
    forms = bench.tables["tpch"]
    target = forms["vectile"]["lineitem"].with_name("converted.vectile")
    check = "select count(*), sum(l_orderkey), sum(l_extendedprice), min(l_comment), max(l_comment) from lineitem"
    for form in ["orc", "parquet"]:
        seconds = []
        for _ in range(CONVERSIONS):
            begun = time.perf_counter()
            source = str(forms[form]["lineitem"])
            sql.vectile(bench.options.vectile, "convert", source, str(target), "--gpu", "off", "--force", "-q")
            seconds.append(time.perf_counter() - begun)
        found[form] = {"seconds": min(seconds), "all_seconds": seconds, "mb": megabytes(target)}
        rows[form] = sql.answers(bench.options.vectile, {"lineitem": target}, ["set vectile.gpu = 'off'", check])[0][0]
        target.unlink()
    same("convert", rows)
    lines = [(form, [number(each["seconds"], 2), number(each["mb"])]) for form, each in found.items()]
    sql.table("Converting lineitem to Vectile", ["s", "MB written"], lines)
    bench.results["convert"] = found


PARTS = {"sizes": sizes, "queries": queries, "columns": columns, "convert": convert}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=20)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--queries", default=",".join(QUERIES))
    parser.add_argument("--orc-rust", metavar="PROGRAM")
    parser.add_argument("--json", metavar="FILE")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    import pyarrow.orc  # noqa: F401, to fail before anything is measured

    with tempfile.TemporaryDirectory() as cache:
        bench = Bench(options, cache)
        bench.read()
        print(f"Scale {options.scale:g}, {os.cpu_count()} cores, {bench.device or 'no GPU: only what the CPU does'}")
        for part in filter(None, options.parts.split(",")):
            PARTS[part](bench)
            if options.json:
                pathlib.Path(options.json).write_text(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    main()
