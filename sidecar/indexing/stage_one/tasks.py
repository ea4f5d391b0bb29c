"""Runs stage 1 of a build: makes filters, page indexes and sketches from data files. Both engines run it.

A task is a list of pieces: whole files, or byte ranges of a large file. A row group (in ORC: a stripe) belongs to the
piece in whose range it begins. So files can be split before any footer is read, and every unit is indexed exactly once.
Each column of each *unit* is indexed in the cheapest way:

1. **reused**: the file has a trusted filter that is good enough;
2. **dictionary** (Parquet): every data page is proven to be dictionary-encoded, so the dictionary page has all
   values (for a sketch, only the entries that data pages use);
3. **scanned**: the values are decoded once, for filter and sketch together.

Damage costs only what it hits: a bad footer costs the piece's file, anything else one column of a row group or stripe.
The loss is a reason in the record. It is never an exception, and never an index that lacks values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from sys import intern
from typing import NamedTuple

from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from sidecar.access import Access
from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.model import UnitEntry, UnitState
from sidecar.conversion.outcome import DICTIONARY, EXACT, NONE, VALUES
from sidecar.data_files.formats import Metadata, has_encrypted_footer, open_with, plain_source, read_metadata
from sidecar.data_files.open_file import DataLeaf, OpenFile
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import DamagedFileError, advisory
from sidecar.iceberg.resolve import ColumnsInFile, FoundColumn, TableColumn
from sidecar.indexing.columns import ColumnResult, FilterFacts, Options
from sidecar.indexing.sketches import TaskSketches, Thresholds
from sidecar.indexing.stage_one.data_file import DataFile, PagesResult, WantedColumn, describe
from sidecar.indexing.stage_one.fault import fault_of, reason_of
from sidecar.indexing.stage_one.orc_file import OrcDataFile
from sidecar.indexing.stage_one.parquet_file import ParquetDataFile
from sidecar.questions.bounds import Unknown
from sidecar.storage.source import Source

ORIGINS = {NONE: "", EXACT: "reused", DICTIONARY: "dictionary", VALUES: "scanned"}
"""The words of a build's report for where a filter came from."""


class StageResult(NamedTuple):
    """One result of stage 1. ``kind`` says which fields are used.

    - ``unit``: a unit of the file, with ``file``, ``row_group`` and its ``entry``.
    - ``column``: one column of that unit, with its filter if there is one.
    - ``pages``: the page index of that column if there is one: ``data`` is ColumnIndex, then OffsetIndex; for an ORC
      file it is the RowIndexEntry.
    - ``sketch``: the theta sketch of column ``field_id`` over the task's files of ``sketch_group``; ``data`` is the
      compact sketch.
    - ``file``: the file cannot be indexed at all, because of ``reason``.
    - ``encrypted``: column ``field_id`` is encrypted in the file; -1 means that any column may be.
    """

    kind: str
    file: int
    row_group: int = -1
    field_id: int = -1
    entry: UnitEntry | None = None
    """The unit's entry in the units table."""
    resolution: str = ""
    how: str = ""
    """Where the filter came from: ``reused``, ``dictionary`` or ``scanned``; for a page index also ``built``."""
    data: bytes | None = None
    """The filter's whole blocks (an ORC filter is padded with zeros), a page index, or the sketch."""
    filter: FilterFacts = FilterFacts()
    reason: str = ""
    """Why there is no filter; empty if there is one, or if none was requested."""
    theta_reason: str = ""
    """Why the sketch does not count this unit; empty if it does, or if none was requested."""
    fault: str = ""
    """``damage`` if bytes could not be decoded, ``storage`` if they could not be read, else empty."""
    rate: float = 0.0
    """False-positive rate of the filter, estimated from its bits."""
    bytes_read: int = 0
    length: int = 0
    """Bytes of the page index or row index; 0 without one."""
    column_length: int = 0
    """Bytes of the ColumnIndex, which is the first part of ``data``."""
    described: str = ""
    """The facts that a reader needs to use the index, as :func:`.data_file.describe` writes them."""
    sketch_group: int = 0
    """The number of the group of files that a sketch counts."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of ``data`` if it is a filter's blocks, a page index or a row index; else 0."""
        return self.length if self.kind == "pages" else self.filter.blocks * BLOCK_BYTES


