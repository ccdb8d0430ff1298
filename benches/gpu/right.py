#!/usr/bin/env python3
"""Queries whose answers were wrong on a GPU once, and joins of rows with several matches: the GPU and the CPU must agree.

    benches/gpu/right.py [--vectile target/release/vectile] [--sanitize]

Each query runs with `vectile.gpu = off` and with `on`, where the device makes every lookup. Where the CPU would take
minutes, the answer is known. `fused` marks queries with a part on the GPU. With `--sanitize`, the queries over small tables run under `compute-sanitizer`, with memcheck and
with racecheck. Exits with 1 if answers differ or a sanitizer finds an error.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import sql

TABLES = {
    "f": "SELECT CAST(value % 7 AS INT) AS k, value % 3 AS x, value AS v FROM generate_series(0, 4999)",
    "d": "SELECT * FROM (VALUES (0, 'a', 1), (1, 'b', 2), (2, NULL, 3), (3, NULL, 4), (4, 'a', 5), (5, 'c', 9)) AS t(k, name, e)",
    "e": "SELECT * FROM (VALUES (1, 'x'), (2, NULL), (3, 'y'), (4, 'x')) AS t(id, name)",
    "e2": "SELECT * FROM (VALUES (1), (NULL), (7)) AS t(y)",
    "n": "SELECT value AS id, nullif(value % 2, 0) AS y FROM generate_series(1, 6)",
    "m": "SELECT CAST(value % 11 AS INT) AS k, value AS w, value % 5 AS g FROM generate_series(0, 499)",
    "p": "SELECT CAST(value % 13 AS INT) AS k, value * 3 AS u FROM generate_series(0, 299)",
    # lists of 2048 matches
    "a": "SELECT 1 AS k, value % 2 AS g, value AS v FROM generate_series(0, 2047)",
    "b": "SELECT 1 AS k, value AS x FROM generate_series(0, 2047)",
    "c": "SELECT 1 AS k, value AS y FROM generate_series(0, 2047)",
}

FUSED = ("FusedAggregateExec", "FusedJoinExec")

# what the CPU answers, too
SMALL = [
    "SELECT count(*) FROM f JOIN d ON f.k = d.k WHERE d.e NOT IN (SELECT y FROM e2)",
    "SELECT f.x, count(*) FROM f JOIN d ON f.k = d.k WHERE d.e NOT IN (SELECT y FROM e2) GROUP BY f.x",
    "SELECT count(*) FROM f WHERE k IN (SELECT k FROM d WHERE e NOT IN (SELECT y FROM e2))",
    "SELECT e.name, count(*) FROM f JOIN d ON f.k = d.k LEFT JOIN e ON d.e = e.id GROUP BY e.name ORDER BY 1",
    "SELECT n.y, count(*) FROM f JOIN d ON f.k = d.k LEFT JOIN n ON d.e = n.id GROUP BY n.y ORDER BY 1",
    "SELECT n.y, count(*) FROM f JOIN d ON f.k = d.k LEFT JOIN n ON d.e = n.id GROUP BY n.y HAVING count(*) > 1500 ORDER BY 1",
    "SELECT count(*) FROM (SELECT d.name, count(*) AS c FROM f JOIN d ON f.k = d.k GROUP BY d.name) s "
    "WHERE s.name IS NULL OR s.c > 100000",
    "SELECT count(*) FILTER (WHERE s.name IS NOT NULL) FROM (SELECT d.name, f.x, count(*) FROM f JOIN d ON f.k = d.k "
    "GROUP BY d.name, f.x) s",
    "SELECT s.name IS NULL, count(*) FROM (SELECT d.name, f.x, count(*) FROM f JOIN d ON f.k = d.k "
    "GROUP BY d.name, f.x) s GROUP BY 1 ORDER BY 1",
    "SELECT d.k, f.v, count(*) OVER (PARTITION BY d.k) FROM f LEFT JOIN (SELECT * FROM d WHERE k = 2) d ON f.k = d.k "
    "WHERE f.v < 30 ORDER BY d.k DESC, f.v",
    "WITH RECURSIVE r AS (SELECT CAST(1 AS BIGINT) AS id UNION ALL SELECT f.v FROM f JOIN r ON f.v = r.id + 1 WHERE f.v < 9) "
    "SELECT id FROM r ORDER BY id",
    # several matches: totals, groups, expressions of both sides, two lists, EXISTS, outer joins with a condition
    "SELECT count(*), sum(m.w), min(m.w), max(f.v + m.w) FROM f JOIN m ON f.k = m.k",
    "SELECT f.x, count(*), sum(m.w * f.v), avg(m.w) FROM f JOIN m ON f.k = m.k GROUP BY f.x ORDER BY 1",
    "SELECT f.x, m.g, count(*) FROM f JOIN m ON f.k = m.k GROUP BY f.x, m.g ORDER BY 1, 2",
    "SELECT f.x, count(*), max(m.w + p.u) FROM f JOIN m ON f.k = m.k JOIN p ON f.k = p.k GROUP BY f.x ORDER BY 1",
    "SELECT count(*), sum(f.v) FROM f WHERE EXISTS (SELECT 1 FROM m WHERE m.k = f.k AND m.w % 97 = f.v % 97)",
    "SELECT count(*), count(m.w), sum(m.w) FROM f LEFT JOIN m ON f.k = m.k AND m.w > f.v",
]

# 2^33 combinations, so that counts do not fit 32 bits
LARGE = [
    (
        "SELECT a.g, count(*) AS n, max(b.x + c.y) AS m FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k GROUP BY a.g ORDER BY a.g",
        "g,n,m\n0,4294967296,4094\n1,4294967296,4094\n",
    ),
    (
        "SELECT count(*) AS n, sum(b.x) AS s FROM a JOIN b ON a.k = b.k JOIN c ON a.k = c.k",
        "n,s\n8589934592,8791798054912\n",
    ),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--vectile", default="target/release/vectile")
    parser.add_argument("--sanitize", action="store_true")
    options = parser.parse_args()
    failed = 0
    with tempfile.TemporaryDirectory() as folder:
        files = {name: pathlib.Path(folder) / f"{name}.vectile" for name in TABLES}
        copies = [f"COPY ({query}) TO '{files[name]}' STORED AS VECTILE" for name, query in TABLES.items()]
        sql.vectile(options.vectile, "sql", "; ".join(copies))
        on, flags = "set vectile.gpu = 'on'; ", ["--gpu-build-from-rows=0"]
        for query in SMALL:
            answer = {}
            for mode, settings in (("off", "set vectile.gpu = 'off'; "), ("on", on)):
                answer[mode], _ = sql.vectile(options.vectile, *sql.command(files, settings + query, flags=flags))
            same = answer["off"] == answer["on"]
            failed += not same
            plan, _ = sql.vectile(options.vectile, *sql.command(files, on + "explain analyze " + query, flags=flags))
            fused = any(node in plan for node in FUSED) and "fallbacks" not in plan
            print("same  " if same else "DIFFER", "fused" if fused else "     ", query, "" if same else answer, flush=True)
        for query, right in LARGE:
            answer, log = sql.vectile(options.vectile, *sql.command(files, "set vectile.gpu = 'require'; " + query))
            same = answer == right
            failed += not same
            print("right " if same else "WRONG ", f"{sql.times(log)[-1][0]:.0f} ms", query, "" if same else answer, flush=True)
        if options.sanitize:
            script = on + "; ".join(SMALL)
            for tool in ("memcheck", "racecheck"):
                command = ["compute-sanitizer", "--tool", tool, "--error-exitcode", "9", options.vectile]
                done = subprocess.run([*command, *sql.command(files, script, flags=flags)], capture_output=True, encoding="utf-8")
                failed += done.returncode != 0
                said = [line for line in (done.stdout + done.stderr).splitlines() if "=========" in line]
                print(tool, "exit status", done.returncode, *said[-3:], sep="\n    ", flush=True)
    return failed > 0


if __name__ == "__main__":
    sys.exit(main())
