#!/usr/bin/env python3
"""The Star Schema Benchmark through SQL on a GPU, beside plain columns, the floor and the CPU.

    benches/gpu/ssb.py [--vectile target/release/vectile] [--scale 20] [--data DIR] [--plain] [--json FILE]

Tables are generated in DIR if they are not there yet; with --plain, lineorder is written a second time with
plain columns. Each query runs RUNS times in one process with EXPLAIN ANALYZE, whose kernel time is by the
device's clock, and RUNS times as a user would run it. Answers of all ways must be the same.
"""

import argparse, hashlib, json, pathlib, re, subprocess, sys

RUNS = 9
FOLDER = pathlib.Path(__file__).resolve().parents[2] / "sql-tests" / "ssb"
QUERIES = ["1.1", "1.2", "1.3", "2.1", "2.2", "2.3", "3.1", "3.2", "3.3", "3.4", "4.1", "4.2", "4.3"]
TABLES = ["lineorder", "date", "customer", "supplier", "part"]
COLUMNS = ["lo_custkey", "lo_partkey", "lo_suppkey", "lo_orderdate", "lo_quantity", "lo_extendedprice"]
COLUMNS += ["lo_discount", "lo_revenue", "lo_supplycost"]
UNITS = {"ns": 1e-6, "µs": 1e-3, "ms": 1.0, "s": 1e3}
AMOUNTS = {"": 1, "K": 1e3, "M": 1e6, "B": 1e9}


def median(values):
    return sorted(values)[len(values) // 2]


def run(vectile, tables, settings, statements, timing=False):
    script = "".join(f"set {name} = '{value}'; " for name, value in settings.items())
    command = [vectile, "sql", "--format", "csv"]
    for name, file in tables.items():
        command += ["-t", f"{name}={file}"]
    if timing:
        command.append("--timing")
    done = subprocess.run(command + [script + "; ".join(statements)], capture_output=True, text=True)
    if done.returncode != 0:
        sys.exit(f"{statements[0][:80]}: {done.stderr}")
    times = [float(t) for t in re.findall(r"^statement \d+: ([0-9.]+) ms", done.stderr, re.M)]
    return done.stdout, times[len(settings):]


def metric(plan, name):
    """The metric of the GPU's node, in milliseconds or ones; None without such a node."""
    node = re.search(r"GpuAggregateExec.*", plan)
    found = node and re.search(rf"\b{name}=([0-9.]+) ?([a-zA-Zµ]*)", node.group())
    if not found:
        return None
    return float(found[1]) * (UNITS.get(found[2]) or AMOUNTS.get(found[2]) or 1)


def bandwidth(vectile):
    text = subprocess.run([vectile, "device"], capture_output=True, text=True).stdout
    found = re.search(r"([0-9.]+) (T|G)B/s", text)
    return float(found[1]) * {"T": 1e12, "G": 1e9}[found[2]], text


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data")
    parser.add_argument("--plain", action="store_true")
    parser.add_argument("--cpu", action="store_true", help="the CPU, too")
    parser.add_argument("--json")
    options = parser.parse_args()
    vectile = str(pathlib.Path(options.vectile).resolve())
    data = pathlib.Path(options.data or f"target/ssb-{options.scale}")
    if not (data / "lineorder.vectile").exists():
        subprocess.run([vectile, "gen", "ssb", "--scale", str(options.scale), "--out", str(data), "-q"], check=True)
    tables = {name: data / f"{name}.vectile" for name in TABLES}
    plain = dict(tables, lineorder=data / "lineorder-plain.vectile")
    if options.plain and not plain["lineorder"].exists():
        pins = [word for column in COLUMNS for word in ("--encoding", f"{column}=plain")]
        subprocess.run([vectile, "convert", str(tables["lineorder"]), str(plain["lineorder"]), "-q", *pins], check=True)
    reads, device = bandwidth(vectile)
    print(f"SSB, scale {options.scale}; {device.strip()}\n")
    ways = [("encoded", tables, "require")] + ([("plain", plain, "require")] if options.plain else [])
    ways += [("cpu", tables, "off")] if options.cpu else []
    head = f"{'query':<6}{'MB':>8}{'floor':>8}{'kernel':>8}{'/floor':>7}{'whole':>9}"
    head += f"{'plain MB':>10}{'kernel':>8}{'ratio':>7}" if options.plain else ""
    print(head + (f"{'cpu':>10}{'ratio':>8}" if options.cpu else "") + "   (milliseconds)")
    lines, sums = [], {}
    for name in QUERIES:
        query = (FOLDER / f"q{name}.sql").read_text().strip().rstrip(";")
        line, answers = {"query": name}, set()
        for way, files, mode in ways:
            settings = {"vectile.gpu": mode}
            answer, times = run(vectile, files, settings, [query] * RUNS, timing=True)
            answers.add(hashlib.md5(answer.encode()).hexdigest())
            line[way] = {"whole_ms": median(times[2:]), "first_ms": times[0]}
            if mode == "off":
                continue
            plans, _ = run(vectile, files, settings, [f"explain analyze {query}"] * RUNS)
            plans = [p for p in plans.split("Plan with Metrics") if "GpuAggregateExec" in p][2:]
            line[way]["kernel_ms"] = median([metric(p, "kernel_time") for p in plans])
            line[way]["bytes"] = metric(plans[-1], "bytes_cached")
            for part in ["build_time", "compile_time", "open_time"]:
                line[way][part] = median([metric(p, part) or 0 for p in plans])
        if len(answers) != 1:
            sys.exit(f"{name}: answers differ")
        own = line["encoded"]
        own["floor_ms"] = own["bytes"] / reads * 1e3
        text = f"{name:<6}{own['bytes'] / 1e6:>8.0f}{own['floor_ms']:>8.3f}{own['kernel_ms']:>8.3f}"
        text += f"{own['kernel_ms'] / own['floor_ms']:>7.2f}{own['whole_ms']:>9.2f}"
        if options.plain:
            other = line["plain"]
            text += f"{other['bytes'] / 1e6:>10.0f}{other['kernel_ms']:>8.3f}{other['kernel_ms'] / own['kernel_ms']:>7.2f}"
        if options.cpu:
            text += f"{line['cpu']['whole_ms']:>10.1f}{line['cpu']['whole_ms'] / own['whole_ms']:>8.1f}"
        print(text, flush=True)
        lines.append(line)
        for key, value in [("kernel", own["kernel_ms"]), ("whole", own["whole_ms"]), ("first", own["first_ms"])]:
            sums[key] = sums.get(key, 0) + value
    print(f"all 13: kernels {sums['kernel']:.2f} ms, whole {sums['whole']:.1f} ms, first runs {sums['first']:.0f} ms")
    if options.json:
        facts = {"scale": options.scale, "reads_bytes_per_s": reads, "queries": lines}
        pathlib.Path(options.json).write_text(json.dumps(facts, indent=1))


main()
