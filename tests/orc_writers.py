"""ORC files as odd writers leave them: the same rows, with other zones, versions and statistics, or without indexes.

Files are written by pyarrow, then taken apart and put together otherwise. So any table of rows has an odd file too.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from pyiceberg.schema import Schema

from sidecar.orc.tail import CUDF, GO, PRESTO, TRINO
from tests.orc.lies import Statements, no_values, nothing_but_zero
from tests.orc_cases import write_orc

ZONES = ("America/Los_Angeles", "Europe/Berlin", "Asia/Kolkata", "Australia/Lord_Howe", "Africa/Casablanca")
EPOCH = datetime(1970, 1, 1)


def without_row_index(statements: Statements) -> None:
    """As ORC Java writes with ``orc.create.index=false``: nothing is counted either."""
    for stripe in statements.stripes:
        stripe.streams = [stream for stream in stripe.streams if not stream.is_index]
    statements.tail.footer.set(8, 0)
    statements.of_all(no_values)


def without_statistics_of_stripes(statements: Statements) -> None:
    statements.metadata = b""


def without_any_statistics(statements: Statements) -> None:
    """As cuDF writes them, and the oldest writers of Hive."""
    statements.metadata = b""
    statements.tail.footer.set_all(7, [])
    for stripe in range(len(statements.stripes)):
        statements.each_entry(stripe, lambda entry: entry.set(2, None))


def without_counts_of_nulls(statements: Statements) -> None:
    """As writers before the field ``hasNull``."""
    statements.of_all(lambda message: message.set(10, None))
    for stripe in range(len(statements.stripes)):
        statements.each_statistics(stripe, lambda message: message.set(10, None))


def with_compacted_statistics(statements: Statements) -> None:
    statements.of_all(nothing_but_zero)


def by_another_writer(statements: Statements) -> None:
    """By one whose filters are not compared with those of others."""
    number = (PRESTO, TRINO, GO, CUDF, 77)[len(statements.metadata) % 5]
    statements.tail.footer.set(9, number)
    statements.tail.footer.set(12, None)


ODDITIES: dict[str, Callable[[Statements], None]] = {
    "no row index": without_row_index,
    "no statistics of stripes": without_statistics_of_stripes,
    "no statistics": without_any_statistics,
    "no counts of nulls": without_counts_of_nulls,
    "statistics of 0 values": with_compacted_statistics,
    "another writer": by_another_writer,
}


def odd(data: bytes, name: str) -> bytes:
    """The file with an oddity of :data:`ODDITIES`."""
    statements = Statements(data)
    ODDITIES[name](statements)
    return statements.file()


def in_zone(data: bytes, zone: str) -> bytes:
    """The file as by a writer in another zone. Its timestamps are those of :func:`for_zone` then."""
    statements = Statements(data)
    for stripe in statements.stripes:
        stripe.footer.set(3, zone.encode())
    return statements.file()


def for_zone(column: pa.ChunkedArray[Any], zone: str) -> Any | None:
    """What pyarrow, whose zone is UTC, must write of timestamps so that they are read back in ``zone``.

    Seconds are counted from 2015 on the wall clock of the zone. ``None`` if a timestamp is in an hour that is left out.
    """
    info, unit = ZoneInfo(zone), column.type.unit
    second = {"s": 1, "ms": 1_000, "us": 1_000_000, "ns": 1_000_000_000}[unit]
    base = _offset(datetime(2015, 1, 1), info)
    moved: list[int | None] = []
    for count in column.cast(pa.int64()).to_pylist():
        if count is None:
            moved.append(None)
            continue
        wall = EPOCH + timedelta(seconds=count // second)
        if not 1920 < wall.year < 9990:
            return None  # local mean times
        offset = _offset(wall, info)
        instant = (wall - offset).replace(tzinfo=ZoneInfo("UTC"))
        if instant.astimezone(info).replace(tzinfo=None) != wall:
            return None
        moved.append(count + ((base - offset) // timedelta(seconds=1)) * second)
    return pa.chunked_array([pa.array(moved, pa.int64()).cast(column.type)])


def _offset(wall: datetime, info: ZoneInfo) -> timedelta:
    found = wall.replace(tzinfo=info).utcoffset()
    assert found is not None
    return found


def write_oddly(path: Path, table: pa.Table, schema: Schema, rng: random.Random) -> Path:
    """Write ``table`` (Parquet's types) to ``path`` as :func:`tests.orc_cases.write_orc` does, but as an odd writer."""
    zone, oddity = rng.choice([None, None, *ZONES]), rng.choice([None, None, *ODDITIES])
    moved, options = table, random_options(rng, table.num_rows)
    for at, field in enumerate(table.schema):
        if zone is not None and pa.types.is_timestamp(field.type) and field.type.tz is None:
            column = for_zone(table.column(at), zone)
            zone = None if column is None else zone
            moved = table if column is None else moved.set_column(at, field, column)
    if oddity != "another writer" and rng.random() < 0.5:
        options["bloom_filter_columns"] = [number for number in (1, 3, 4) if number <= table.num_columns]
    write_orc(path, moved, schema, **options)
    data = path.read_bytes()
    data = data if zone is None else in_zone(data, zone)
    path.write_bytes(data if oddity is None else odd(data, oddity))
    return path


def random_options(rng: random.Random, rows: int) -> dict[str, Any]:
    """Options of pyarrow's writer: files of many stripes and row groups, all codecs, with and without filters."""
    return {
        "row_index_stride": rng.choice([3, 10, 50, 1_000]),
        "batch_size": rng.choice([4, 20, max(rows, 1)]),
        "stripe_size": rng.choice([1, 1 << 16, 1 << 26]),
        "compression": rng.choice(["uncompressed", "zlib", "zstd", "snappy", "lz4"]),
        "dictionary_key_size_threshold": rng.choice([0.0, 0.5, 1.0]),
    }
