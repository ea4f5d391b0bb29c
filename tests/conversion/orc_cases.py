"""ORC files by foreign writers, what was written into them, and sidecars asked for it."""

from __future__ import annotations

import json
import struct
from decimal import Decimal
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np

from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.filters.probes import FieldQuestion, ValueProbes
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.storage.local import LocalSource

DATA = Path(__file__).resolve().parents[1] / "data"
STRIDE = 1000
TYPES = {
    "c_tiny": "int",
    "c_small": "int",
    "c_int": "int",
    "c_big": "long",
    "c_float": "float",
    "c_double": "double",
    "c_sdict": "string",
    "c_sdir": "string",
    "c_vchar": "string",
    "c_bin": "binary",
    "c_date": "date",
    "c_dec10": "decimal(10, 2)",
    "c_dec18": "decimal(18, 6)",
    "c_dec38": "decimal(38, 18)",
}
PARQUET_TYPES = {
    "i32_opt": ("int", "<i"),
    "i8": ("int", "<i"),
    "u32": ("long", "<I"),
    "i64_opt": ("long", "<q"),
    "i64_desc": ("long", "<q"),
    "f64_zeros": ("double", "<d"),
    "f32_clean": ("float", "<f"),
    "str": ("string", ""),
    "bin": ("binary", ""),
    "lowcard": ("string", ""),
    "date": ("date", "<i"),
    "ts_us": ("timestamptz", "<q"),
}


def orc_file(name: str) -> Path:
    return DATA / "orc" / f"{name}.orc"


@lru_cache
def written(room: str) -> Any:
    return json.loads((DATA / room / "values.json").read_text())


def streams(path: Path) -> dict[tuple[int, str, str], bytes]:
    """Every stream of an ORC file by stripe, kind and column."""
    source = LocalSource(str(path))
    tail = read_tail(source)
    found = {
        (stripe.ordinal, stream.kind, tail.columns[stream.column].path): source.read(stream.offset, stream.length)
        for stripe in tail.stripes
        for stream in read_stripe_footer(source, tail, stripe).streams
    }
    source.close()
    return found


def segment_of(path: Path | str) -> Segment:
    (segment,) = SidecarFile.open(LocalSource(str(path)), strict=True).segments
    return segment


def field_of(segment: Segment, column: str) -> int:
    """The number of a column that was found by its name."""
    (field,) = {
        field for field, groups in segment.fields.items() for one in groups if one.resolution == f"name:{column}"
    }
    return field


def orc_literals(column: str) -> list[Any]:
    """The values of a column of the ORC files, None for nulls, as literals of its Iceberg type hold them."""
    return [None if cell is None else _literal(column, cell) for cell in written("orc")["columns"][column]]


def _literal(column: str, cell: Any) -> Any:
    if column in ("c_sdict", "c_sdir", "c_vchar"):
        text = bytes.fromhex(cell).decode()
        return text[:10] if column == "c_vchar" else text
    if column == "c_bin":
        return bytes.fromhex(cell)
    if column in ("c_float", "c_double"):
        return struct.unpack(">f" if column == "c_float" else ">d", bytes.fromhex(cell))[0]
    return int(cell) if column == "c_big" else Decimal(cell) if column.startswith("c_dec") else cell


def parquet_literals(column: str) -> list[Any]:
    """As :func:`orc_literals` for the Parquet files."""
    kind, form = PARQUET_TYPES[column]
    (cells,) = (one["values"] for one in written("parquet")["columns"] if one["name"] == column)
    raw = [None if cell is None else bytes.fromhex(cell) for cell in cells]
    if form:
        return [None if cell is None else struct.unpack(form, cell)[0] for cell in raw]
    return [cell if cell is None or kind == "binary" else cell.decode() for cell in raw]


def denied(segment: Segment, field: int, kind: str, values: list[Any], units: list[int], every: int = 7) -> list[Any]:
    """Values (some of each unit) that the segment's filters deny of the unit in which they were written."""
    wrong = []
    for unit in sorted(set(units)):
        inside = {v for v, u in zip(values, units, strict=True) if u == unit and v is not None and v == v}
        for value in sorted(inside, key=repr)[::every]:
            keep = segment.might_match(FieldQuestion(field, ValueProbes([value], kind)))
            if not keep[unit]:
                wrong.append((unit, value))
    return wrong


def is_asked(segment: Segment, field: int, kind: str, absent: list[Any]) -> bool:
    """Whether the filters rule anything out: else never denying is no merit."""
    return any(not np.all(segment.might_match(FieldQuestion(field, ValueProbes([v], kind)))) for v in absent)
