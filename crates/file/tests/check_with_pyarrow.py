"""Opens a Vectile table as the Arrow IPC file it is and prints what is in it as JSON.

usage: check_with_pyarrow.py TABLE.vectile
exits with 3 when pyarrow is not installed
"""

import json
import sys

try:
    import pyarrow as pa
    import pyarrow.ipc
except ImportError:
    sys.exit(3)


def describe(field):
    metadata = {key.decode(): value.decode() for key, value in (field.metadata or {}).items()}
    return {"name": field.name, "type": str(field.type), "metadata": metadata}


def main(path):
    # Once mapped and once read into memory: alignment differs.
    with pa.memory_map(path) as mapped:
        batches = pa.ipc.open_file(mapped).num_record_batches
    with pa.OSFile(path) as file:
        reader = pa.ipc.open_file(file)
        assert reader.num_record_batches == batches
        row_groups = []
        for index in range(batches):
            batch = reader.get_batch(index)
            batch.validate(full=True)
            row_groups.append(
                {
                    "rows": batch.num_rows,
                    "encodings": [row[0]["encoding"].as_py() for row in batch.columns],
                    "data_bytes": [len(row[0]["data"].as_py()) for row in batch.columns],
                }
            )
        columns = [describe(field) for field in reader.schema]
    # The same messages, as the stream that begins after the magic.
    with pa.OSFile(path) as file:
        file.seek(8)
        assert len(list(pa.ipc.open_stream(file))) == batches
    print(json.dumps({"columns": columns, "row_groups": row_groups}))


main(sys.argv[1])
