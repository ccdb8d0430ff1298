#!/usr/bin/env python3
"""The 22 queries of TPC-H on the CPU and with the GPU, which must agree: whole queries, kernels beside their
floor, and why what was not fused was not.

    benches/gpu/tpch.py [--vectile target/release/vectile] [--scale 10] [--data DIR] [--queries 1,6]
                        [--mode auto|on|require] [--runs 4] [--set SETTING=VALUE] [--json FILE]

Tables are generated in DIR if they are not there yet. Every query runs so many times in one process in each of
the modes `off` and `auto` (or another), of which the median of all but the first counts; in the latter then once with
EXPLAIN ANALYZE VERBOSE, which prints kernel times, bytes and reasons. Another process runs it without cached key
tables: `fresh` is the better of two runs with columns on the device. Bytes are those of columns that aggregates and
scans on the GPU read, the floor is the time in which the device reads that many. Aggregates, the joins fused with them, and scans are those that the plan has on the GPU; `back` counts what was left to the CPU after all, `text`
the reasons that have to do with text, which have a star below the table. A scan that is not on the GPU, but joined
with an aggregate that is, is marked as joined. With `require`, a query that is refused has the reason in its place.
Exits with 1 if answers differ, byte by byte.
"""

import argparse
import csv
import io
import json
import math
import os
import pathlib
import re
import sys
from statistics import median_high as median

import sql

TABLES = {"l": "lineitem", "o": "orders", "c": "customer", "p": "part", "ps": "partsupp", "s": "supplier"}
TABLES |= {"n": "nation", "r": "region"}
METRICS = ["kernel_time", "bytes_cached", "bytes_sent", "gpu_rows", "launches", "copy_time", "compile_time"]
METRICS += ["build_time", "build_rows", "lookups_cached", "lookups_built_on_gpu", "fallbacks"]
FUSED = ("FusedAggregateExec", "FusedJoinExec")
PLANS = ["Plan with Metrics", "Plan with Full Metrics"]
# what reasons say of text, or which columns of text they name
TEXT = r"\b(text|strings|dictionary|Utf8\w*|[a-z]+_(name|address|phone|comment|type|brand|container|mfgr))\b"


