#!/usr/bin/env python3
"""Draws results of `first.py --json FILE`, of several benchmarks or scales, as SVG: plot_first.py FILE... SVG

A chart for each query: time by run. Lines are dashed where kernels of an earlier process were on disk.
"""

import json
import math
import sys
from pathlib import Path

from plot import COLOURS, FAINT, GREY, WIDTH, dot, legend, line, svg, text

NAMES = {"ssb": "SSB", "tpch": "TPC-H"}
MODES = dict(zip(["off", "require", "auto"], COLOURS))
DASHES = {"new": "", "kept": "4 3"}
ACROSS, LEFT, UPPER, HEIGHT, STEP = 4, 52, 50, 110, 156


def chart(left, upper, width, title, results, low, high):
    """The runs of a query, with new and with kept kernels. `low` and `high` are powers of ten of milliseconds."""
    x = lambda run: left + width * (run - 0.5) / len(results[0]["off"])
    y = lambda ms: upper + HEIGHT * (high - math.log10(ms)) / (high - low)
    parts = [text(left + width / 2, upper - 8, title)]
    for exponent in range(low, high + 1):
        ms = 10.0**exponent
        parts.append(line([(left, y(ms)), (left + width, y(ms))], FAINT, width=1))
        if left == LEFT:
            parts.append(text(left - 6, y(ms) + 4, f"{ms / 1e3:g} s" if ms >= 1e3 else f"{ms:g} ms", "end"))
    parts += [text(x(run), upper + HEIGHT + 16, str(run)) for run in range(1, len(results[0]["off"]) + 1)]
    # wide, because `auto` often lies on it
    parts.append(line([(x(run), y(ms)) for run, ms in enumerate(results[0]["off"], 1)], MODES["off"], width=5))
    for result in results:
        for mode in ["require", "auto"]:
            places = [(x(run), y(ms)) for run, ms in enumerate(result.get(mode, []), 1)]
            parts.append(line(places, MODES[mode], DASHES[result["kernels"]]))
            parts += [dot(*place, MODES[mode]) for place in places]
    return parts


def main():
    *files, target = sys.argv[1:]
    charts, times, pauses = {}, [], set()
    for facts in (json.loads(Path(file).read_text()) for file in files):
        pauses.add(facts["pause"])
        for result in facts["queries"]:
            name = f"{NAMES[facts['benchmark']]} {result['query']}, scale {facts['scale']}"
            charts.setdefault(name, []).append(result)
            times += [ms for mode in MODES for ms in result.get(mode, [])]
    if len(pauses) != 1:
        sys.exit("these files have different pauses: a picture for each")
    pause = f"pauses of {pauses.pop():g} s" if any(pauses) else "without pauses"
    low, high = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    step, parts = (WIDTH - LEFT) / ACROSS, []
    for at, (name, results) in enumerate(charts.items()):
        row, column = divmod(at, ACROSS)
        parts += chart(LEFT + column * step, UPPER + row * STEP, step - 14, name, results, low, high)
    lower = UPPER + math.ceil(len(charts) / ACROSS) * STEP
    names = [*((mode, colour, "") for mode, colour in MODES.items()), ("kernels on disk", GREY, DASHES["kept"])]
    parts += legend(names, lower)[0]
    title = f"Time of runs of a query in a fresh process, {pause}"
    Path(target).write_text(svg(WIDTH, lower + 14, title, parts))


main()
