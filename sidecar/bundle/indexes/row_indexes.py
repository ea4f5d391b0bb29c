"""``sidecar-row-index-v1``: the RowIndexEntry messages of one field's units in ORC files, as unchanged bytes.

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

Nothing here checks an entry against its data file; :mod:`sidecar.orc.statistics.column_statistics` decides whether its
statistics can be believed. The facts above are all that it needs, so an entry can be decoded without opening the file.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from sidecar.bundle.envelopes.checksum import PieceKind
from sidecar.bundle.envelopes.envelope import ROW_INDEX_MAGIC, integer, member
from sidecar.bundle.indexes.index_blob import IndexBlob
from sidecar.bundle.indexes.index_toc import IndexForm
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.filters.leaf import ComparedColumn
from sidecar.puffin.types import ROW_INDEX
from sidecar.questions.bounds import Unknown

if TYPE_CHECKING:  # the first plan of a process loads what reads ORC only if a row index is decoded
    from sidecar.orc.schema import OrcColumn
    from sidecar.orc.statistics.column_statistics import ColumnStatistics
    from sidecar.orc.stripe import StripeFooter
    from sidecar.orc.tail import OrcTail
    from sidecar.questions.bounds import Bounds

_U32 = (1 << 32) - 1


class RowIndexKind(NamedTuple):
    """The facts that the members of a group share: all that a reader needs to know about their files and stripes."""

    resolution: str
    """How the column was found in the files."""
    type: str
    """The ORC type of the column."""
    column_encoding: str
    """The encoding of the column in the stripe."""
    has_present: bool
    """Whether the column has a stream that marks nulls."""
    compressed: bool
    """Whether streams are compressed."""
    writer: int
    """The number of the program that wrote the file."""
    writer_version: int
    """The version of that program, as the format counts it."""
    software_version: str = ""
    """The version of that program in words."""
    file_version: str = "0.12"
    """The version of the format."""
    calendar: str = "unknown"
    """The calendar of dates and times."""
    timezone: str = ""
    """The time zone of the writer."""
    precision: int = 0
    """The precision of a decimal."""
    scale: int = 0
    """The scale of a decimal."""
    repeated: bool = False
    """Whether the column is in a list or map."""
    nested: bool = False
    """Whether the column is in another one."""

    def compared(self, field_id: int, iceberg_type: str) -> ComparedColumn:
        """Return what bounds are compared as. Raises :class:`UnsupportedFeatureError` if they cannot be compared."""
        from sidecar.orc.statistics.bounds import compared_column

        return compared_column(self.type, self.scale, field_id, iceberg_type)


EntryKind: TypeAlias = PageIndexKind | RowIndexKind
"""The facts that a reader needs to use a page index or a row index."""


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

INDEX_FORMS: tuple[IndexForm[Any], ...] = (PAGE_INDEXES, ROW_INDEXES)
"""All forms of entries. A unit has an entry of one of them."""


class StoredRowIndex(NamedTuple):
    """The row index of one unit: the protobuf bytes of its RowIndexEntry."""

    entry: bytes
    kind: RowIndexKind

    @property
    def pieces(self) -> tuple[bytes, ...]:
        """The bytes that the blob has of it."""
        return (self.entry,)


class RowIndexBlob(IndexBlob[RowIndexKind, StoredRowIndex]):
    """The row indexes of one field of one segment."""

    form = ROW_INDEXES

    @staticmethod
    def _stored(parts: Sequence[bytes], kind: RowIndexKind) -> StoredRowIndex:
        return StoredRowIndex(parts[0], kind)


class DecodedRowIndex(NamedTuple):
    """The start of a row group in each stream of the column, and its statistics (``None`` if missing).

    ``positions`` are as :func:`sidecar.orc.row_index.take_apart` returns them.
    """

    positions: dict[str, tuple[int, ...]]
    statistics: ColumnStatistics | None


def row_index_kind(tail: OrcTail, footer: StripeFooter, column: OrcColumn, resolution: str) -> RowIndexKind:
    """Return what a sidecar records about a stripe's column together with its row indexes.

    Raises :class:`UsageError` for an encrypted column, because its row index must not leave the encrypted file.
    """
    if column.encrypted:
        raise UsageError("the row index of an encrypted column must not leave its file", column=column.path)
    encoding = footer.encodings[column.id]
    return RowIndexKind(
        resolution=resolution,
        type=column.kind,
        column_encoding=encoding.kind,
        has_present=footer.stream(column.id, "PRESENT") is not None,
        compressed=tail.compression != "NONE",
        writer=tail.writer,
        writer_version=tail.writer_version,
        software_version=tail.software_version or "",
        file_version=".".join(map(str, tail.file_version)),
        calendar=tail.calendar,
        timezone=footer.writer_timezone or "",
        precision=column.precision or 0,
        scale=column.scale or 0,
        repeated=column.nested_in_repeated,
        nested=column.nullable_parent,
    )


def decode_row_index(stored: StoredRowIndex, rows: int) -> DecodedRowIndex:
    """Decode the entry of a unit of ``rows`` rows. Raises :class:`DamagedFileError` for bytes that are not one."""
    from sidecar.orc.row_index import decode_entry, take_apart
    from sidecar.orc.statistics.column_statistics import Extent, decode_statistics
    from sidecar.orc.stripe import ColumnEncoding

    kind, entry = stored.kind, decode_entry(stored.entry)
    column = _column(kind)
    positions = take_apart(
        entry,
        column,
        ColumnEncoding(kind.column_encoding, 0, None),
        has_present=kind.has_present,
        compressed=kind.compressed,
        file_version=_version(kind.file_version),
    )
    message = entry.statistics
    extent = Extent.of(column, rows)
    statistics = None if message is None else decode_statistics(message, column, kind, kind.timezone or None, extent)
    return DecodedRowIndex(positions, statistics)


def row_index_bounds(stored: StoredRowIndex, rows: int) -> Bounds | Unknown:
    """What the row index of a unit of ``rows`` rows proves, as of one page, or why it proves nothing."""
    from sidecar.orc.statistics.bounds import statistics_bounds

    try:
        statistics = decode_row_index(stored, rows).statistics
    except SidecarError as error:
        return Unknown(error.what)
    return statistics_bounds(statistics, _column(stored.kind), rows)


def _column(kind: RowIndexKind) -> OrcColumn:
    """Return the column as far as a group's description knows it."""
    from sidecar.orc.schema import OrcColumn

    return OrcColumn(
        id=0,
        path="",
        kind=kind.type,
        field_id=None,
        precision=kind.precision or None,
        scale=kind.scale,
        max_length=None,
        parent=None,
        children=(),
        nested_in_repeated=kind.repeated,
        nullable_parent=kind.nested,
        encrypted=False,
    )


def _version(text: str) -> tuple[int, int]:
    major, _, minor = text.partition(".")
    if not (major.isdecimal() and minor.isdecimal() and len(text) <= 20):
        raise DamagedFileError("a row index has an impossible file version", found=text[:40])
    return int(major), int(minor)
