"""The work that a file of many parts takes grows as its parts do: eight times the parts, eight times the steps."""

from __future__ import annotations

import contextlib
import gc
import json
import struct
import sys
import threading
from collections.abc import Callable
from io import BytesIO
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.errors import DamagedFileError, UsageError
from sidecar.orc.protobuf import Message, encode
from sidecar.orc.tail import read_tail
from sidecar.parquet.footer import TAIL, read_footer
from sidecar.parquet.thrift import I64, LIST, STRUCT, Items, Struct, encode_struct
from sidecar.storage.source import BytesSource

ROWS = 3


def many_stripes(path: Path, count: int) -> None:
    """A sound file of so many equal stripes."""
    out = BytesIO()
    orc.write_table(pa.table({"k": pa.array(range(ROWS), pa.int64())}), out, compression="uncompressed")
    data = out.getvalue()
    tail = read_tail(BytesSource(data))
    (stripe,) = tail.stripes
    raw = data[stripe.offset : stripe.end]
    stripes = []
    for number in range(count):
        fields = Message(list(stripe.information.fields))
        fields.set(1, 3 + number * len(raw))
        stripes.append(fields)
    tail.footer.set_all(3, stripes)
    tail.footer.set(6, count * ROWS)
    tail.footer.set_all(7, [])
    footer = encode(tail.footer)
    tail.postscript.set(1, len(footer))
    tail.postscript.set(5, None)
    postscript = encode(tail.postscript)
    path.write_bytes(b"ORC" + raw * count + footer + postscript + bytes([len(postscript)]))


def many_row_groups(path: Path, count: int) -> None:
    """A file of so many row groups that share one chunk."""
    out = BytesIO()
    pq.write_table(pa.table({"k": pa.array(range(ROWS), pa.int64())}), out, store_schema=False)
    data = out.getvalue()
    footer = read_footer(BytesSource(data))
    (group,) = footer.metadata.structs(4) or ()
    fields = footer.metadata.fields | {3: (I64, ROWS * count), 4: (LIST, Items(STRUCT, [group] * count))}
    raw = encode_struct(Struct(fields))
    path.write_bytes(data[: footer.offset] + raw + struct.pack("<I", len(raw)) + b"PAR1")


def many_blobs(path: Path, count: int) -> None:
    """A Puffin file of so many blobs without bytes."""
    blob = {"type": "x", "fields": [1], "snapshot-id": 1, "sequence-number": 1, "offset": 4, "length": 0}
    footer = json.dumps({"blobs": [blob] * count}).encode()
    path.write_bytes(b"PFA1PFA1" + footer + struct.pack("<I4s", len(footer), bytes(4)) + b"PFA1")


def inspect(path: str, folder: Path) -> object:
    return sidecar.inspect(path).only


def verify(path: str, folder: Path) -> object:
    return sidecar.verify(path)


def verify_data(path: str, folder: Path) -> object:
    return sidecar.verify(path, data=True)


def probe(path: str, folder: Path) -> object:
    return sidecar.probe(path, "k", "1").only


def scan(path: str, folder: Path) -> object:
    return sidecar.scan(path, "k = 77")


def extract(path: str, folder: Path) -> object:
    return sidecar.extract([path], fresh(folder / "extracted.puffin"))


def embed(path: str, folder: Path) -> object:
    return sidecar.embed(path, into=fresh(folder / f"embedded{Path(path).suffix}"), bloom=["k"]).only


def strip(path: str, folder: Path) -> object:
    return sidecar.strip(path, fresh(folder / f"stripped{Path(path).suffix}")).only


def fresh(path: Path) -> str:
    path.unlink(missing_ok=True)
    return str(path)


Door = Callable[[str, Path], object]
ALL = (inspect, verify, verify_data, probe, scan, extract, embed, strip)
FILES: list[tuple[str, Callable[[Path, int], None], int, tuple[Door, ...]]] = [
    ("stripes.orc", many_stripes, 50, ALL),
    ("groups.parquet", many_row_groups, 50, ALL),
    ("blobs.puffin", many_blobs, 250, (inspect, verify)),
]
CASES = [(name, make, count, door) for name, make, count, doors in FILES for door in doors]


def ask(door: Door, path: Path, folder: Path) -> None:
    with contextlib.suppress(UsageError):  # extract: the files have no index
        door(str(path), folder)


def steps(door: Door, path: Path, folder: Path) -> int:
    """How many lines of Python a door runs, each turn of a loop counted, in all of its threads."""
    counted = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal counted
        counted += 1
        return trace

    threading.settrace(trace)
    sys.settrace(trace)
    try:
        ask(door, path, folder)
    finally:
        sys.settrace(None)
        threading.settrace(None)  # type: ignore[arg-type]
    return counted


@pytest.mark.parametrize(
    ("name", "make", "count", "door"), CASES, ids=[f"{case[0]}-{case[3].__name__}" for case in CASES]
)
def test_eight_times_the_parts_take_eight_times_the_steps(
    tmp_path: Path, name: str, make: Callable[[Path, int], None], count: int, door: Any
) -> None:
    few, many = tmp_path / f"few-{name}", tmp_path / f"many-{name}"
    make(few, count)
    make(many, 8 * count)
    ask(door, few, tmp_path)  # what is imported and compiled once
    assert steps(door, many, tmp_path) < 9 * steps(door, few, tmp_path)


@pytest.mark.parametrize("is_on", [True, False])
def test_no_cycles_are_looked_for_in_a_long_footer(is_on: bool, tmp_path: Path) -> None:
    """Python would look through all that is decoded so far each time it has grown by some."""
    many_row_groups(tmp_path / "many.parquet", 1_000)
    data = (tmp_path / "many.parquet").read_bytes()
    first, _, last = data.rpartition(b"\x01k")  # the column's name in the last row group
    was_on, thresholds = gc.isenabled(), gc.get_threshold()
    gc.set_threshold(700, 10, 10)
    (gc.enable if is_on else gc.disable)()
    try:
        before = gc.get_stats()[0]["collections"]
        assert len(read_footer(BytesSource(data)).raw) > TAIL
        assert gc.isenabled() == is_on
        with pytest.raises(DamagedFileError, match="a different column"):
            read_footer(BytesSource(first + b"\x01j" + last))
        assert gc.isenabled() == is_on
        assert gc.get_stats()[0]["collections"] < before + 10
    finally:
        gc.set_threshold(*thresholds)
        (gc.enable if was_on else gc.disable)()