@dataclass(frozen=True)
class FilePiece:
    """The units of one file that begin in the bytes ``[start, stop)``."""

    file: int
    path: str
    size: int
    start: int
    stop: int
    format: FileFormat = FileFormat.PARQUET
    identity: Mapping[int, bool] = field(default_factory=dict)
    """:attr:`sidecar.iceberg.listing.SnapshotFile.identity` of the file."""
    group: int = 0
    """The number of the group of files whose values one sketch counts."""


@dataclass(frozen=True)
class UnitsTask:
    """One task of stage 1."""

    number: int
    pieces: tuple[FilePiece, ...]


@dataclass(frozen=True)
class BuildPlan:
    """The parts of a build that all its tasks share."""

    columns: tuple[TableColumn, ...]
    schema: Schema
    """The schema of the snapshot; sketches hash values in its types."""
    name_mapping: NameMapping | None
    options: Options
    access: Access
    """Opens the data files. On Spark its keys travel in the shipped functions, as the secrets of its FileIO do."""

    def fixed_rates(self) -> dict[int, float]:
        """Return the rate that filters of a column must be built for, by field id, where not any rate will do."""
        each = {column.field_id: self.options.of(column.field_id) for column in self.columns}
        return {field_id: options.fpp for field_id, options in each.items() if not options.any_rate}


@dataclass(frozen=True)
class ProcessCaches:
    """State that the tasks of one process share: a reader of files' metadata, which may cache, and known thetas."""

    metadata: Callable[[Source, str], Metadata] = read_metadata
    thresholds: dict[int, Thresholds] = field(default_factory=dict)
    """Known thetas by group."""


def index_units(task: UnitsTask, plan: BuildPlan, shared: ProcessCaches | None = None) -> Iterator[StageResult]:
    """Index the task's row groups and yield the records.

    The records of a unit follow each other. The sketches of a group of files come after its files.
    """
    shared = shared or ProcessCaches()
    for group, pieces in groupby(task.pieces, key=lambda piece: piece.group):
        sketches = TaskSketches(shared.thresholds.setdefault(group, {}))
        last = -1
        for piece in pieces:
            yield from _index_piece(piece, plan, shared, sketches)
            last = piece.file
        for field_id, sketch in sorted(sketches.united.items()):
            yield StageResult("sketch", last, field_id=field_id, data=sketch.to_bytes(), sketch_group=group)


def _index_piece(
    piece: FilePiece, plan: BuildPlan, shared: ProcessCaches, sketches: TaskSketches
) -> Iterator[StageResult]:
    try:
        source = plan.access.open(piece.path, piece.size)
    except Exception as error:  # a FileIO may raise anything
        yield StageResult("file", piece.file, reason=reason_of(error), fault=fault_of(error))
        return
    try:
        _check_size(source, piece)
        source = plain_source(source, piece.format.value, plan.access.keys)
        opened = open_with(source, shared.metadata(source, piece.format.value))
        columns = ColumnsInFile(opened.leaves, plan.schema, plan.name_mapping, piece.identity)
        found = {column.field_id: columns.find(column.field_id) for column in plan.columns}
    except Exception as error:  # a broken footer may cause any error; it costs this file alone
        advisory(error)
        if has_encrypted_footer(source):
            yield StageResult("encrypted", piece.file)
        source.close()
        yield StageResult("file", piece.file, reason=reason_of(error), fault=fault_of(error))
        return
    # A column that could be decrypted is still not indexed unless the caller allows it: the sidecar would leak it.
    for field_id, leaf in _encrypted_fields(opened, columns, plan):
        yield StageResult("encrypted", piece.file, field_id=field_id)
        if field_id in found and not opened.is_locked(leaf) and not plan.options.may_index(field_id):
            found[field_id] = Unknown(UnitState.REFUSED)
    wanted = {
        column.field_id: WantedColumn(column.type, where.leaf, where.resolution)
        for column in plan.columns
        if isinstance(where := found[column.field_id], FoundColumn)
    }
    file = _data_file_of(opened, plan.options, sketches)
    try:
        for unit in file.index(piece.start, piece.stop, wanted):
            entry = unit.entry
            yield StageResult("unit", piece.file, entry.row_group, entry=entry)
            for column in plan.columns:
                where = found[column.field_id]
                if isinstance(where, Unknown):
                    yield from _absent(piece.file, entry, column, where.reason, plan)
                    continue
                result = unit.columns[column.field_id]
                # The chunk was read to its end. A damaged chunk has no sketch here, so its values do not count.
                if result.sketch is not None:
                    sketches.add(column.field_id, result.sketch)
                yield _column(piece.file, entry, column.field_id, where.resolution, result)
                if column.field_id in unit.pages:
                    yield _pages(piece.file, entry, column.field_id, unit.pages[column.field_id])
    finally:
        file.close()
        source.close()


