#!/usr/bin/env python3
"""Kernel times beside the reference figures of the card: run it before and after a change to kernels.

    benches/gpu/drift.py [--vectile target/release/vectile] [--kernels target/benches/release/kernels] [--data DIR]
                         [--parts ssb,ssb-interpreted,ssb-plain,tpch,tpch-interpreted,encodings] [--update]

Exits with 1 if a kernel takes a tenth and 5 µs longer than in `reference/CARD.json`, if an SSB query takes as much longer
over chosen encodings than over plain columns, or if there are no figures. With --update it writes the figures
instead. A part has a figure for each query or case:

ssb, ssb-interpreted    Star Schema Benchmark, scale 20: generated kernels, and the interpreter
ssb-plain               generated kernels over plain columns of lineorder
tpch, tpch-interpreted  TPC-H, scale 10
encodings               single encodings: the parts ENCODINGS of --kernels, which `cargo build --release` here makes

The time of a query is that of all its kernels by the device's clock, lookups included, in the median of RUNS runs
with EXPLAIN ANALYZE. A query has no figure if something of it ran on the CPU.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile
from statistics import median

import sql

RUNS = 7
SLOWER, SLOWER_MS = 1.1, 0.005
SCALES = {"ssb": 20, "tpch": 10}
ENCODINGS = ["ffor", "alp", "others", "blocks"]
PARTS = ["ssb", "ssb-interpreted", "ssb-plain", "tpch", "tpch-interpreted", "encodings"]


def card(program):
    """The name of the device, as a file name."""
    log, _ = sql.vectile(program, "device")
    name = re.search(r"NVIDIA(?: \S+)+", log)
    if not name:
        sys.exit(f"no GPU: {log}")
    return re.sub(r"[^a-z0-9]+", "-", name[0].strip().lower())


def queries(program, benchmark, files, kernels):
    """Milliseconds of the kernels of each query."""
    texts = {name: sql.text(benchmark, name) for name in sql.QUERIES[benchmark]}
    script = f"set vectile.gpu = 'on'; set vectile.gpu.kernels = '{kernels}';"
    for name, text in texts.items():
        script += f"{text}; select 'query {name}' as mark;" + f"explain analyze {text};" * RUNS
    out, _ = sql.vectile(program, *sql.command(files, script, flags=["--no-key-table-cache"]))
    times = {}
    for name, part in zip(texts, re.split(r"^mark\nquery [^\n]+\n", out, flags=re.M)[1:]):
        plans = part.split("plan_type,plan")[1:]
        if any(re.search(r"not_on_gpu=(?!there is no filter)|fallbacks=[1-9]", plan) for plan in plans):
            print(f"{benchmark} {name}, {kernels}: not all on the GPU")
            continue
        times[name] = median(sum(sql.metrics(plan, "kernel_time")) for plan in plans)
    return times


def encodings(program):
    """Milliseconds of each case of `kernels`."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "cases"
        subprocess.run([program, *ENCODINGS, "--json", file], check=True, stdout=subprocess.DEVNULL)
        cases = [json.loads(line) for line in file.read_text().splitlines()]
    name = "{part} {kind} {case}, {encoding}".format_map
    return {name(case): case["ms"] for case in cases if "case" in case}


def measured(options, parts):
    found, program = {}, options.vectile
    for part in parts:
        if part == "encodings":
            found[part] = encodings(options.kernels)
            continue
        benchmark, _, kind = part.partition("-")
        scale = SCALES[benchmark]
        files = sql.generate(program, benchmark, scale, pathlib.Path(options.data) / f"{benchmark}-{scale}")
        files = sql.with_plain_columns(program, files) if kind == "plain" else files
        found[part] = queries(program, benchmark, files, "interpreted" if kind == "interpreted" else "generated")
    return found


def is_slower(now, before):
    return now > before * SLOWER and now > before + SLOWER_MS


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--kernels", default="target/benches/release/kernels")
    parser.add_argument("--data", default="target", metavar="DIR")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--update", action="store_true")
    options = parser.parse_args()
    parts = options.parts.split(",")
    if not set(parts) <= set(PARTS):
        sys.exit(f"parts are {', '.join(PARTS)}")
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    file = pathlib.Path(__file__).parent / "reference" / f"{card(options.vectile)}.json"
    known = json.loads(file.read_text()) if file.exists() else {}
    found, slower = measured(options, parts), 0
    for part, times in found.items():
        before = known.get(part, {})
        print(f"\n{part}: {sum(times.values()):.3f} ms, {sum(before.get(name, 0) for name in times):.3f} before")
        for name, ms in times.items():
            reference = before.get(name)
            is_slow = reference is not None and is_slower(ms, reference)
            slower += is_slow
            shown = f"{reference:10.3f}{ms / reference:7.2f}" if reference else f"{'-':>10}"
            print(f"  {name:<40}{ms:10.3f}{shown}{'  slower' * is_slow}")
        for name in before.keys() - times.keys() if not options.update else []:
            slower += 1
            print(f"  {name:<40}{'gone':>10}{before[name]:10.3f}")
    if {"ssb", "ssb-plain"} <= found.keys():
        pairs = [(name, ms, found["ssb-plain"].get(name)) for name, ms in found["ssb"].items()]
        behind = [name for name, ms, plain in pairs if plain and is_slower(ms, plain)]
        slower += len(behind)
        print(f"\nSSB, slower than over plain columns: {', '.join(behind) or 'none'}")
    if options.update:
        file.parent.mkdir(exist_ok=True)
        rounded = {part: {name: round(ms, 4) for name, ms in times.items()} for part, times in found.items()}
        file.write_text(json.dumps(known | rounded, indent=1) + "\n")
        return
    missing = [part for part in parts if part not in known]
    if missing:
        sys.exit(f"no figures of {', '.join(missing)} in {file}: --update writes them")
    sys.exit(f"{slower} are slower" if slower else 0)


if __name__ == "__main__":
    main()
