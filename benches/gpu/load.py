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
import statistics
import tempfile

import sql

SSB = sql.QUERIES["ssb"]
OPEN = {
    "ssb": "select count(*) from date where d_year = 1993",
    "tpch": "select count(*) from region where r_regionkey > 1",
}
WARM_PASSES = 5


def statements(vectile, benchmark, files, queries, cache):
    """Milliseconds of each statement, and what they print; the device is opened before."""
    script = ";".join(["set vectile.gpu = 'require'", OPEN[benchmark], *queries])
    environment = os.environ | {"VECTILE_CACHE": cache}
    out, log = sql.vectile(vectile, *sql.command(files, script), env=environment)
    return [whole for whole, _ in sql.times(log)[2:]], out


def tables(options, benchmark, scale):
    files = sql.generate(options.vectile, benchmark, scale, pathlib.Path(options.data) / f"{benchmark}-{scale}")
    sql.read(files)
    return files


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
    with tempfile.TemporaryDirectory() as cache:
        facts = measure(options, cache)
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))


def measure(options, cache):
    """Prints what loading takes, and returns it."""
    facts = {}
    cases = [("tpch", options.tpch, "6")] + [("ssb", options.ssb, query) for query in SSB]
    print(f"{'query':<16}{'MB':>8}{'ms':>24}{'GB/s':>8}{'warm ms':>9}")
    for benchmark, scale, query in cases:
        if scale == 0:
            continue
        files = tables(options, benchmark, scale)
        text = sql.text(benchmark, query)
        # compiles its kernels, too
        _, plan = statements(options.vectile, benchmark, files, ["explain analyze " + text], cache)
        bytes_read = sum(sql.metrics(plan, "bytes_scanned"))
        times = [statements(options.vectile, benchmark, files, [text] * 3, cache)[0] for _ in range(options.runs)]
        cold = sorted(each[0] for each in times)
        warm = statistics.median(each[2] for each in times)
        middle = statistics.median(cold)
        name = f"{benchmark} {query}, {scale}"
        facts[name] = {"bytes": bytes_read, "cold": cold, "warm": warm}
        spread = f"{cold[0]:.1f} / {middle:.1f} / {cold[-1]:.1f}"
        print(f"{name:<16}{bytes_read / 1e6:>8.0f}{spread:>24}{bytes_read / middle / 1e6:>8.1f}{warm:>9.1f}", flush=True)
    if options.ssb:
        files = tables(options, "ssb", options.ssb)
        queries = [sql.text("ssb", query) for query in SSB]
        # kernels of queries that follow others are not always those of queries alone
        statements(options.vectile, "ssb", files, queries, cache)
        passes = []
        for _ in range(options.runs):
            times, _ = statements(options.vectile, "ssb", files, queries * (1 + WARM_PASSES), cache)
            passes.append([sum(times[at : at + len(SSB)]) for at in range(0, len(times), len(SSB))])
        cold = sorted(each[0] for each in passes)
        warm = sorted(statistics.median(each[1:]) for each in passes)
        facts["all"] = {"cold": cold, "warm": warm}
        print(f"\nall of SSB in one process: {statistics.median(cold):.0f} ms with nothing on the device", end=", ")
        print(f"{statistics.median(warm):.0f} ms warm ({warm[0]:.0f} to {warm[-1]:.0f})")
    return facts


if __name__ == "__main__":
    main()
