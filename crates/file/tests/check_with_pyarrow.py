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
    """The container's schema, per row group the bytes of every column, and the footer's metadata."""
    # Once mapped and once read into memory: alignment differs.
    with pa.memory_map(path) as mapped:
        batches = pa.ipc.open_file(mapped).num_record_batches
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == batches
        container = [(field.name, str(field.type)) for field in reader.schema]
        pointers = dict(reader.metadata)
        row_groups = []
        for index in range(batches):
            batch = reader.get_batch(index)
            batch.validate(full=True)
            row_groups.append(batch.column(0).to_pylist())
            assert all(isinstance(cell, bytes) for cell in row_groups[-1])
    # The same messages, as the stream that begins after the magic.
    with pa.OSFile(path) as file:
        file.seek(8)
        assert len(list(pa.ipc.open_stream(file))) == batches
    return container, row_groups, pointers


class Cursor:
    def __init__(self, data):
        self.data = data
        self.at = 0

    def take(self, format):
        values = struct.unpack_from("<" + format, self.data, self.at)
        self.at += struct.calcsize("<" + format)
        return values if len(values) > 1 else values[0]

    def number(self):
        value, shift = 0, 0
        while True:
            byte = self.take("B")
            value |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return value

    def text(self):
        length = self.number()
        self.at += length
        assert self.at <= len(self.data)
        return self.data[self.at - length : self.at]


def vectile_view(file, pointers):
    """What the Vectile footer says, with the bytes of every chunk."""
    version, offset, length, crc32 = pointers[b"vectile"].split(b",")
    assert version == b"2"
    footer = file[int(offset) : int(offset) + int(length)]
    assert zlib.crc32(footer) == int(crc32, 16)

    cursor = Cursor(footer)
    assert cursor.number() == 2
    schema = json.loads(cursor.text())
    names = [cursor.text().decode() for _ in range(cursor.number())]
    places = Places(file, cursor)
    row_groups = [places.row_group(schema, names) for _ in range(cursor.number())]
    assert places.end <= int(offset)
    statistics = [cursor.text() for _ in schema["fields"] if row_groups]
    assert cursor.at == len(footer)
    assert len(statistics) == (len(schema["fields"]) if row_groups else 0)
    return schema, row_groups


class Places:
    """Row groups and their parts, one behind the other."""

    def __init__(self, file, cursor):
        self.file = file
        self.cursor = cursor
        self.end = 8

    def row_group(self, schema, names):
        rows = self.cursor.number()
        self.end += self.cursor.number()
        chunks = [self.chunk(names) for _ in schema["fields"]]
        self.end += self.cursor.number()
        return {"rows": rows, "chunks": chunks}

    def chunk(self, names):
        has = self.cursor.take("B")
        assert has < 4
        encoding = names[self.cursor.number()]
        parts = [self.part() for kind in (1, 2) if has & kind] + [self.part()]
        arrow_bytes = self.cursor.number()
        cell = self.file[parts[0].start : parts[-1].stop]
        return {"encoding": encoding, "cell": cell, "arrow_bytes": arrow_bytes}

    def part(self):
        start = self.end + self.cursor.number()
        length, crc32 = self.cursor.number(), self.cursor.take("I")
        assert length < 4096 or start % 64 == 0
        self.end = start + length
        assert zlib.crc32(self.file[start : self.end]) == crc32
        return slice(start, self.end)


def main(path):
    container, batches, pointers = arrow_view(path)
    with open(path, "rb") as file:
        schema, row_groups = vectile_view(file.read(), pointers)
    for cells, group in zip(batches, row_groups, strict=True):
        for cell, chunk in zip(cells, group["chunks"], strict=True):
            # large data is aligned, even where it comes first
            assert cell.endswith(chunk["cell"])
    report = [
        {"rows": group["rows"], "encodings": [chunk["encoding"] for chunk in group["chunks"]]}
        for group in row_groups
    ]
    columns = pointers[b"vectile.columns"].decode()
    seen = {"container": container, "columns": columns, "schema": schema, "row_groups": report}
    print(json.dumps(seen))


main(sys.argv[1])
