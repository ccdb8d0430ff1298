#!/usr/bin/env python3
"""Draws the results of `kernels --json FILE` as SVG: plot.py FILE... DIRECTORY

Of a case that is in several files, the last one counts. Colours and greys are such that the pictures
can lie on a light and on a dark page.
"""

import json
import math
import re
import sys
from pathlib import Path

GREY, FAINT = "#7d8590", "#7d859055"
COLOURS = ["#1f83d6", "#e0762c", "#3fa34d", "#b45fc9"]
STYLES = [(colour, "") for colour in COLOURS]
FONT = "font-family='system-ui, DejaVu Sans, sans-serif' font-size='12'"
WIDTH, PLOT_HEIGHT, MARGIN = 720, 300, 56


def read(files):
    cases = {}
    for file in files:
        for line in Path(file).read_text().splitlines():
            case = json.loads(line)
            kind = case.get("kind"), case.get("case"), case.get("encoding")
            cases[case["part"], *kind] = case
    return list(cases.values())


# ---- drawing -------------------------------------------------------------------------------


def text(x, y, content, anchor="middle", colour=GREY, extra=""):
    content = content.replace("&", "&amp;").replace("<", "&lt;")
    return f"<text x='{x:.1f}' y='{y:.1f}' text-anchor='{anchor}' fill='{colour}' {extra}>{content}</text>"


def line(points, colour, dash="", width=2):
    places = " ".join(f"{x:.1f},{y:.1f}" for x, y in points)
    dash = f" stroke-dasharray='{dash}'" if dash else ""
    return f"<polyline points='{places}' fill='none' stroke='{colour}' stroke-width='{width}'{dash}/>"


def dot(x, y, colour):
    return f"<circle cx='{x:.1f}' cy='{y:.1f}' r='3.5' fill='{colour}'/>"


def ticks(top):
    """About five round numbers from 0 to `top`."""
    step = next(s for s in (0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50) if top / s <= 7)
    return [step * i for i in range(int(top / step) + 1)]


def svg(width, height, title, parts):
    body = "\n".join(parts)
    heading = text(width / 2, 18, title, extra="font-weight='bold' font-size='13'")
    return (
        f"<svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {width} {height}' {FONT}>\n"
        f"<title>{title}</title>\n{heading}\n{body}\n</svg>\n"
    )


def legend(entries, y):
    """Names of series, (name, colour, dash), in rows; and how high the rows behind the first are."""
    parts, x, first = [], MARGIN, y
    for name, colour, dash in entries:
        width = 45 + 6.8 * len(name)
        if x > MARGIN and x + width > WIDTH + 18:
            x, y = MARGIN, y + 18
        parts.append(line([(x, y - 4), (x + 22, y - 4)], colour, dash))
        parts.append(text(x + 27, y, name, "start"))
        x += width
    return parts, y - first


def lines(title, x_name, y_name, labels, series, bounds, styles=STYLES):
    """A chart of lines. `labels`: of the places on the x axis; `series`: (name, {place: value}), with a colour
    and dash each in `styles`; `bounds`: (name, {place: value}) that are drawn dashed, and cut off at the top."""
    top = max(value for _, points in series for value in points.values()) * 1.12
    left, right, upper, lower = MARGIN, WIDTH - 16, 34, 34 + PLOT_HEIGHT

    def at(place, value):
        x = left + (right - left) * (place + 0.5) / len(labels)
        return x, lower - (lower - upper) * min(value, top) / top

    parts = []
    for tick in ticks(top):
        y = at(0, tick)[1]
        parts.append(line([(left, y), (right, y)], FAINT, width=1))
        parts.append(text(left - 8, y + 4, f"{tick:g}", "end"))
    for place, label in enumerate(labels):
        parts.append(text(at(place, 0)[0], lower + 17, label))
    parts.append(text((left + right) / 2, lower + 36, x_name))
    middle = (upper + lower) / 2
    parts.append(text(16, middle, y_name, extra=f"transform='rotate(-90 16 {middle:.0f})'"))
    entries = []
    for (name, points), dash in zip(bounds, ("6 4", "2 4", "10 3 2 3")):
        drawn = [at(p, v) for p, v in sorted(points.items())]
        # of what is above the picture only the end of the way down
        above = sum(1 for p, v in sorted(points.items()) if v > top)
        parts.append(line(drawn[max(above - 1, 0):], GREY, dash, 1.5))
        entries.append((name, GREY, dash))
    for (name, points), (colour, dash) in zip(series, styles):
        drawn = [at(p, v) for p, v in sorted(points.items())]
        parts += [line(drawn, colour, dash)] + [dot(x, y, colour) for x, y in drawn]
        entries.insert(len(entries) - len(bounds), (name, colour, dash))
    names, more = legend(entries, lower + 62)
    return svg(WIDTH, lower + 76 + more, title, parts + names)


