"""Derive the recorded kind of row indexes from an ORC file, and decode stored entries.

A group's description has all facts about the file that :mod:`sidecar.orc.row_index` and :mod:`sidecar.orc.statistics`
need. So an entry can be decoded, and trusted as far as in its file, without opening the file.
"""

from __future__ import annotations

from typing import NamedTuple

from sidecar.bundle.row_index_blob import StoredRowIndex
from sidecar.bundle.row_index_toc import RowIndexKind
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.orc.bounds import statistics_bounds
from sidecar.orc.row_index import decode_entry, take_apart
from sidecar.orc.schema import OrcColumn
from sidecar.orc.statistics import ColumnStatistics, decode_statistics
from sidecar.orc.stripe import ColumnEncoding, StripeFooter
from sidecar.orc.tail import OrcTail
from sidecar.questions.bounds import Bounds


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


def decode_row_index(stored: StoredRowIndex) -> DecodedRowIndex:
    """Decode an entry. Raises :class:`DamagedFileError` for bytes that are not a row index."""
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
    statistics = None if message is None else decode_statistics(message, column, kind, kind.timezone or None)
    return DecodedRowIndex(positions, statistics)


def row_index_bounds(stored: StoredRowIndex, rows: int) -> Bounds | str:
    """What the row index of a unit of ``rows`` rows proves, as of one page, or why it proves nothing."""
    try:
        statistics = decode_row_index(stored).statistics
    except SidecarError as error:
        return error.what
    if statistics is None:
        return "it has no statistics"
    return statistics_bounds(statistics, _column(stored.kind), rows)


def _column(kind: RowIndexKind) -> OrcColumn:
    """Return the column as far as a group's description knows it."""
    return OrcColumn(
        id=0,
        path="",
        kind=kind.type,
        field_id=None,
        required=False,
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
