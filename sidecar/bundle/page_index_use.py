"""Derive the recorded kind of page indexes from a file's footer, and decode stored entries.

A group's ``comparison`` names how bounds compare (:class:`sidecar.parquet.bounds.Ordering`): ``KIND:WIDTH``, or
just ``bytes`` or ``decimal`` for values without a fixed width.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.bundle.page_index_blob import StoredPageIndex
from sidecar.bundle.page_index_toc import PageIndexKind
from sidecar.errors import SidecarError
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.parquet.bounds import Ordering, find_ordering
from sidecar.parquet.footer import Footer
from sidecar.parquet.page_index import ColumnIndex, OffsetIndex, decode_column_index, decode_offset_index

_KINDS = ("boolean", "signed", "unsigned", "float", "int96", "bytes", "decimal")


class DecodedPageIndex(NamedTuple):
    """Both structures of a unit (``None`` if missing), and how its bounds compare or why they do not."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None
    ordering: Ordering | str


def page_index_kind(footer: Footer, leaf: Leaf, resolution: str) -> PageIndexKind:
    """Return what a sidecar records about a file's column together with its page indexes."""
    ordering = find_ordering(footer, leaf)
    comparison, order = "", 0
    if not isinstance(ordering, str):
        comparison = ordering.kind if ordering.width is None else f"{ordering.kind}:{ordering.width}"
        order = ordering.column_order
    return PageIndexKind(leaf.encoding.name, resolution, comparison, order, leaf.max_def, leaf.max_rep)


def leaf_of(kind: PageIndexKind, field_id: int, iceberg_type: str) -> Leaf:
    """Return the leaf that a group's encoding describes in a column of ``iceberg_type``. Its index is the field id.

    Raises :class:`UnsupportedFeatureError` for an unknown encoding.
    """
    encoding = Encoding.parse(kind.encoding)
    length = encoding.width if encoding.physical == "FIXED_LEN_BYTE_ARRAY" else None
    annotation = _annotation(encoding, iceberg_type)
    levels = kind.max_def, kind.max_rep
    return Leaf(field_id, (), field_id, encoding.physical, length, annotation, encoding, *levels)


def _annotation(encoding: Encoding, iceberg_type: str) -> Annotation:
    if encoding.scale is not None:
        return Annotation("DECIMAL", scale=encoding.scale)
    detail = encoding.name.partition("/")[2]
    if detail:
        kind, _, unit = detail.partition("-")
        return Annotation(kind.upper(), unit=unit, utc=ColumnType.parse(iceberg_type).zoned)
    if encoding.name.startswith("uint"):
        return Annotation("INTEGER", signed=False)
    if encoding.name in ("float16", "interval"):
        return Annotation(encoding.name.upper())
    column = ColumnType.parse(iceberg_type)
    is_named = column.family in ("string", "uuid") and encoding.name == column.encoding
    return Annotation(column.family.upper() if is_named else "")


def decode_page_index(stored: StoredPageIndex) -> DecodedPageIndex:
    """Decode an entry. Raises :class:`DamagedFileError` for bytes that are not a page index."""
    column, offset = stored.column_index, stored.offset_index
    return DecodedPageIndex(
        None if column is None else decode_column_index(column),
        None if offset is None else decode_offset_index(offset),
        ordering_of(stored.kind),
    )


def ordering_of(kind: PageIndexKind) -> Ordering | str:
    """Return how the bounds of a group compare, or the reason why this is unknown."""
    if not kind.comparison:
        return "the order of the bounds is unknown"
    name, _, width = kind.comparison.partition(":")
    if name not in _KINDS or not (width.isdecimal() or not width) or len(width) > 4:
        return f"the order '{kind.comparison[:40]}' of the bounds is not understood"
    return Ordering(name, int(width) if width else None, kind.order)


def problem_of(stored: StoredPageIndex) -> str:
    """Return why an entry's bytes are not a page index; empty if they are one."""
    try:
        decode_page_index(stored)
    except SidecarError as error:
        return error.what
    return ""
