#!/usr/bin/env python3
"""The published tile-based encodings of integers, GPU-FOR, GPU-DFOR and GPU-RFOR, beside simpler schemes: compiles and
runs tiles.cu, prints its results as tables in Markdown, and draws them as SVG.

    benches/papers/tiles.py [--values 250e6] [--columns DIR] [--json FILE] [--images DIR] [--read FILE]...
                         [--nvcc nvcc] [--nvcomp DIR] [PART]...

PART is one of `blocks` (Figure 5 of the paper), `widths` (7), `sorted`, `normal`, `zipf` (8), `coprocessor` (12), and
`columns`: files NAME.u32 in DIR, integers of 32 bits (9 and 10); tiles_ssb.py writes those. Without one: all but the
last. `--read` takes results of earlier runs instead of measuring, and those of `kernels tiles --json FILE`, which has
the same data in Vectile's encodings. `--nvcomp` says where nvCOMP's `include` and `lib64` are.

A scheme has a way of decoding: a thread block a `tile` as published, a `warp` a vector as Vectile's kernels do, or
separate `passes` over memory. Times are of decompression to memory, and of adding up values that are decoded on the
way. The floor is the time to read the bytes at the device's bandwidth, and to write the values.
"""

import argparse
import json
import math
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "gpu"))
import plot  # noqa: E402

PUBLISHED = ["GPU-FOR", "GPU-DFOR", "GPU-RFOR"]
FIGURES = {
    "blocks": ("Blocks per tile (Figure 5)", "blocks per tile"),
    "widths": ("Uniform values (Figure 7)", "bits"),
    "sorted": ("D1, sorted (Figure 8)", "log2 of distinct values"),
    "normal": ("D2, normal, deviation 20 (Figure 8)", "log2 of the mean"),
    "zipf": ("D3, Zipf, 2^20 distinct values (Figure 8)", "exponent"),
    "columns": ("Columns (Figures 9 and 10)", "column"),
}
COLOURS = {"None": plot.GREY, "NSF": "#8a6d3b", "NSV": "#c2a14d", "RLE": "#c94f7c", "Cascaded": "#55a5a0"}
COLOURS |= {"Bitcomp": "#2f6f6b", "ffor": "#1f4fa8", "delta": "#a34a10", "rle": "#1d6b2b"}
COLOURS |= dict(zip(PUBLISHED, plot.COLOURS)) | dict(zip(["gpu_for", "gpu_dfor", "gpu_rfor"], plot.COLOURS))
DASHES = {"warp": "2 3", "kernels": "10 3 2 3"}


def dash(way):
    return "7 4" if way.endswith("passes") else DASHES.get(way, "")


class Results:
    """Cases, and the device they are of."""

    def __init__(self, lines):
        self.cases, self.device = [], None
        for line in lines:
            case = json.loads(line)
            if case["part"] == "device":
                # of several files, the first
                self.device = self.device or case
            elif "way" in case or "query_ms" in case:
                self.cases.append(case)
            elif case["part"] == "tiles":
                self.add_kernel(case)

    def add_kernel(self, case):
        """Of `kernels`, which has a line for each of what belongs to a case."""
        key = {"part": case["figure"], "data": case["data"], "x": case["x"], "scheme": case["pin"], "way": "kernels"}
        found = next((one for one in self.cases if key.items() <= one.items()), None)
        if not found:
            found = key | {"values": case["rows"], "bytes": case["bytes"]}
            self.cases.append(found)
        ms = case["ms"] * found["values"] / case["rows"]
        found[f"{case['what']}_ms"] = ms

    def of(self, part):
        return [case for case in self.cases if case["part"] == part]

    def floor(self, case, kind):
        """Milliseconds."""
        writing = case["values"] * 4 / self.device["write_bytes_per_s"] if kind == "decompress_ms" else 0
        return (case["bytes"] / self.device["read_bytes_per_s"] + writing) * 1e3


# ---- Tables --------------------------------------------------------------------------------------------------------


def name_of(case):
    return f"{case['scheme']}, {case['way']}" if case["way"] else case["scheme"]


def places(cases):
    """The lines of a table: values of x, or names of columns."""
    by_name = cases[0]["part"] == "columns"
    return list(dict.fromkeys(case["data"] if by_name else case["x"] for case in cases))


def place_of(case):
    return case["data"] if case["part"] == "columns" else case["x"]


def label(place):
    return place if isinstance(place, str) else f"{place:g}"


def table(title, head, rows):
    print(f"\n{title}\n\n| {' | '.join(head)} |\n| --- |{' ---: |' * (len(head) - 1)}")
    for row in rows:
        print(f"| {' | '.join(row)} |")


