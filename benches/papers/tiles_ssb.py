#!/usr/bin/env python3
"""The Star Schema Benchmark with the columns of `lineorder` in each of several encodings: sizes, kernels that add up a
column, the 13 queries, and queries whose columns cross the bus. Figures 9 to 12 of the paper that tiles.py follows.

    benches/papers/tiles_ssb.py [--vectile target/release/vectile] [--scale 20] [--data DIR] [--parts sizes,...]
                             [--encodings ffor,gpu_for,gpu_dfor,gpu_rfor,gpu_star] [--json FILE] [--export DIR]

Tables are generated in DIR if they are not there yet, and `lineorder` is written once more with all its integers in
each encoding, and in `plain`. `chosen` are the encodings that the writer chooses.

`sizes` has megabytes of columns in files (Figure 9). `columns` adds up each column on the device (10), `queries` runs
the 13 queries with columns there (11), and `coprocessor` one of each flight with columns that come from the host's
memory each time, because the device may keep DEVICE_BYTES only (12). Kernel times are by the device's clock, others
from the statement's text to its last row; medians of RUNS runs, without the first two. The answers of all encodings
must be the same.

`--export` writes the integers to DIR for `tiles.py --columns DIR columns`, and measures nothing. It needs the Python
package pyarrow.
"""

import argparse
import json
import math
import pathlib
import sys
import types
from statistics import median_high as median

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import sql  # noqa: E402
import ssb  # noqa: E402

RUNS = 9
DEVICE_BYTES, HOST_BYTES = 256_000_000, 16_000_000_000
FLIGHTS = ["1.1", "2.1", "3.1", "4.1"]
CHOSEN = "chosen"


class Bench:
    """Tables, with `lineorder` in each encoding, and the results."""

    def __init__(self, options):
        self.options = options
        self.data = pathlib.Path(options.data or f"target/ssb-{options.scale}")
        self.tables = sql.generate(options.vectile, "ssb", options.scale, self.data)
        self.results = {"scale": options.scale}
        columns = self.inspect(self.tables["lineorder"])["columns"]
        self.integers = [column["name"] for column in columns if column["type"] in ("Int32", "Int64")]
        self.files = {CHOSEN: self.tables["lineorder"]}

    def inspect(self, file):
        return json.loads(sql.vectile(self.options.vectile, "inspect", str(file), "--format", "json")[0])

    def convert(self):
        for encoding in dict.fromkeys(["plain", *self.options.encodings.split(",")]):
            file = self.files[encoding] = self.data / f"lineorder-all-{encoding}.vectile"
            if not file.exists():
                pins = [word for column in self.integers for word in ("--encoding", f"{column}={encoding}")]
                source = str(self.tables["lineorder"])
                sql.vectile(self.options.vectile, "convert", source, str(file), "-q", *pins)

    def with_encodings(self):
        """Tables for each encoding."""
        return {encoding: self.tables | {"lineorder": file} for encoding, file in self.files.items()}

    def run(self, files, script):
        out, log = sql.vectile(self.options.vectile, *sql.command(files, script))
        return out, sql.times(log)


def mean(values):
    return math.exp(sum(map(math.log, values)) / len(values))


def times_table(title, times):
    """Milliseconds by encoding, and geometric means of how many times as long as with plain columns they are."""
    rows = [(name, [of[name] for of in times.values()]) for name in times["plain"]]
    plain = times["plain"]
    means = [mean([ms / plain[name] for name, ms in of.items()]) for of in times.values()]
    sql.table(f"{title}, ms", list(times), [*rows, ("times plain, mean", [f"{value:.2f}" for value in means])])


def sizes(bench):
    sizes, means = {}, {}
    for encoding, file in bench.files.items():
        columns = {column["name"]: column for column in bench.inspect(file)["columns"]}
        sizes[encoding] = {name: columns[name]["encoded_bytes"] / 1e6 for name in bench.integers}
        means[encoding] = {name: columns[name]["encoding"] for name in bench.integers}
    rows = [(name, [of[name] for of in sizes.values()]) for name in bench.integers]
    rows.append(("all", [f"{sum(of.values()):.0f}" for of in sizes.values()]))
    sql.table("Columns in files, MB", list(sizes), rows)
    bench.results["sizes"] = {"mb": sizes, "encodings": means}