def run(options, files, number, mode):
    """Answers and milliseconds of a query's runs, and but with `off` the two plans of EXPLAIN ANALYZE VERBOSE:
    with metrics added up over partitions, and with those of each, which have reasons."""
    query = sql.text("tpch", number)
    settings = [f"set {name} = '{value}'" for name, _, value in (given.partition("=") for given in options.set)]
    settings = [f"set vectile.gpu = '{mode}'", *settings]
    explain = [f"explain analyze verbose {query}"] if mode != "off" else []
    script = "; ".join([*settings, *[query] * options.runs, *explain])
    out, log = sql.vectile(options.vectile, *sql.command(files, script))
    answers, _, plans = out.partition("plan_type,plan\n")
    rows = dict(csv.reader(io.StringIO(plans)))
    plans = [rows[kind] for kind in PLANS] if plans else []
    times = [whole for whole, _ in sql.times(log)[len(settings) :]]
    fresh = []
    if mode != "off":
        # until the device has the columns
        count = options.runs + 2
        script = "; ".join([*settings, *[query] * count])
        again, log = sql.vectile(options.vectile, *sql.command(files, script, flags=["--no-key-table-cache"]))
        fresh = [whole for whole, _ in sql.times(log)[len(settings) + options.runs :]]
        # the same answer, so many times
        answers = answers if again == answers[: len(answers) // options.runs] * count else "differ"
    return {"answers": answers, "times": times[: options.runs], "fresh": fresh, "plans": plans}


def nodes(plan):
    """The plan's nodes, each with whether it is below an aggregate or a join on the GPU."""
    below = None
    for node in re.split(r"\n(?= *\w+Exec\b)", plan.rstrip()):
        depth = len(node) - len(node.lstrip())
        if below is not None and depth <= below:
            below = None
        yield node.strip(), below is not None
        if below is None and node.lstrip().startswith(FUSED):
            below = depth


def metric(node, name):
    """The metric of a node, in milliseconds or ones; 0 if it has none."""
    found = sql.metrics(node[node.rfind(", metrics=[") :], name)
    return found[0] if found else 0


def table_of(node):
    """The table that a scan, or an aggregate on the GPU, is over."""
    file = re.search(r"file_groups=\{.*?([^/\[\]:,]+)\.vectile\b", node)
    column = re.search(r", columns=\[([a-z]+)_", node)
    return file[1] if file else TABLES.get(column[1], "?") if column else "?"


def joins_of(node):
    found = re.search(r", joins=\[(.*?)\], (?:filter|columns)=", node)
    if not found:
        return []
    # those of the stages that make lookups are within brackets
    joins, depth = [""], 0
    for letter in found[1]:
        depth += (letter in "([") - (letter in ")]")
        if letter == "," and depth == 0:
            joins.append("")
        else:
            joins[-1] += letter
    return [join.strip() for join in joins]


def on_gpu(plan):
    """The aggregates and the scans that are on the GPU."""
    aggregates, scans = [], []
    for node, _ in nodes(plan):
        facts = {"table": table_of(node), "metrics": {name: metric(node, name) for name in METRICS}}
        if node.startswith(FUSED):
            aggregates.append(facts | {"joins": joins_of(node)})
        elif node.startswith("DataSourceExec") and re.search(r", gpu=filter\b", node):
            scans.append(facts)
    return aggregates, scans


def reasons_of(plan):
    """Why something is not on the GPU, or not in the kernel of a scan: the tables of each reason. Numbers of rows are left out, so that small
    tables have the same reason."""
    reasons = {}
    for node, joined in nodes(plan):
        table = table_of(node)
        own = re.search(r", (?:not_on_gpu|not_fused)=(.*?)(?:, metrics=\[.*\])?$", node, re.S)
        why = [(own[1], f"{table} (joined)" if joined else table)] if own else []
        fell_back = re.findall(r"\bfallbacks\{partition=\d+, reason=(.*?)\}=\d+(?=, \w+\{|\]$)", node, re.S)
        why += [(f"left to the CPU at run time: {reason}", table) for reason in fell_back]
        for reason, where in why:
            reason = re.sub(r"\b\d+ (rows are fewer)", r"\1", " ".join(reason.split()))
            if where not in reasons.setdefault(reason, []):
                reasons[reason].append(where)
    return reasons


def device(program):
    """Name and bandwidth of the device, as `vectile device` measures it, or None."""
    out, _ = sql.vectile(program, "device")
    name = re.search(r"^ *\d+  (.+?)  ", out, re.M)
    rate = re.search(r"([0-9.]+) ([TG])B/s", out)
    reads = float(rate[1]) * {"T": 1e12, "G": 1e9}[rate[2]] if rate else None
    return {"device": name[1] if name else None, "reads_bytes_per_s": reads}


def facts_of(number, off, auto, reads):
    line = {"query": number, "off_ms": median(off["times"][1:]), "auto_ms": median(auto["times"][1:])}
    line["ratio"] = line["off_ms"] / line["auto_ms"]
    line |= {"off_all_ms": off["times"], "auto_all_ms": auto["times"], "fresh_ms": min(auto["fresh"])}
    line["agrees"] = off["answers"] == auto["answers"]
    aggregates, scans = on_gpu(auto["plans"][0])
    metrics = [node["metrics"] for node in aggregates + scans]
    line["kernel_ms"] = sum(each["kernel_time"] for each in metrics)
    line["bytes"] = sum(each["bytes_cached"] + each["bytes_sent"] for each in metrics)
    line["floor_ms"] = line["bytes"] / reads * 1e3 if reads else None
    line["fallbacks"] = int(sum(each["fallbacks"] for each in metrics))
    line |= {"aggregates": aggregates, "scans": scans, "reasons": reasons_of(auto["plans"][1])}
    line["text"] = sum(len(tables) for reason, tables in line["reasons"].items() if re.search(TEXT, reason))
    return line


def text_of(line):
    kernel, floor = line["kernel_ms"], line["floor_ms"]
    text = f"{line['query']:>5}{line['off_all_ms'][0]:>9.1f}{line['off_ms']:>9.1f}{line['auto_all_ms'][0]:>9.1f}"
    text += f"{line['auto_ms']:>9.1f}{line['fresh_ms']:>9.1f}{line['ratio']:>8.2f}"
    text += f"{kernel:>9.3f}" if kernel else f"{'-':>9}"
    text += f"{line['bytes'] / 1e6:>8.1f}" if line["bytes"] else f"{'-':>8}"
    text += f"{floor:>8.3f}" if floor else f"{'-':>8}"
    text += f"{kernel / floor:>8.2f}" if kernel and floor else f"{'-':>8}"
    joins = sum(len(node["joins"]) for node in line["aggregates"])
    counts = [len(line["aggregates"]), joins, len(line["scans"]), line["fallbacks"], line["text"]]
    return text + "".join(f"{count or '-':>{width}}" for count, width in zip(counts, [6, 7, 7, 6, 6]))


def main():
    csv.field_size_limit(1 << 30)
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=float, default=10)
    parser.add_argument("--data")
    parser.add_argument("--queries", default=",".join(sql.QUERIES["tpch"]))
    parser.add_argument("--mode", default="auto", choices=["auto", "on", "require"])
    parser.add_argument("--runs", type=int, default=4)
    parser.add_argument("--set", action="append", default=[])
    parser.add_argument("--json")
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    queries = [int(number) for number in options.queries.split(",")]
    data = pathlib.Path(options.data or f"target/tpch-{options.scale:g}")
    files = sql.generate(options.vectile, "tpch", options.scale, data)

    facts = {"scale": options.scale, "cores": os.cpu_count()} | device(options.vectile)
    reads = facts["reads_bytes_per_s"]
    facts |= {"version": sql.vectile(options.vectile, "--version")[0].strip()}
    facts |= {"runs": options.runs, "mode": options.mode, "queries": []}
    head = f"TPC-H, scale {options.scale:g}, {facts['cores']} cores, {facts['device'] or 'no GPU'}"
    head += f" ({reads / 1e12:.2f} TB/s)" if reads else ""
    print(f"{head}, {facts['version']}, {options.runs} runs, {options.mode} {' '.join(options.set)}\n")

    print("milliseconds; medians but for first runs\n")
    titles = "query  cpu 1st      cpu  gpu 1st      gpu    fresh   ratio   kernel      MB   floor  /floor"
    print(f"{titles}  aggr  joins  scans  back  text")
    different = []
    for number in queries:
        off = run(options, files, number, "off")
        try:
            auto = run(options, files, number, options.mode)
        except SystemExit as failed:
            if options.mode != "require":
                raise
            print(f"{number:>5}  refused: {str(failed).strip().splitlines()[-1]}", flush=True)
            continue
        line = facts_of(number, off, auto, reads)
        if not line["agrees"]:
            different.append(number)
        print(text_of(line) + ("" if line["agrees"] else "  answers differ"), flush=True)
        facts["queries"].append(line)
    lines = facts["queries"]
    if lines:
        cpu, gpu, fresh = (sum(line[mode] for line in lines) for mode in ["off_ms", "auto_ms", "fresh_ms"])
        mean = math.exp(sum(math.log(line["ratio"]) for line in lines) / len(lines))
        print(f"  all{cpu:>18.1f}{gpu:>18.1f}{fresh:>9.1f}{cpu / gpu:>8.2f}   (geometric mean of ratios: {mean:.2f})\n")
    for line in lines:
        for reason, tables in line["reasons"].items():
            print(f"{line['query']:>5}{'*' if re.search(TEXT, reason) else ' '} {', '.join(tables)}: {reason}")
    if options.json:
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))
    if different:
        sys.exit(f"answers differ: queries {', '.join(map(str, different))}")


if __name__ == "__main__":
    main()