def cells(cases, names, of_name, value):
    """A line for each value of x or column, with a cell for each name."""
    found = {(place_of(case), of_name(case)): value(case) for case in cases}
    for place in places(cases):
        values = [found.get((place, name)) for name in names]
        yield [label(place), *("" if v is None else f"{v:.2f}" if v >= 0.995 else f"{v:.3f}" for v in values)]


def bits(case):
    return case["bytes"] * 8 / case["values"]


def rate(case, kind="sum_ms"):
    return case["values"] / case[kind] / 1e9


def tables(results):
    device = results.device
    reads, writes, link = (device[f"{kind}_bytes_per_s"] for kind in ["read", "write", "host_to_device"])
    library = f"nvCOMP {device['nvcomp']}" if device["nvcomp"] else "no nvCOMP"
    print(f"{device['name']}: reads {reads / 1e12:.2f} TB/s, writes {writes / 1e12:.2f}; "
          f"{link / 1e9:.1f} GB/s from the host; {library}")
    for part, (title, axis) in FIGURES.items():
        cases = results.of(part)
        if not cases:
            continue
        count = sorted({case["values"] for case in cases if case["way"] != "kernels"})
        count = " to ".join(f"{values / 1e6:g}" for values in {*count[:1], *count[-1:]})
        print(f"\n### {title}: {count} million values")
        schemes = list(dict.fromkeys(case["scheme"] for case in cases))
        ways = list(dict.fromkeys(map(name_of, cases)))
        table("Bits a value", [axis, *schemes], cells(cases, schemes, lambda case: case["scheme"], bits))
        decompressed = [case for case in cases if "decompress_ms" in case]
        usual = max((case["values"] for case in cases if case["way"] != "kernels"), default=250e6)

        def milliseconds(case):
            return case["decompress_ms"] * (usual / case["values"] if case["way"] == "kernels" else 1)

        table("Decompression, ms", [axis, *ways], cells(decompressed, ways, name_of, milliseconds))
        for kind, what in [("sum_ms", "Decoding and adding up"), ("filter_ms", "Filtering and counting")]:
            some = [case for case in cases if kind in case]
            ways = list(dict.fromkeys(map(name_of, some)))
            if some:
                rows = cells(some, ways, name_of, lambda case: rate(case, kind))
                table(f"{what}, 10^12 values/s", [axis, *ways], rows)
        of_floor(results, cases)
        compare(cases)
    queries = results.of("coprocessor")
    if queries:
        coprocessor(results, queries)


def mean(values):
    values = list(values)
    return math.exp(sum(map(math.log, values)) / len(values)) if values else math.nan


def of_floor(results, cases):
    """Geometric means."""
    rows = []
    for way in dict.fromkeys(map(name_of, cases)):
        own = [case for case in cases if name_of(case) == way]
        means = []
        for kind in ["decompress_ms", "sum_ms"]:
            shares = [results.floor(case, kind) / case[kind] for case in own if kind in case]
            means.append(f"{mean(shares):.2f}" if shares else "")
        best = max((rate(case) * 4 for case in own if "sum_ms" in case), default=None)
        rows.append([way, *means, f"{best:.2f}" if best else ""])
    head = ["scheme", "decompression, of its floor", "adding up, of its floor", "best, TB/s of values added up"]
    table("Geometric means", head, rows)


def compare(cases):
    """How many times longer others take, geometric means."""
    times = {(place_of(case), case["scheme"], case["way"]): case for case in cases}
    rows = []
    for scheme in PUBLISHED:
        for way in dict.fromkeys(case["way"] for case in cases if case["scheme"] == scheme):
            if way == "tile":
                continue
            row = [f"{scheme}, {way}, beside tile"]
            for kind in ["decompress_ms", "sum_ms"]:
                ratios = []
                for (place, of, in_way), case in times.items():
                    other = times.get((place, scheme, "tile"))
                    if of == scheme and in_way == way and other and kind in case:
                        ratios.append(case[kind] / other[kind])
                row.append(f"{mean(ratios):.2f}" if ratios else "")
            rows.append(row)
    for other in ["Cascaded", "Bitcomp", "None", "NSF", "NSV", "RLE"]:
        ratios, sizes = [], []
        for place in places(cases):
            theirs = [case for case in cases if case["scheme"] == other and place_of(case) == place]
            ours = [case for case in cases if case["way"] == "tile" and place_of(case) == place]
            if theirs and ours:
                smallest = min(ours, key=lambda case: case["bytes"])
                ratios.append(theirs[0]["decompress_ms"] / smallest["decompress_ms"])
                sizes.append(theirs[0]["bytes"] / smallest["bytes"])
        if ratios:
            name = f"{other}, beside GPU-\\*, tile ({mean(sizes):.2f} times the bytes)"
            rows.append([name, f"{mean(ratios):.2f}", ""])
    if rows:
        table("Times longer, geometric means", ["", "decompression", "adding up"], rows)


