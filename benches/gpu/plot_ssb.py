#!/usr/bin/env python3
"""Draws results of `ssb.py --json FILE`, of several scales, as SVG: plot_ssb.py FILE... DIRECTORY

Kernel time by rows, one query of each flight; kernel time by query at the largest scale, beside the floor.
"""

import json
import math
import sys
from pathlib import Path

from plot import COLOURS, FAINT, GREY, MARGIN, PLOT_HEIGHT, WIDTH, dot, line, svg, text, ticks

FLIGHTS = ["1.1", "2.1", "3.1", "4.1"]
ROWS = 6.0  # millions at scale 1


def by_rows(results):
    """Both axes are logarithmic: what is linear in rows is a line of slope 1."""
    low, high = ROWS * results[0]["scale"], ROWS * results[-1]["scale"]
    times = [q["encoded"]["kernel_ms"] for result in results for q in result["queries"] if q["query"] in FLIGHTS]
    bottom, top = math.floor(math.log10(min(times))), math.ceil(math.log10(max(times)))
    span = math.log(high / low)
    x = lambda rows: MARGIN + 20 + (WIDTH - MARGIN - 120) * math.log(rows / low) / span
    y = lambda ms: 40 + (PLOT_HEIGHT - 40) * (top - math.log10(ms)) / (top - bottom)
    parts = []
    for exponent in range(bottom, top + 1):
        parts.append(line([(MARGIN, y(10**exponent)), (WIDTH - 80, y(10**exponent))], FAINT, width=1))
        parts.append(text(MARGIN - 6, y(10**exponent) + 4, f"{10**exponent:g} ms", "end"))
    for result in results:
        rows = ROWS * result["scale"]
        parts.append(text(x(rows), PLOT_HEIGHT + 20, f"{rows:g} M rows"))
    for name, colour in zip(FLIGHTS, COLOURS):
        own = [(ROWS * r["scale"], q["encoded"]["kernel_ms"]) for r in results for q in r["queries"] if q["query"] == name]
        places = [(x(rows), y(ms)) for rows, ms in own]
        parts.append(line(places, colour))
        parts += [dot(*place, colour) for place in places]
    last = sorted((q["encoded"]["kernel_ms"], q["query"]) for q in results[-1]["queries"] if q["query"] in FLIGHTS)
    height = math.inf
    for ms, name in last:
        height = min(y(ms) + 4, height - 14)
        parts.append(text(x(high) + 10, height, f"Q{name}", "start", COLOURS[FLIGHTS.index(name)]))
    return svg(WIDTH, PLOT_HEIGHT + 40, "Kernel time by rows", parts)


def by_query(result):
    queries = result["queries"]
    top = max(q["encoded"]["kernel_ms"] for q in queries) * 1.05
    y = lambda ms: 40 + (PLOT_HEIGHT - 40) * (1 - ms / top)
    width = (WIDTH - MARGIN - 20) / len(queries)
    parts = []
    for value in ticks(top):
        parts.append(line([(MARGIN, y(value)), (WIDTH - 10, y(value))], FAINT, width=1))
        parts.append(text(MARGIN - 6, y(value) + 4, f"{value:g} ms", "end"))
    for at, query in enumerate(queries):
        left = MARGIN + 10 + at * width
        own = query["encoded"]
        for shift, ms, colour in [(0, own["floor_ms"], GREY), (0.4, own["kernel_ms"], COLOURS[0])]:
            box = f"x='{left + shift * width:.1f}' y='{y(ms):.1f}' width='{0.36 * width:.1f}' height='{y(0) - y(ms):.1f}'"
            parts.append(f"<rect {box} fill='{colour}'/>")
        parts.append(text(left + 0.38 * width, PLOT_HEIGHT + 20, query["query"]))
    parts.append(text(MARGIN + 10, 34, "reading the compressed bytes", "start", GREY))
    parts.append(text(MARGIN + 200, 34, "kernel", "start", COLOURS[0]))
    return svg(WIDTH, PLOT_HEIGHT + 40, f"Kernels at scale {result['scale']}", parts)


def main():
    *files, directory = sys.argv[1:]
    results = sorted((json.loads(Path(file).read_text()) for file in files), key=lambda result: result["scale"])
    Path(directory, "gpu-ssb-rows.svg").write_text(by_rows(results))
    Path(directory, "gpu-ssb.svg").write_text(by_query(results[-1]))


main()