def rows(title, x_name, names, series, bound=None, log=False):
    """A chart with a line of dots for each name. `series`: (name, {row: value})."""
    values = [value for _, points in series for value in points.values()]
    top = max(values + [bound[1] if bound else 0]) * 1.05
    left, right, upper, step = 270, WIDTH - 24, 34, 19
    lower = upper + step * len(names)
    places = ticks(top)
    if log:
        steps = [m * 10.0**e for e in range(-3, 4) for m in (1, 2, 5)]
        places = [s for s in steps if min(values) / 2.5 < s <= top]

    def at(row, value):
        share = value / top
        if log:
            share = math.log(value / places[0]) / math.log(top / places[0])
        return left + (right - left) * share, upper + step * (row + 0.5)

    parts = []
    for tick in places:
        x = at(0, tick)[0]
        parts.append(line([(x, upper), (x, lower)], FAINT, width=1))
        parts.append(text(x, lower + 16, f"{tick:g}"))
    for row, name in enumerate(names):
        y = upper + step * (row + 0.5)
        parts.append(text(left - 10, y + 4, name, "end"))
        parts.append(line([(left, y), (right, y)], FAINT, width=1))
    parts.append(text((left + right) / 2, lower + 34, x_name))
    entries = []
    if bound:
        x = at(0, bound[1])[0]
        parts.append(line([(x, upper), (x, lower)], GREY, "6 4", 1.5))
        entries.append((bound[0], GREY, "6 4"))
    for (name, points), colour in zip(series, COLOURS):
        parts += [dot(*at(row, value), colour) for row, value in points.items()]
        entries.append((name, colour, ""))
    names, more = legend(entries, lower + 54)
    return svg(WIDTH, lower + 66 + more, title, parts + names)


# ---- charts --------------------------------------------------------------------------------


def tera(case, what="values"):
    """Values, bytes or bytes written per second, in 10^12."""
    return case[what] / case["ms"] / 1e9


def by_width(cases, device):
    cases = [case for case in cases if case["part"] == "ffor"]
    series, plain = [], []
    for of in ("i64", "i32"):
        mine = [case for case in cases if case["type"] == of]
        widths = {c["width"] - 1: tera(c) for c in mine if c["encoding"] == "ffor"}
        series.append((f"{of}, ffor", widths))
        for case in mine:
            if case["encoding"] == "plain":
                plain.append((f"{of}, plain", {place: tera(case) for place in range(32)}))
    read = device["read_bytes_per_s"] / 1e12
    bandwidth = {width - 1: read * 8 / width for width in range(1, 33)}
    return lines(
        "Filter and count by width", "bits per value", "10¹² values per second",
        [str(width) for width in range(1, 33)], series + plain, [("read bandwidth", bandwidth)],
    )


def by_exceptions(cases, device):
    cases = [case for case in cases if case["part"] == "alp" and case["type"] == "f64"]
    alp = [case for case in cases if case["encoding"].startswith("alp")]
    counts = sorted({case["exceptions"] for case in alp})
    series = [
        (f"{width} bits", {counts.index(c["exceptions"]): tera(c) * 8 for c in alp if c["width"] == width})
        for width in sorted({case["width"] for case in alp})
    ]
    plain = [
        ("plain doubles", {place: tera(case) * 8 for place in range(len(counts))})
        for case in cases if case["encoding"] == "plain"
    ]
    return lines(
        "Filter and count over doubles with two decimals (alp)", "exceptions per vector of 1024",
        "TB/s of doubles", [str(count) for count in counts], series, plain,
    )


def by_columns(cases, device):
    cases = [case for case in cases if case["part"] == "columns"]
    counts = sorted({case["columns"] for case in cases})
    series = []
    for encoding, name in (("ffor", "ffor, 12 bits"), ("plain", "plain, 32 bits")):
        points = {
            counts.index(c["columns"]): tera(c, "bytes") for c in cases if c["encoding"] == encoding
        }
        if points:
            series.append((name, points))
    read = device["read_bytes_per_s"] / 1e12
    bound = {place: read for place in range(len(counts))}
    return lines(
        "Filter over several columns, then count", "predicate columns", "TB/s of bytes read",
        [str(count) for count in counts], series, [("read bandwidth", bound)],
    )


def of_real(cases, kind):
    """Values a second of real columns, by how they are encoded."""
    cases = [case for case in cases if case["part"] == "real" and case["kind"] == kind]
    names, labels = [], []
    series = {"as encoded": {}, "alp": {}, "plain": {}}
    for case in cases:
        if case["column"] not in names:
            names.append(case["column"])
            # without what is inside the parts
            parts = re.sub(r"(?<=\w)\(\w[^()]*\)(?=[,)])", "", case["encoding"])
            labels.append(f"{case['column']}: {parts}")
        row = names.index(case["column"])
        name = "as encoded" if case["chosen"] else case["case"].split(", ")[-1]
        series[name][row] = case["rows"] / case["ms"] / 1e9
    what = {"filter": "filter and count", "decompress": "full decompression"}[kind]
    series = [(name, points) for name, points in series.items() if points]
    return rows(f"Columns of nycflights13: {what}", "10¹² values per second", labels, series, log=True)


def decompression(cases, device):
    cases = [c for c in cases if c["part"] == "values" and c["kind"] == "decompress"]
    written = {row: tera(case, "bytes_out") for row, case in enumerate(cases)}
    bound = device.get("write_bytes_per_s")
    bound = ("write bandwidth", bound / 1e12) if bound else None
    return rows(
        "Full decompression into device memory", "TB/s of bytes written",
        [case["case"] for case in cases], [("written", written)], bound,
    )


CHARTS = {
    "gpu-width": by_width,
    "gpu-exceptions": by_exceptions,
    "gpu-columns": by_columns,
    "gpu-real": lambda cases, _: of_real(cases, "filter"),
    "gpu-real-decompression": lambda cases, _: of_real(cases, "decompress"),
    "gpu-decompression": decompression,
}


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    *files, directory = sys.argv[1:]
    cases = read(files)
    device = next(case for case in cases if case["part"] == "device")
    for name, chart in CHARTS.items():
        try:
            drawn = chart(cases, device)
        except ValueError:
            print(f"{name}: not in these files")
            continue
        path = Path(directory) / f"{name}.svg"
        path.write_text(drawn)
        print(path)


if __name__ == "__main__":
    main()
