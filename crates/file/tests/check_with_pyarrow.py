"""Reads a Vectile table without Vectile: as the Arrow IPC file it is, and by docs/file-format.md.

Prints what is in it as JSON. Fails where the file is not as the page says.

usage: check_with_pyarrow.py TABLE.vectile
exits with 3 when pyarrow is not installed
"""

import json
import struct
import sys
import zlib

try:
    import pyarrow as pa
    import pyarrow.ipc
except ImportError:
    sys.exit(3)


def arrow_view(path):
    """The columns, per row group the parts of every column, and the footer's metadata."""
    # Once mapped and once read into memory: alignment differs.
    with pa.memory_map(path) as mapped:
        batches = pa.ipc.open_file(mapped).num_record_batches
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == batches
        columns = [describe(field) for field in reader.schema]
        pointers = dict(reader.metadata)
        row_groups = []
        for index in range(batches):
            batch = reader.get_batch(index)
            batch.validate(full=True)
            assert batch.num_rows == 1
            row_groups.append([column[0].as_py() for column in batch.columns])
    # The same messages, as the stream that begins after the magic.
    with pa.OSFile(path) as file:
        file.seek(8)
        assert len(list(pa.ipc.open_stream(file))) == batches
    return columns, row_groups, pointers


def describe(field):
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return {"name": field.name, "type": str(field.type), "metadata": metadata}


class Cursor:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, format):
        values = struct.unpack_from("<" + format, self.data, self.at)
        self.at += struct.calcsize("<" + format)
        return values if len(values) > 1 else values[0]

    def text(self):
        length = self.take("I")
        self.at += length
        assert self.at <= len(self.data)
        return self.data[self.at - length : self.at]


def vectile_view(file, pointers):
    """What the Vectile footer says, with the bytes of every chunk."""
    assert pointers[b"vectile.format_version"] == b"1"
    offset, length, crc32 = pointers[b"vectile.footer"].split(b",")
    footer = file[int(offset) : int(offset) + int(length)]
    assert zlib.crc32(footer) == int(crc32, 16)

    cursor = Cursor(footer)
    assert cursor.take("I") == 1
    schema = json.loads(cursor.text())
    names = [cursor.text().decode() for _ in range(cursor.take("I"))]
    row_groups = [row_group(file, cursor, schema, names) for _ in range(cursor.take("I"))]
    statistics = [cursor.text() for _ in schema["fields"] if row_groups]
    assert cursor.at == len(footer)
    assert len(statistics) == (len(schema["fields"]) if row_groups else 0)
    return schema, row_groups


def row_group(file, cursor, schema, names):
    rows, start, end = cursor.take("QQQ")
    chunks = []
    for _ in schema["fields"]:
        zones, data = part(file, cursor, start, end), part(file, cursor, start, end)
        encoding, arrow_bytes = cursor.take("IQ")
        chunks.append(
            {
                "encoding": names[encoding],
                "zones": zones,
                "data": data,
                "arrow_bytes": arrow_bytes,
            }
        )
    return {"rows": rows, "chunks": chunks}


def part(file, cursor, group_start, group_end):
    start, length, crc32 = cursor.take("QQI")
    assert start % 64 == 0 and group_start <= start and start + length <= group_end
    data = file[start : start + length]
    assert zlib.crc32(data) == crc32
    return data


def main(path):
    columns, batches, pointers = arrow_view(path)
    with open(path, "rb") as file:
        schema, row_groups = vectile_view(file.read(), pointers)
    assert [field["name"] for field in schema["fields"]] == [column["name"] for column in columns]
    for parts, group in zip(batches, row_groups, strict=True):
        for part, chunk in zip(parts, group["chunks"], strict=True):
            assert all(part[name] == chunk[name] for name in ("encoding", "zones", "data"))
    report = [
        {"rows": group["rows"], "encodings": [chunk["encoding"] for chunk in group["chunks"]]}
        for group in row_groups
    ]
    print(json.dumps({"columns": columns, "schema": schema, "row_groups": report}))


main(sys.argv[1])
