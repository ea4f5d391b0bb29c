"""``sidecar-page-index-v1``: the facts that a group of page indexes shares, and the plan of the groups.

``index_toc`` describes the byte layout. An entry is ColumnIndex and OffsetIndex, the Thrift bytes as the file has them
(either may be empty). The table of contents also has for each group

    encoding   how the files store the column: a name in the fixed registry
    resolution how the column was found in the files: "id" or "name:<path>"
    comparison how bounds compare: "signed:4", "bytes", "float:8", ...; "" if their order is unknown
    order      the files' column order: 1 TYPE_ORDER, 2 IEEE_754_TOTAL_ORDER, 3 INT96_TIMESTAMP_ORDER, 0 unknown
    max_def, max_rep   highest definition and repetition level
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, NamedTuple, TypeAlias

from sidecar.bundle.checksum import PieceKind
from sidecar.bundle.envelope import PAGE_INDEX_MAGIC, integer, member
from sidecar.bundle.index_toc import IndexForm, IndexGroup, plan_index_groups
from sidecar.errors import UsageError
from sidecar.puffin.types import PAGE_INDEX


class PageIndexKind(NamedTuple):
    """The facts that the members of a group share: all that a reader needs to know about their files."""

    encoding: str
    resolution: str
    comparison: str = ""
    order: int = 0
    max_def: int = 0
    max_rep: int = 0


PageIndexGroup: TypeAlias = IndexGroup[PageIndexKind]


@dataclass(frozen=True)
class PageIndexMember:
    """The page index of one unit to be planned. Lengths are in bytes; 0 if the structure is missing."""

    unit: int
    kind: PageIndexKind
    column_length: int
    offset_length: int


def _decode_kind(content: dict[str, Any]) -> PageIndexKind:
    return PageIndexKind(
        encoding=member(content, "encoding", str),
        resolution=member(content, "resolution", str),
        comparison=member(content, "comparison", str),
        order=integer(content, "order", 0, 255),
        max_def=integer(content, "max_def", 0, 1 << 15),
        max_rep=integer(content, "max_rep", 0, 1 << 15),
    )


PAGE_INDEXES = IndexForm(
    name="page-index",
    what="page index",
    blob_type=PAGE_INDEX,
    magic=PAGE_INDEX_MAGIC,
    entry=PieceKind.PAGE_INDEX,
    table=PieceKind.PAGE_INDEX_TABLE,
    parts=2,
    decode_kind=_decode_kind,
)


def plan_page_indexes(members: Iterable[PageIndexMember]) -> list[PageIndexGroup]:
    """Group one field's page indexes. Raises :class:`UsageError` if a unit occurs twice or has nothing."""
    return plan_index_groups(PAGE_INDEXES, map(_checked, members))


def _checked(index: PageIndexMember) -> tuple[int, PageIndexKind, tuple[int, int]]:
    if not index.column_length and not index.offset_length:
        raise UsageError(
            "a page index has neither a ColumnIndex nor an OffsetIndex", found=f"unit {index.unit}"
        )
    return index.unit, index.kind, (index.column_length, index.offset_length)
