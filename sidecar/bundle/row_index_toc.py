"""``sidecar-row-index-v1``: the facts that a group of ORC row indexes shares, and the plan of the groups.

``index_toc`` describes the byte layout. An entry is one RowIndexEntry (statistics and positions of one row group), the
protobuf bytes as the stripe's ROW_INDEX stream has them. An entry cannot be understood without facts from elsewhere in
the file, so the table of contents also has for each group

    resolution how the column was found in the files: "id" or "name:<path>"
    type       the column's ORC type: "INT", "STRING", "DECIMAL", ...
    precision, scale   of a decimal; 0 for other types or if the file does not state them
    repeated   whether the column is inside a list, map or union, so that a row can have any number of values
    nested     whether the column is inside any type but the root; where that is null, the column has no value
    column_encoding    how the stripe encodes it: "DIRECT", "DICTIONARY", "DIRECT_V2", "DICTIONARY_V2"
    has_present        whether the stripe has a PRESENT stream for it; positions begin with those of that stream
    compressed         whether streams are compressed; a position is then a chunk and an offset in it
    timezone   the stripe's writer timezone, "" if it names none; statistics of timestamps may be in it
    calendar   for dates and timestamps: "unknown", "julian_gregorian", "proleptic_gregorian"
    writer, writer_version   numbers of Footer.writer and PostScript.writerVersion
    software_version   text, "" if the file states none
    file_version       "0.11", "0.12", or "1.9999", which writers call UNSTABLE-PRE-2.0
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sidecar.bundle.checksum import PieceKind
from sidecar.bundle.envelope import ROW_INDEX_MAGIC, integer, member
from sidecar.bundle.index_toc import IndexForm, IndexGroup, plan_index_groups
from sidecar.puffin.types import ROW_INDEX

_U32 = (1 << 32) - 1


class RowIndexKind(NamedTuple):
    """The facts that the members of a group share: all that a reader needs to know about their files and stripes."""

    resolution: str
    type: str
    column_encoding: str
    has_present: bool
    compressed: bool
    writer: int
    writer_version: int
    software_version: str = ""
    file_version: str = "0.12"
    calendar: str = "unknown"
    timezone: str = ""
    precision: int = 0
    scale: int = 0
    repeated: bool = False
    nested: bool = False


RowIndexGroup: TypeAlias = IndexGroup[RowIndexKind]


@dataclass(frozen=True)
class RowIndexMember:
    """The row index of one unit to be planned. ``length`` is the bytes of its RowIndexEntry."""

    unit: int
    kind: RowIndexKind
    length: int


def _decode_kind(content: dict[str, Any]) -> RowIndexKind:
    return RowIndexKind(
        resolution=member(content, "resolution", str),
        type=member(content, "type", str),
        column_encoding=member(content, "column_encoding", str),
        has_present=member(content, "has_present", bool),
        compressed=member(content, "compressed", bool),
        writer=integer(content, "writer", 0, _U32),
        writer_version=integer(content, "writer_version", 0, _U32),
        software_version=member(content, "software_version", str),
        file_version=member(content, "file_version", str),
        calendar=member(content, "calendar", str),
        timezone=member(content, "timezone", str),
        precision=integer(content, "precision", 0, _U32),
        scale=integer(content, "scale", 0, _U32),
        repeated=member(content, "repeated", bool),
        nested=member(content, "nested", bool),
    )


ROW_INDEXES = IndexForm(
    name="row-index",
    what="row index",
    blob_type=ROW_INDEX,
    magic=ROW_INDEX_MAGIC,
    entry=PieceKind.ROW_INDEX,
    table=PieceKind.ROW_INDEX_TABLE,
    parts=1,
    decode_kind=_decode_kind,
)


def plan_row_indexes(members: Iterable[RowIndexMember]) -> list[RowIndexGroup]:
    """Group one field's row indexes. Raises :class:`UsageError` if a unit occurs twice."""
    return plan_index_groups(ROW_INDEXES, ((index.unit, index.kind, (index.length,)) for index in members))
