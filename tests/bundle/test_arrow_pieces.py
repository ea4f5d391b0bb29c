"""Arrow pieces of the units table that somebody changed and sealed again: a table, or our error, never a crash."""

from __future__ import annotations

import io
import random
import struct
from typing import Any

import pyarrow as pa
import pytest

from sidecar.bundle.units.arrow_tables import (
    FILE_SCHEMA,
    SCHEMAS_SCHEMA,
    decode_file_table,
    decode_table,
    encode_files,
    files_of,
)
from sidecar.errors import DamagedFileError, SidecarError
from tests.bundle.cases import units_table

FILES = 3


def stream_of(schema: pa.Schema, columns: list[Any]) -> bytes:
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, schema) as writer:
        writer.write_batch(pa.RecordBatch.from_arrays(columns, schema=schema))
    return sink.getvalue()


def texts_at(*offsets: int) -> bytes:
    """A piece with two texts whose offsets are these, right or wrong; pyarrow writes only right ones."""
    sound = stream_of(SCHEMAS_SCHEMA, [pa.array(["x" * 333, "x" * 666], pa.string())])
    written = struct.pack("<3i", 0, 333, 999)
    assert sound.count(written) == 1
    return sound.replace(written, struct.pack("<3i", *offsets))


@pytest.mark.parametrize(
    "offsets",
    [(0, 333, 1 << 30), (0, 1 << 30, 999), (0, -1 << 30, 999), (0, 333, 200)],
    ids=["end outside", "middle outside", "before the start", "falling"],
)
def test_texts_that_lie_elsewhere_are_damage(offsets: tuple[int, ...]) -> None:
    """Reading such a text would read memory of the process, or end it, so nothing is read before the check."""
    assert decode_table(texts_at(0, 333, 999), SCHEMAS_SCHEMA).num_rows == 2
    with pytest.raises(DamagedFileError, match="not an Arrow stream"):
        decode_table(texts_at(*offsets), SCHEMAS_SCHEMA)


def test_texts_that_are_not_utf8_are_damage() -> None:
    sound = texts_at(0, 333, 999)
    with pytest.raises(DamagedFileError, match="not an Arrow stream"):
        decode_table(sound.replace(b"x" * 999, b"x" * 998 + b"\xff"), SCHEMAS_SCHEMA)


@pytest.mark.parametrize("name", [field.name for field in FILE_SCHEMA if not field.nullable])
def test_nulls_where_values_are_required_are_damage(name: str) -> None:
    sound = decode_file_table(encode_files(units_table(FILES).files))
    at = FILE_SCHEMA.get_field_index(name)
    columns = [column.combine_chunks() for column in sound.columns]
    columns[at] = pa.nulls(FILES, columns[at].type)
    with pytest.raises(DamagedFileError, match="nulls"):
        decode_file_table(stream_of(FILE_SCHEMA, columns))


def test_nulls_inside_of_lists_are_damage() -> None:
    sound = decode_file_table(encode_files(units_table(FILES).files))
    columns = [column.combine_chunks() for column in sound.columns]
    at = FILE_SCHEMA.get_field_index("units")
    columns[at] = pa.array([[None]] * FILES, columns[at].type)
    with pytest.raises(DamagedFileError, match="nulls"):
        decode_file_table(stream_of(FILE_SCHEMA, columns))


def test_changed_bytes_give_files_or_our_error() -> None:
    data = encode_files(units_table(FILES).files)
    rng = random.Random(1)
    refused = 0
    for _ in range(400):
        changed = bytearray(data)
        changed[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
        try:
            files_of(decode_file_table(bytes(changed)))
        except SidecarError:
            refused += 1
    assert 50 < refused < 400
