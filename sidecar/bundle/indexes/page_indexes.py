"""``sidecar-page-index-v1``: ColumnIndex and OffsetIndex of one field's units, as unchanged Thrift bytes.

``index_toc`` describes the byte layout. An entry is ColumnIndex and OffsetIndex, the Thrift bytes as the file has them
(either may be empty). The table of contents also has for each group

    encoding   how the files store the column: a name in the fixed registry
    resolution how the column was found in the files: "id" or "name:<path>"
    comparison how bounds compare: "signed:4", "bytes", "float:8", ...; "" if their order is unknown
    order      the files' column order: 1 TYPE_ORDER, 2 IEEE_754_TOTAL_ORDER, 3 INT96_TIMESTAMP_ORDER, 0 unknown
    max_def, max_rep   highest definition and repetition level

``comparison`` has the form ``KIND:WIDTH`` of :class:`sidecar.parquet.bounds.Ordering`, or just ``bytes`` or ``decimal``
for values without a fixed width. Nothing here checks an entry against its data file;
:mod:`sidecar.parquet.page_indexes.page_bounds` decides whether its bounds can be believed.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from sidecar.bundle.envelopes.checksum import PieceKind
from sidecar.bundle.envelopes.envelope import PAGE_INDEX_MAGIC, integer, member
from sidecar.bundle.indexes.index_blob import IndexBlob
from sidecar.bundle.indexes.index_toc import IndexForm
from sidecar.filters.column_types import ColumnType
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, ComparedColumn, Leaf
from sidecar.puffin.types import PAGE_INDEX
from sidecar.questions.bounds import Unknown

if TYPE_CHECKING:  # the first plan of a process loads what reads Parquet only if a page index is decoded
    from sidecar.parquet.bounds import Ordering
    from sidecar.parquet.footer import Footer
    from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex


class PageIndexKind(NamedTuple):
    """The facts that the members of a group share: all that a reader needs to know about their files."""

    encoding: str
    """The physical type of the bounds."""
    resolution: str
    """How the column was found in the files."""
    comparison: str = ""
    """How bounds compare; empty if they do not."""
    order: int = 0
    """The number of the column order in the file."""
    max_def: int = 0
    """The largest definition level."""
    max_rep: int = 0
    """The largest repetition level."""

    def compared(self, field_id: int, iceberg_type: str) -> ComparedColumn:
        """Return what bounds are compared as. Raises :class:`UnsupportedFeatureError` if they cannot be compared."""
        return leaf_of(self, field_id, iceberg_type).compared


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


class StoredPageIndex(NamedTuple):
    """The page index of one unit: Thrift bytes, ``None`` for a structure that the file lacks."""

    column_index: bytes | None
    offset_index: bytes | None
    kind: PageIndexKind

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes that the blob has of it; a structure that is missing is empty."""
        return self.column_index or b"", self.offset_index or b""


class PageIndexBlob(IndexBlob[PageIndexKind, StoredPageIndex]):
    """The page indexes of one field of one segment."""

    form = PAGE_INDEXES

    @staticmethod
    def _stored(parts: Sequence[bytes], kind: PageIndexKind) -> StoredPageIndex:
        column, offset = parts
        return StoredPageIndex(column or None, offset or None, kind)


_KINDS = ("boolean", "signed", "unsigned", "float", "int96", "bytes", "decimal")


class DecodedPageIndex(NamedTuple):
    """Both structures of a unit (``None`` if missing), and how its bounds compare or why they do not."""

    column_index: ColumnIndex | None
    offset_index: OffsetIndex | None
    ordering: Ordering | Unknown


def page_index_kind(footer: Footer, leaf: Leaf, resolution: str) -> PageIndexKind:
    """Return what a sidecar records about a file's column together with its page indexes."""
    from sidecar.parquet.bounds import find_ordering

    ordering = find_ordering(footer, leaf)
    comparison, order = "", 0
    if not isinstance(ordering, Unknown):
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
    from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index

    column, offset = stored.column_index, stored.offset_index
    return DecodedPageIndex(
        None if column is None else decode_column_index(column),
        None if offset is None else decode_offset_index(offset),
        ordering_of(stored.kind),
    )


def ordering_of(kind: PageIndexKind) -> Ordering | Unknown:
    """Return how the bounds of a group compare, or the reason why this is unknown."""
    from sidecar.parquet.bounds import Ordering

    if not kind.comparison:
        return Unknown("the order of the bounds is unknown")
    name, _, width = kind.comparison.partition(":")
    if name not in _KINDS or not (width.isdecimal() or not width) or len(width) > 4:
        return Unknown(f"the order '{kind.comparison[:40]}' of the bounds is not understood")
    return Ordering(name, int(width) if width else None, kind.order)