def columns(bench):
    times, answers = {}, {}
    for encoding, files in bench.with_encodings().items():
        script = "set vectile.gpu = 'require';"
        for name in bench.integers:
            query = f"select sum({name}) from lineorder"
            script += f"{query};" + f"explain analyze {query};" * RUNS
        out, _ = bench.run(files, script)
        # the answer of a column, and then its plans
        plans = [plan for plan in out.split("plan_type,plan")[1:]]
        kernels = [ssb.metric(plan, "kernel_time") for plan in plans]
        answers[encoding] = [line for line in out.splitlines() if line.lstrip("-").isdigit()]
        times[encoding] = {
            name: median(kernels[at * RUNS + 2 : (at + 1) * RUNS]) for at, name in enumerate(bench.integers)
        }
    same(answers)
    times_table("Kernels that add up a column", times)
    bench.results["columns"] = times


def same(answers):
    if any(answer != answers[CHOSEN] for answer in answers.values()):
        sys.exit(f"answers differ: {answers}")


def queries(bench):
    options = types.SimpleNamespace(vectile=bench.options.vectile)
    found, kernels, wholes = {}, {}, {}
    for encoding, files in bench.with_encodings().items():
        found[encoding] = ssb.run(options, files, "require", RUNS, True)
        kernels[encoding], wholes[encoding] = {}, {}
        for name, result in found[encoding].items():
            times = [ssb.metric(plan, "kernel_time") for plan in result["plans"] if "FusedAggregateExec" in plan]
            kernels[encoding][name] = median(times[2:])
            wholes[encoding][name] = ssb.warm(result["times"])
    same({encoding: [result["digest"] for result in results.values()] for encoding, results in found.items()})
    times_table("Kernels of queries", kernels)
    times_table("Whole queries", wholes)
    bench.results["queries"] = {"kernel_ms": kernels, "whole_ms": wholes}


def coprocessor(bench):
    times = {}
    for encoding, files in bench.with_encodings().items():
        script = f"set vectile.gpu = 'require'; set vectile.gpu.memory_limit = '{DEVICE_BYTES}';"
        script += f"set vectile.gpu.host_memory_limit = '{HOST_BYTES}';"
        script += "".join(f"{ssb.TEXT[name]};" * RUNS for name in FLIGHTS)
        _, log = bench.run(files, script)
        whole = [ms for ms, _ in log[3:]]
        times[encoding] = {name: median(whole[at * RUNS + 2 : (at + 1) * RUNS]) for at, name in enumerate(FLIGHTS)}
    times_table("Whole queries whose columns cross the bus", times)
    bench.results["coprocessor"] = times


def export(bench, folder):
    """Integers of 32 bits, which all columns of this benchmark have up to scale 71."""
    import numpy
    import pyarrow.ipc

    folder.mkdir(parents=True, exist_ok=True)
    for name in bench.integers:
        part = folder / f"{name}.arrow"
        sql.vectile(
            bench.options.vectile,
            *sql.command(bench.tables, f"copy (select {name} from lineorder) to '{part}' stored as arrow"),
        )
        with pyarrow.memory_map(str(part)) as file:
            numbers = pyarrow.ipc.open_file(file).read_all().column(0).to_numpy()
        if numbers.min() < 0 or numbers.max() >> 32:
            sys.exit(f"{name}: not of 32 bits")
        numbers.astype(numpy.uint32).tofile(folder / f"{name}.u32")
        part.unlink()


PARTS = {"sizes": sizes, "columns": columns, "queries": queries, "coprocessor": coprocessor}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--scale", type=int, default=20)
    parser.add_argument("--data", metavar="DIR")
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--encodings", default="ffor,gpu_for,gpu_dfor,gpu_rfor,gpu_star")
    parser.add_argument("--json", metavar="FILE")
    parser.add_argument("--export", metavar="DIR", type=pathlib.Path)
    options = parser.parse_args()
    options.vectile = str(pathlib.Path(options.vectile).resolve())
    bench = Bench(options)
    if options.export:
        return export(bench, options.export)
    bench.convert()
    sql.read({f"{at}": file for at, file in enumerate([*bench.files.values(), *bench.tables.values()])})
    device, _ = sql.vectile(options.vectile, "device")
    print(f"SSB, scale {options.scale}: `lineorder` with {len(bench.integers)} columns of integers\n{device.strip()}")
    for part in filter(None, options.parts.split(",")):
        PARTS[part](bench)
        if options.json:
            pathlib.Path(options.json).write_text(json.dumps(bench.results, indent=1))


if __name__ == "__main__":
    main()
