#!/usr/bin/env python3
"""Queries that were never asked before on a GPU whose memory has the columns: by the interpreter, and by kernels that
are generated and compiled first; then warm.

    benches/gpu/tiers.py [--vectile target/release/vectile] [--benchmark ssb|tpch|tpcds] [--scale 20] [--data DIR]
                         [--statements DIR] [--queries 1.1,2.1] [--mode on|require] [--runs 5] [--kinds interpreted,generated]
                         [--cache DIR] [--json FILE]

Tables are generated in DIR if they are not there yet. Queries are those of `sql-tests`, or the files `*.sql` of
--statements, which TPC-DS needs. One process, without kernels on disk, asks every query once to
load columns, and then, for each kind of kernels, once as if it was new (no plan, no key table, no kernel of an earlier
query) and RUNS times warm. `new` is milliseconds from the statement's text to its last row, `warm` the median of the
others, `kernel` the time of kernels by the device's clock, `refused` what the interpreter left to generated kernels or
to the CPU. `cpu` is its first run in a process. With --cache, kernels of earlier runs are there. Exits with 1 if
answers differ from those of the CPU.
"""

import argparse
import csv
import hashlib
import io
import json
import os
import pathlib
import re
import sys
import tempfile
from math import exp, log
from statistics import median

import sql

KINDS = ["interpreted", "generated"]


def asked(options, files, kind, folder):
    """For each query: milliseconds when new, warm, of kernels; a digest of its answer; what was not on the GPU."""
    texts = options.texts
    mark = "select 'query {}' as mark;"
    script = "set vectile.keep_plans = false; set vectile.gpu = 'off';" if kind == "off" else (
        f"set vectile.keep_plans = false; set vectile.gpu = '{options.mode}'; set vectile.gpu.kernels = 'interpreted';")
    counts = script.count(";")
    loading = [f"{text};" for text in texts.values()] if kind != "off" else []
    script += "".join(loading)
    if kind == "generated":
        script += "set vectile.gpu.kernels = 'generated';"
        loading.append("")
    runs = 1 if kind == "off" else 1 + options.runs
    for name, text in texts.items():
        script += mark.format(name) + f"{text};" * runs
        script += f"explain analyze {text};" if kind != "off" else ""
    environment = os.environ | {"VECTILE_CACHE": str(folder)}
    flags = ["--no-key-table-cache"]
    out, log_ = sql.vectile(options.vectile, *sql.command(files, script, flags=flags), env=environment)
    times = sql.times(log_)[counts + len(loading) :]
    parts = re.split(r"^mark\nquery [^\n]+\n", out, flags=re.M)[1:]
    each, results = 1 + runs + (kind != "off"), {}
    for at, (name, part) in enumerate(zip(texts, parts)):
        own = [whole for whole, _ in times[at * each + 1 : at * each + 1 + runs]]
        answers, *plans = part.split("plan_type,plan")
        lines = answers.splitlines()
        one = lines[: len(lines) // runs]
        same = lines == one * runs
        kernel = sum(sum(sql.metrics(node, "kernel_time")) for node in plans)
        reasons = re.findall(r"(?:not_on_gpu|fallbacks\{[^}]*reason)=([^\n]*?)(?:, metrics|\}=|$)", "".join(plans), re.M)
        results[name] = {
            "new": own[0], "warm": median(own[1:]) if own[1:] else None, "kernel": kernel,
            "digest": hashlib.md5("\n".join(one).encode()).hexdigest() if same else "differs", "refused": reasons,
        }
    return results


def main():
    csv.field_size_limit(1 << 30)
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--benchmark", default="ssb", choices=["ssb", "tpch", "tpcds"])
    parser.add_argument("--scale", type=float, default=20)
    parser.add_argument("--data")
    parser.add_argument("--statements", metavar="DIR")
    parser.add_argument("--queries")
    parser.add_argument("--mode", default="on", choices=["on", "require"])
    parser.add_argument("--runs", type=int, default=5)
    parser.add_argument("--cache", help="a folder with kernels of earlier runs")
    parser.add_argument("--kinds", default=",".join(KINDS))
    parser.add_argument("--json")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    options.texts = sql.texts(options)
    data = pathlib.Path(options.data or f"target/{options.benchmark}-{options.scale:g}")
    files = sql.generate(options.vectile, options.benchmark, options.scale, data)
    sql.read(files)
    results = {}
    for kind in ["off", *KINDS]:
        with tempfile.TemporaryDirectory() as folder:
            if kind in ["off", *options.kinds.split(",")]:
                results[kind] = asked(options, files, kind, options.cache or folder)
            else:
                # in its place
                results[kind] = {name: {**facts, "kernel": 0} for name, facts in results[KINDS[0]].items()}
    print(f"{options.benchmark}, scale {options.scale:g}, {os.cpu_count()} cores, mode {options.mode}; milliseconds\n")
    print(f"{'query':<6}{'cpu':>9}" + "".join(f"{title:>12}" for title in ["interp new", "warm", "kernel", "gen new", "warm", "kernel", "ratio"]))
    ratios, differ = [], []
    for name in options.texts:
        cpu, (one, other) = results["off"][name], (results[kind][name] for kind in KINDS)
        ratio = one["kernel"] / other["kernel"] if one["kernel"] and other["kernel"] else None
        if ratio:
            ratios.append(ratio)
        if not cpu["digest"] == one["digest"] == other["digest"]:
            differ.append(name)
        shown = [cpu["new"], one["new"], one["warm"], one["kernel"], other["new"], other["warm"], other["kernel"]]
        line = f"{name:<6}{shown[0]:>9.1f}" + "".join(f"{value:>12.3f}" for value in shown[1:])
        print(line + (f"{ratio:>12.2f}" if ratio else f"{'-':>12}") + ("  differs" if name in differ else ""))
        for reason in dict.fromkeys(one["refused"]):
            print(f"       {reason[:150]}")
    total = lambda kind, of: sum(results[kind][name][of] or 0 for name in options.texts)
    print(f"\nsums: cpu {total('off', 'new'):.0f}; " + "; ".join(
        f"{kind}: new {total(kind, 'new'):.0f}, warm {total(kind, 'warm'):.0f}, kernels {total(kind, 'kernel'):.2f}" for kind in KINDS))
    if ratios:
        print(f"kernels, interpreted beside generated: geometric mean {exp(sum(map(log, ratios)) / len(ratios)):.2f}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(results, indent=1))
    if differ:
        sys.exit(f"answers differ: {', '.join(differ)}")


if __name__ == "__main__":
    main()
