"""Reads the history rows of a W&B offline run back from its file."""

import json
import struct
from pathlib import Path

from wandb.proto import wandb_internal_pb2


def history(folder: Path) -> list[dict]:
    """All history rows of the one offline run below `folder`; the file is a LevelDB log of protobuf records."""
    (path,) = folder.glob("**/run-*.wandb")
    data = path.read_bytes()
    assert data[:4] == b":W&B"
    position, buffer, rows = 7, b"", []
    while position + 7 <= len(data):
        room = 32768 - position % 32768
        if room < 7:  # the block's trailer
            position += room
            continue
        _, length, kind = struct.unpack("<IHB", data[position : position + 7])
        position += 7
        if kind == 0 or position + length > len(data):
            break
        buffer += data[position : position + length]
        position += length
        if kind in (1, 4):  # a whole record, or the last piece of one
            record = wandb_internal_pb2.Record()
            record.ParseFromString(buffer)
            buffer = b""
            if record.WhichOneof("record_type") == "history":
                items = record.history.item
                rows.append({item.key or ".".join(item.nested_key): json.loads(item.value_json) for item in items})
    return rows
