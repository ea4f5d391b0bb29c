"""``sidecar-page-index-v1``: what a group of page indexes has in common, and which units stand in one.

The bytes lie as ``index_toc`` says; an entry is ColumnIndex and OffsetIndex, the Thrift bytes as the file has them
(either may be empty). Of a group, the table of contents further has

    encoding   how the files store the column: a name of the fixed registry
    resolution how the column was found in the files: "id" or "name:<path>"
    comparison how bounds compare: "signed:4", "bytes", "float:8", ...; "" if they have no known order
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
    """What the members of a group have in common: all that a reader must know of their files."""

    encoding: str
    resolution: str
    comparison: str = ""
    order: int = 0
    max_def: int = 0
    max_rep: int = 0


PageIndexGroup: TypeAlias = IndexGroup[PageIndexKind]


@dataclass(frozen=True)
class PageIndexMember:
    """The page index of one unit, by the lengths of its two structures (0: there is none)."""

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
    """Groups of one field's page indexes; each unit at most once. Raises :class:`UsageError`."""
    return plan_index_groups(PAGE_INDEXES, map(_checked, members))


def _checked(one: PageIndexMember) -> tuple[int, PageIndexKind, tuple[int, int]]:
    if not one.column_length and not one.offset_length:
        raise UsageError("a page index has an impossible size", found="nothing at all")
    return one.unit, one.kind, (one.column_length, one.offset_length)
