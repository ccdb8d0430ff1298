#!/usr/bin/env python3
"""How fast columns come to the device from the page cache, checksums compared.

    benches/gpu/load.py [--vectile target/release/vectile] [--ssb 20] [--tpch 30] [--data DIR] [--runs 3] [--json FILE]

Tables are generated under DIR if they are not there yet, and read once. Each query runs with `vectile.gpu = require`
in a process whose device is open and whose kernels are on disk, but with no column on the device. Milliseconds
are those from the statement's text to its last row: planning, reading footers and the kernel are in them. Bytes are
those of the columns in the file. Then all queries of SSB in one process: first with nothing on the device, then
warm. Medians of RUNS processes.
"""

import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parents[2] / "sql-tests"
SSB = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"]
TABLES = {
    "ssb": ["lineorder", "date", "customer", "supplier", "part"],
    "tpch": ["lineitem", "orders", "customer", "part", "partsupp", "supplier", "nation", "region"],
}
OPEN = {
    "ssb": "select count(*) from date where d_year = 1993",
    "tpch": "select count(*) from region where r_regionkey > 1",
}
WARM_PASSES = 5


def text(benchmark, query):
    return (ROOT / benchmark / f"q{query}.sql").read_text().strip().rstrip(";")


def statements(vectile, benchmark, data, queries, cache):
    """Milliseconds of each statement, and what they print; the device is opened before."""
    tables = [word for name in TABLES[benchmark] for word in ("-t", f"{name}={data / name}.vectile")]
    command = [vectile, "sql", "--timing", "--format", "csv", *tables, "-f", "-"]
    sql = "set vectile.gpu = 'require';" + OPEN[benchmark] + ";" + "".join(f"{query};" for query in queries)
    environment = os.environ | {"VECTILE_CACHE": str(cache)}
    done = subprocess.run(command, input=sql, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        sys.exit(done.stderr)
    times = [float(t) for t in re.findall(r"^statement \d+: ([0-9.]+) ms", done.stderr, re.M)]
    return times[2:], done.stdout


def generate(options, benchmark, scale):
    data = pathlib.Path(options.data) / f"{benchmark}-{scale}"
    files = [data / f"{name}.vectile" for name in TABLES[benchmark]]
    if not all(file.exists() for file in files):
        command = [options.vectile, "gen", benchmark, "--scale", str(scale), "--out", str(data), "-q"]
        subprocess.run(command, check=True)
    for file in files:
        with open(file, "rb") as opened:
            while opened.read(1 << 24):
                pass
    return data


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--ssb", type=int, default=20, help="scale of SSB; 0 for none")
    parser.add_argument("--tpch", type=int, default=30, help="scale of TPC-H Q6; 0 for none")
    parser.add_argument("--data", default="target")
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--json")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    cache, facts = tempfile.mkdtemp(), {}
    cases = [("tpch", options.tpch, "6")] + [("ssb", options.ssb, query) for query in SSB]
    print(f"{'query':<16}{'MB':>8}{'ms':>24}{'GB/s':>8}{'warm ms':>9}")
    for benchmark, scale, query in cases:
        if scale == 0:
            continue
        data = generate(options, benchmark, scale)
        sql = text(benchmark, query)
        # compiles its kernels, too
        _, plan = statements(options.vectile, benchmark, data, ["explain analyze " + sql], cache)
        bytes_read = sum(scaled(*found) for found in re.findall(r"bytes_scanned=([0-9.]+) ?([KMGB]?)", plan))
        times = [statements(options.vectile, benchmark, data, [sql] * 3, cache)[0] for _ in range(options.runs)]
        cold = sorted(each[0] for each in times)
        warm = statistics.median(each[2] for each in times)
        middle = statistics.median(cold)
        name = f"{benchmark} {query}, {scale}"
        facts[name] = {"bytes": bytes_read, "cold": cold, "warm": warm}
        spread = f"{cold[0]:.1f} / {middle:.1f} / {cold[-1]:.1f}"
        print(f"{name:<16}{bytes_read / 1e6:>8.0f}{spread:>24}{bytes_read / middle / 1e6:>8.1f}{warm:>9.1f}", flush=True)
    if options.ssb:
        data = generate(options, "ssb", options.ssb)
        queries = [text("ssb", query) for query in SSB]
        passes = []
        for _ in range(options.runs):
            times, _ = statements(options.vectile, "ssb", data, queries * (1 + WARM_PASSES), cache)
            passes.append([sum(times[at : at + len(SSB)]) for at in range(0, len(times), len(SSB))])
        cold = sorted(each[0] for each in passes)
        warm = sorted(statistics.median(each[1:]) for each in passes)
        facts["all"] = {"cold": cold, "warm": warm}
        print(f"\nall of SSB in one process: {statistics.median(cold):.0f} ms with nothing on the device", end=", ")
        print(f"{statistics.median(warm):.0f} ms warm ({warm[0]:.0f} to {warm[-1]:.0f})")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))


def scaled(number, unit):
    return float(number) * {"": 1, "K": 1e3, "M": 1e6, "G": 1e9, "B": 1e9}[unit]


if __name__ == "__main__":
    main()
