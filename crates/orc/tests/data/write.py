#!/usr/bin/env python3
"""Writes ORC files with pyarrow, and what pyarrow reads of them as Arrow IPC files.

    write.py golden FOLDER    the small files of this folder
    write.py matrix FOLDER    many: each type by version, compression, block size and stripe size, and files by Java
    write.py convert FROM TO  the Parquet files of a folder, in stripes of few rows

A folder has NAME.orc for each file, and NAME.arrow with its rows; files of the same rows are called ROWS.VARIANT.orc,
and have one ROWS.arrow.
"""

import datetime
import decimal
import itertools
import os
import pathlib
import random
import shutil
import sys

import pyarrow as pa
import pyarrow.orc as orc

INT64 = (-(2**63), 2**63 - 1)


def integers(rows, rng):
    """Integers that make a writer choose each kind of run."""
    outliers = [rng.randrange(100) if rng.random() > 0.02 else rng.randrange(2**40) for _ in range(rows)]
    deep = [-rng.randrange(1000) if rng.random() > 0.03 else -rng.randrange(2**50) for _ in range(rows)]
    far = [rng.randrange(8) if row % 300 else 2**45 for row in range(rows)]
    steps = list(itertools.accumulate(rng.randrange(1000) for _ in range(rows)))
    repeated = [value for _ in range(rows // 6 + 1) for value in [rng.randrange(256)] * 3 + [rng.randrange(2**62)] * 8]
    two = [0, 0] + sorted(rng.randrange(5000) for _ in range(rows - 2))
    return {
        "random": [rng.randrange(*INT64) for _ in range(rows)],
        "small": [rng.randrange(-100, 100) for _ in range(rows)],
        "up": [step - 4000 for step in steps],
        "down": [-step for step in steps],
        "constant": [7 if row < rows // 2 else INT64[0] for row in range(rows)],
        "arithmetic": [row * 37 - 5000 for row in range(rows)],
        "arithmetic_down": [5000 - row * 3 for row in range(rows)],
        "repeated": repeated[:rows],
        "outliers": outliers,
        "deep_outliers": deep,
        "far_outliers": far,
        "two_equal": two,
        "extremes": [rng.choice([*INT64, 0, -1, 1]) for _ in range(rows)],
        "runs_of_three": [row // 3 for row in range(rows)],
    }


def with_nulls(values, rng, share=0.1):
    return [None if rng.random() < share else value for value in values]


def all_integers(rows, rng):
    columns = {}
    for name, values in integers(rows, rng).items():
        columns[name] = pa.array(values, pa.int64())
        columns[name + "_nulls"] = pa.array(with_nulls(values, rng), pa.int64())
    return pa.table(columns)


def text(rng, length):
    return "".join(rng.choice("abcdefgh äé€😀") for _ in range(rng.randrange(length)))


def all_types(rows, rng):
    """Each type, with and without nulls."""
    words = [text(rng, 12) for _ in range(40)]
    cent = decimal.Decimal("0.01")
    since = datetime.datetime(1969, 1, 1)
    day = datetime.date(1970, 1, 1)

    def some(make):
        return [make(row) for row in range(rows)]

    def lists(make, most=5):
        return some(lambda _: [make() for _ in range(rng.randrange(most))])

    def wide(_):
        digits = rng.randrange(-(10**38) + 1, 10**38)
        return decimal.Decimal(digits).scaleb(-10, decimal.Context(prec=60))

    def moment(_):
        # in steps whose nanoseconds have zeros to cut, from before 1970 on
        unit = rng.choice([1, 100, 1000, 10**6, 10**9, 86400 * 10**9])
        nanoseconds = rng.randrange(-(10**16), 2 * 10**18) // unit * unit
        # the writer in C++ loses a second of what is less than a second before 1970
        return 0 if -(10**9) < nanoseconds < 0 else nanoseconds

    columns = {
        "bool": (pa.bool_(), some(lambda _: rng.random() < 0.4)),
        "bool_runs": (pa.bool_(), some(lambda row: row // 300 % 2 == 1)),
        "byte": (pa.int8(), some(lambda _: rng.randrange(-128, 128))),
        "byte_runs": (pa.int8(), some(lambda row: row // 50 % 100)),
        "short": (pa.int16(), some(lambda _: rng.randrange(-(2**15), 2**15))),
        "int": (pa.int32(), some(lambda _: rng.randrange(-(2**31), 2**31))),
        "long": (pa.int64(), some(lambda row: row * row)),
        "float": (pa.float32(), some(lambda _: rng.choice([rng.gauss(0, 1), 0.0, -0.0, float("inf")]))),
        "double": (pa.float64(), some(lambda _: rng.choice([rng.gauss(0, 1e9), float("nan"), -0.0]))),
        "words": (pa.string(), some(lambda _: rng.choice(words))),
        "text": (pa.string(), some(lambda _: text(rng, 30))),
        "binary": (pa.binary(), some(lambda _: rng.randbytes(rng.randrange(20)))),
        "cents": (pa.decimal128(15, 2), some(lambda _: rng.randrange(-(10**14), 10**14) * cent)),
        "wide": (pa.decimal128(38, 10), some(wide)),
        "date": (pa.date32(), some(lambda _: day + datetime.timedelta(rng.randrange(-30000, 30000)))),
        "timestamp": (pa.timestamp("ns"), some(moment)),
        "second": (pa.timestamp("ns"), some(lambda row: since + datetime.timedelta(seconds=row * 86399))),
        "instant": (pa.timestamp("ns", "UTC"), some(moment)),
        "list": (pa.list_(pa.int32()), lists(lambda: rng.choice([None, rng.randrange(1000)]))),
        "lists": (pa.list_(pa.list_(pa.string())), lists(lambda: rng.choice([None, [rng.choice(words)] * 2, []]))),
        "map": (
            pa.map_(pa.string(), pa.int64()),
            some(lambda _: [(f"{key}{rng.choice(words)}", rng.choice([None, key])) for key in range(rng.randrange(4))]),
        ),
        "struct": (
            pa.struct([("a", pa.int64()), ("b", pa.struct([("c", pa.string()), ("d", pa.decimal128(9, 3))]))]),
            # pyarrow 26 writes other rows of structs that are never null, with structs in them that are
            some(
                lambda row: row % 97
                and {
                    "a": rng.choice([None, row]),
                    "b": rng.choice([None, {"c": rng.choice(words), "d": row * decimal.Decimal("0.001")}]),
                }
                or None
            ),
        ),
    }
    arrays = {}
    for name, (data_type, values) in columns.items():
        arrays[name] = pa.array(values, data_type)
        arrays[name + "_nulls"] = pa.array(with_nulls(values, rng, rng.choice([0.05, 0.5])), data_type)
        arrays[name + "_only_nulls"] = pa.nulls(rows, data_type)
    kinds = pa.array([rng.randrange(2) for _ in range(rows)], pa.int8())
    arrays["union"] = pa.UnionArray.from_sparse(kinds, [arrays["int"], arrays["words_nulls"]])
    return pa.table(arrays)


def scan_table(rows, rng):
    """Rows in an order that lets statistics and Bloom filters rule stripes and row groups out."""
    return pa.table(
        {
            "id": pa.array(range(rows), pa.int64()),
            "key": pa.array([(row * 7919) % 1_000_003 for row in range(rows)], pa.int64()),
            "name": pa.array([f"name {(row * 31) % 997}" for row in range(rows)], pa.string()),
            "day": pa.array([row // 100 for row in range(rows)], pa.int32()).cast(pa.date32()),
            "price": pa.array([None if row % 17 == 0 else row / 8 for row in range(rows)], pa.float64()),
            "nan": pa.array([float("nan") if row % 1000 == 5 else row / 8 for row in range(rows)], pa.float64()),
            "amount": pa.array([decimal.Decimal(row - 1000) * decimal.Decimal("0.01") for row in range(rows)], pa.decimal128(12, 2)),
            "moment": pa.array([(row - 3000) * 10**9 * 3600 + row for row in range(rows)], pa.timestamp("ns")),
            "flag": pa.array([row > rows // 2 for row in range(rows)], pa.bool_()),
            "late": pa.array([None if row < rows // 2 else row for row in range(rows)], pa.int64()),
        }
    )


def write(folder, rows, variant, table, **options):
    path = os.path.join(folder, f"{rows}.{variant}.orc")
    orc.write_table(table, path, **options)
    read = orc.ORCFile(path).read()
    assert read.num_rows == table.num_rows
    write_expected(folder, rows, read)


def write_expected(folder, rows, read):
    expected = os.path.join(folder, f"{rows}.arrow")
    if not os.path.exists(expected):
        with pa.OSFile(expected, "wb") as sink, pa.ipc.new_file(
            sink, read.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")
        ) as writer:
            writer.write_table(read.combine_chunks())


def golden(folder):
    rng = random.Random(1)
    small = dict(batch_size=128, stripe_size=4096, row_index_stride=100)
    types = all_types(260, rng)
    write(folder, "types", "v1-zlib", types, file_version="0.11", compression="zlib", **small)
    write(folder, "types", "v2-zstd-dictionary", types, compression="zstd", dictionary_key_size_threshold=1.0, **small)
    write(folder, "types", "v2-lz4", types, compression="lz4", compression_block_size=65536)
    write(folder, "types", "v2-snappy", types, compression="snappy")
    write(folder, "types", "v1-none", types, file_version="0.11", compression="uncompressed", **small)
    numbers = all_integers(1050, rng)
    write(folder, "integers", "v1-none", numbers, file_version="0.11", compression="uncompressed")
    write(folder, "integers", "v2-none", numbers, compression="uncompressed")
    scan = scan_table(6_000, rng)
    write(
        folder, "scan", "stripes", scan, compression="uncompressed", batch_size=2000, stripe_size=1, row_index_stride=500,
        bloom_filter_columns=[1, 2, 3, 4], bloom_filter_fpp=0.01,
    )


def of_java(folder):
    """Files by ORC's writer in Java, which pyarrow has for its own tests."""
    for path in pathlib.Path(pa.__file__).parent.glob("tests/data/orc/*.orc"):
        rows = path.stem.replace("TestOrcFile.", "java-")
        shutil.copy(path, os.path.join(folder, f"{rows}.java.orc"))
        write_expected(folder, rows, orc.ORCFile(path).read())


def matrix(folder):
    of_java(folder)
    rng = random.Random(2)
    tables = {"types": all_types(3000, rng), "integers": all_integers(5000, rng), "none": all_types(0, rng)}
    compressions = ["uncompressed", "zlib", "snappy", "lz4", "zstd"]
    blocks = [1 << 16, 1 << 17, 1 << 18]
    stripes = [(1000, 4096), (1 << 20, 64 << 20)]
    for (rows, table), version, compression, block, (batch, stripe), dictionary in itertools.product(
        tables.items(), ["0.11", "0.12"], compressions, blocks, stripes, [0.0, 1.0]
    ):
        if rows == "integers" and dictionary == 1.0 or compression == "uncompressed" and block != 1 << 16:
            continue
        variant = f"{version[2:]}-{compression}-{block}-{stripe}-{dictionary:.0f}"
        write(
            folder, rows, variant, table, file_version=version, compression=compression, compression_block_size=block,
            batch_size=batch, stripe_size=stripe, row_index_stride=1000, dictionary_key_size_threshold=dictionary,
            compression_strategy=["speed", "compression"][block == 1 << 17],
        )


def convert(source, folder):
    import pyarrow.parquet as parquet

    os.makedirs(folder)
    for name in os.listdir(source):
        stem, extension = os.path.splitext(name)
        if extension == ".parquet":
            table = parquet.read_table(os.path.join(source, name))
            fields = [field.with_type(pa.string()) if pa.types.is_string_view(field.type) else field for field in table.schema]
            path = os.path.join(folder, f"{stem}.orc")
            orc.write_table(table.cast(pa.schema(fields)), path, compression="zlib", batch_size=8192, stripe_size=1 << 20)


if __name__ == "__main__":
    {"golden": golden, "matrix": matrix, "convert": convert}[sys.argv[1]](*sys.argv[2:])
