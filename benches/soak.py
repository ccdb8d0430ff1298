#!/usr/bin/env python3
"""Kills writers and fills a disk, and checks that nothing visible is partial.

    cargo build --release -p vectile-cli
    python3 benches/soak.py --bin target/release/vectile

Four writers (convert, COPY to a file, COPY to partitions, INSERT) are killed with SIGKILL at random
moments, half of them near the end, where files get their names. After each kill every visible file
must be whole: it opens, and its rows add up. Then each writer runs on a disk that is too small (a
tmpfs where mounting is allowed, else under a limit of the size of files): it must fail, and leave no
file. Statements of several files that were killed between two renames are counted and printed: each
of their files is whole, and operations.md says what to do.

Needs nothing but Python. The exit code is 1 if a check failed.
"""

import argparse
import os
import random
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

PARTITIONS = 8


class Failed(Exception):
    """A check that did not hold."""


class Soak:
    def __init__(self, binary, rows, work):
        self.binary, self.rows, self.work = str(Path(binary).resolve()), rows, work
        self.input = work / "in.parquet"
        # Half of the rows are in the first partition, so that a disk fills while other files are done.
        self.sql(
            "COPY (SELECT value AS a, random() AS x, "
            f"CASE WHEN value % 2 = 0 THEN 0 ELSE value % {PARTITIONS} END AS p "
            f"FROM generate_series(1, {rows})) TO '{self.input}' STORED AS PARQUET"
        )

    def sql(self, statement):
        command = [self.binary, "sql", "--format", "csv", statement]
        done = subprocess.run(command, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"{statement}: {done.stderr.strip()}")
        return done.stdout.strip().splitlines()

    def writers(self, target):
        """The command of each writer to `target`, a directory, by name."""
        rows = f"SELECT * FROM '{self.input}'"
        table = f"CREATE EXTERNAL TABLE t (a BIGINT, x DOUBLE, p BIGINT) STORED AS VECTILE LOCATION '{target}/'"
        settings = "SET datafusion.execution.batch_size = 1024"
        sql = [self.binary, "sql"]
        return {
            "convert": [self.binary, "convert", "--quiet", str(self.input), f"{target}/out.vectile"],
            "copy": sql + [f"COPY ({rows}) TO '{target}/out.vectile' STORED AS VECTILE"],
            "partitions": sql
            + [f"{settings}; COPY ({rows}) TO '{target}/' STORED AS VECTILE PARTITIONED BY (p)"],
            "insert": sql + [f"{settings}; {table}; INSERT INTO t {rows}"],
        }

    def visible(self, target):
        return sorted(path for path in target.rglob("*") if path.is_file() and "#" not in path.name)

    def staged(self, target):
        return [path for path in target.rglob("*#*") if path.is_file()]

    def rows_in(self, target):
        """Rows of all visible files, each of which has to be whole."""
        total = 0
        for path in self.visible(target):
            # The checksums of all columns are compared on the way.
            lines = self.sql(f"SELECT count(*), count(a), sum(a), sum(x) FROM '{path}'")
            rows, values, *_ = lines[-1].split(",")
            if rows != values:
                raise Failed(f"{path}: {values} values in {rows} rows")
            total += int(rows)
        return total

    def fresh(self, name):
        target = self.work / name
        shutil.rmtree(target, ignore_errors=True)
        target.mkdir()
        return target

    def whole_run(self, name):
        """Seconds of an undisturbed run, and the sizes of its files."""
        target = self.fresh(name)
        start = time.monotonic()
        done = subprocess.run(self.writers(target)[name], capture_output=True, text=True)
        seconds = time.monotonic() - start
        if done.returncode != 0:
            raise Failed(f"{name}: {done.stderr.strip()}")
        if (rows := self.rows_in(target)) != self.rows:
            raise Failed(f"{name}: {rows} of {self.rows} rows were written")
        return seconds, [path.stat().st_size for path in self.visible(target)]

    def kill(self, name, after):
        """Kills a run after so many seconds; returns which rows are left: none, some or all."""
        target = self.fresh(name)
        quiet = subprocess.DEVNULL
        process = subprocess.Popen(self.writers(target)[name], stdout=quiet, stderr=quiet)
        try:
            process.wait(after)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
        rows = self.rows_in(target)
        if rows not in (0, self.rows) and name in ("convert", "copy"):
            raise Failed(f"{name}: {rows} of {self.rows} rows after a kill")
        return {0: "none", self.rows: "all"}.get(rows, "some")

    def fill(self, name, disk, limit):
        """Runs a writer that has too little room for its files."""
        shutil.rmtree(disk / name, ignore_errors=True)
        target = disk / name
        target.mkdir()

        def limited():
            if limit:
                signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
                resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))

        done = subprocess.run(
            self.writers(target)[name], capture_output=True, text=True, preexec_fn=limited
        )
        if done.returncode == 0:
            raise Failed(f"{name}: no error on a full disk")
        if left := self.visible(target):
            raise Failed(f"{name}: {len(left)} files on a full disk: {left[0]}")
        if left := self.staged(target):
            raise Failed(f"{name}: {len(left)} uploads stay on a full disk: {left[0]}")


def mount(directory, size):
    """A small tmpfs, where that is allowed."""
    command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)]
    try:
        return subprocess.run(command, capture_output=True).returncode == 0
    except FileNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--bin", required=True, help="the vectile binary")
    parser.add_argument("--kills", type=int, default=100, help="of each writer")
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.randrange(1 << 32))
    parser.add_argument("--dir", help="where to write; the default is a temporary directory")
    arguments = parser.parse_args()
    print(f"seed {arguments.seed}")
    random.seed(arguments.seed)
    work = Path(tempfile.mkdtemp(prefix="vectile-soak-", dir=arguments.dir))
    failures = 0
    try:
        soak = Soak(arguments.bin, arguments.rows, work)
        sizes = {}
        for name in soak.writers(work):
            seconds, sizes[name] = soak.whole_run(name)
            left = {"none": 0, "some": 0, "all": 0}
            for i in range(arguments.kills):
                share = random.uniform(0, 1) if i % 2 else random.uniform(0.85, 1.05)
                try:
                    left[soak.kill(name, share * seconds)] += 1
                except Failed as failed:
                    failures += 1
                    print(f"FAILED: {failed}")
            print(f"{name}: {arguments.kills} kills within {seconds:.2f} s, rows left: {left}")

        disk = work / "disk"
        disk.mkdir()
        for name, files in sizes.items():
            mounted = mount(disk, sum(files) * 3 // 4)
            try:
                soak.fill(name, disk, None if mounted else max(files) * 3 // 4)
                print(f"{name}: a full disk leaves nothing")
            except Failed as failed:
                failures += 1
                print(f"FAILED: {failed}")
            finally:
                if mounted:
                    subprocess.run(["umount", str(disk)], check=False)
    finally:
        shutil.rmtree(work, ignore_errors=True)
    print("FAILED" if failures else "ok")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