def _data_file_of(file: OpenParquet | OpenOrc, options: Options, sketches: TaskSketches) -> DataFile:
    """Return ``file``, ready to be indexed."""
    return (
        OrcDataFile(file, options, sketches) if isinstance(file, OpenOrc) else ParquetDataFile(file, options, sketches)
    )


def _check_size(source: Source, piece: FilePiece) -> None:
    """Raise :class:`DamagedFileError` unless the file has the size that the table says.

    Pieces are cut by that size. Row groups beyond it would belong to none, and the file would be dropped without them.
    """
    if source.size != piece.size:
        raise DamagedFileError(
            "the file's size differs from the table's metadata", expected=piece.size, found=source.size
        )


def _encrypted_fields(
    file: OpenFile, columns: ColumnsInFile[DataLeaf], plan: BuildPlan
) -> Iterator[tuple[int, DataLeaf]]:
    """Yield the table's fields, requested or not, that are encrypted in the file.

    Fields that are not requested matter too: the bounds in their manifest entries must not go into the sidecar.
    """
    if not any(file.is_encrypted(leaf) for leaf in file.leaves):
        return
    for field_id in sorted(plan.schema.field_ids):
        if plan.schema.find_type(field_id).is_primitive:
            found = columns.find(field_id)
            if isinstance(found, FoundColumn) and file.is_encrypted(found.leaf):
                yield field_id, found.leaf


def _column(file: int, unit: UnitEntry, field_id: int, resolution: str, result: ColumnResult) -> StageResult:
    return StageResult(
        "column",
        file,
        unit.row_group,
        field_id,
        resolution=resolution,
        how=ORIGINS[result.outcome.way],
        data=result.bitset,
        filter=result.filter,
        reason=result.outcome.reason,
        theta_reason=result.theta_reason,
        fault=result.fault,
        rate=result.outcome.rate_after or 0.0,
        bytes_read=result.bytes_read,
    )


def _pages(file: int, unit: UnitEntry, field_id: int, pages: PagesResult) -> StageResult:
    return StageResult(
        "pages",
        file,
        unit.row_group,
        field_id,
        resolution=pages.kind.resolution,
        how=pages.how,
        data=b"".join(pages.parts) or None,
        reason=pages.reason,
        fault=pages.fault,
        bytes_read=pages.bytes_read,
        length=sum(map(len, pages.parts)),
        column_length=len(pages.parts[0]),
        described=intern(describe(pages.kind)),
    )


def _absent(file: int, unit: UnitEntry, column: TableColumn, reason: str, plan: BuildPlan) -> Iterator[StageResult]:
    """Yield the records of a column that the file does not have.

    Its values are not always null: the column may have a default, or a partition's constant. Only if it has neither are
    all values null; then a sketch covers the unit without counting anything.
    """
    options = plan.options.of(column.field_id)
    nothing = reason == UnitState.ABSENT and plan.schema.find_field(column.field_id).initial_default is None
    yield StageResult(
        "column",
        file,
        unit.row_group,
        column.field_id,
        reason=reason if options.bloom else "",
        theta_reason=reason if options.theta and not nothing else "",
    )
    if options.page_index:
        yield StageResult("pages", file, unit.row_group, column.field_id, reason=reason)