def coprocessor(results, queries):
    plain = queries[0]
    print(f"\n### A query over four columns (Figure 12): {plain['values'] / 1e6:g} million rows")
    rows = []
    for case in queries:
        own = [case["query_ms"], case["send_ms"], case["all_ms"], plain["all_ms"] / case["all_ms"]]
        rows.append([case["scheme"], f"{case['bytes'] / 1e6:.0f}", *(f"{value:.2f}" for value in own)])
    head = ["columns", "MB", "query, on the device, ms", "sending, ms", "sending and query, ms", "times faster"]
    table("Columns come from the host's memory", head, rows)


# ---- Pictures ------------------------------------------------------------------------------------------------------


def chart(title, axis, unit, cases, value, bound=None):
    """Lines by x. Schemes have colours, ways dashes."""
    at = {place: index for index, place in enumerate(places(cases))}
    # what has no x of its own is the same at all
    labels = [label(place) for place in at if place != 0]
    at = {place: index - (0 in at) for place, index in at.items()}
    series, styles = {}, []
    for case in cases:
        scheme, x = name_of(case), case["x"]
        if scheme not in series:
            series[scheme] = {}
            styles.append((COLOURS.get(case["scheme"], plot.GREY), dash(case["way"])))
        where = [at[x]] if x else range(len(labels))
        series[scheme] |= {index: value(case) for index in where}
    bounds = [bound] if bound else []
    return plot.lines(title, axis, unit, labels, list(series.items()), bounds, styles)


def pictures(results, folder):
    drawn = {}
    for part, (title, axis) in FIGURES.items():
        cases = results.of(part)
        if not cases or part == "columns":
            continue
        summed = [case for case in cases if "sum_ms" in case and case["way"]]
        drawn[f"{part}-sum"] = chart(f"{title}: decoding and adding up", axis, "10¹² values per second", summed, rate)
        usual = [case for case in cases if "decompress_ms" in case and case["way"] != "kernels"]
        # separate passes take so long that the others need a picture of their own
        kinds = {"time": [case for case in usual if not case["way"].endswith("passes")]}
        if part != "blocks":
            kinds["passes"] = [case for case in usual if case["way"] == "tile" or case["way"].endswith("passes")]
        for kind, some in kinds.items():
            drawn[f"{part}-{kind}"] = chart(
                f"{title}: decompression", axis, "milliseconds", some, lambda case: case["decompress_ms"]
            )
        sizes = {(case["scheme"], case["x"]): case | {"way": ""} for case in usual}
        if part != "blocks":
            drawn[f"{part}-bits"] = chart(f"{title}: size", axis, "bits per value", list(sizes.values()), bits)
    folder.mkdir(parents=True, exist_ok=True)
    for name, picture in drawn.items():
        path = folder / f"gpu-tiles-{name}.svg"
        path.write_text(picture)
        print(path, file=sys.stderr)


# ---- Measuring -----------------------------------------------------------------------------------------------------


def measure(options):
    """Lines of JSON."""
    source = pathlib.Path(__file__).with_name("tiles.cu")
    with tempfile.TemporaryDirectory() as folder:
        program = f"{folder}/tiles"
        command = [options.nvcc, "-O3", "-std=c++17", "-arch=native", "-o", program, str(source)]
        if options.nvcomp:
            library = next(pathlib.Path(options.nvcomp, "lib64").glob("libnvcomp.so*"))
            pathlib.Path(folder, "libnvcomp.so").symlink_to(library.resolve())
            command += [f"-I{options.nvcomp}/include", f"-L{folder}", "-lnvcomp"]
            command += [f"-Xlinker=-rpath={library.resolve().parent}"]
        subprocess.run(command, check=True)
        arguments = ["--values", f"{options.values:.0f}"]
        arguments += ["--columns", options.columns] if options.columns else []
        command = [program, *arguments, *options.parts]
        with subprocess.Popen(command, stdout=subprocess.PIPE, encoding="utf-8") as running:
            lines = []
            for line in running.stdout:
                lines.append(line)
                if options.json:
                    pathlib.Path(options.json).write_text("".join(lines))
        if running.returncode:
            sys.exit(f"tiles: {running.returncode}")
    return lines


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--values", type=float, default=250e6)
    parser.add_argument("--columns", metavar="DIR")
    parser.add_argument("--json", metavar="FILE", help="where results go, a line each")
    parser.add_argument("--images", metavar="DIR", type=pathlib.Path)
    parser.add_argument("--read", metavar="FILE", action="append", type=pathlib.Path, default=[])
    parser.add_argument("--nvcc", default="nvcc")
    parser.add_argument("--nvcomp", metavar="DIR")
    parser.add_argument("parts", metavar="PART", nargs="*")
    options = parser.parse_args()
    lines = [line for file in options.read for line in file.read_text().splitlines()] or measure(options)
    results = Results(lines)
    tables(results)
    if options.images:
        pictures(results, options.images)


main()
