"""Stage 1 of a build: from data files to filters and sketches. Pure over byte sources; both engines run it.

A task is a list of pieces: whole files, or byte ranges of a large one. A row group (of ORC: a stripe) belongs to
the piece in whose range it begins, so files can be split before anybody has read a footer, and every unit is
indexed exactly once. For each column of each *unit* the cheapest way is taken:

1. **harvested**: the file has a trusted filter that is good enough;
2. **dictionary** (Parquet): every data page is proven to be dictionary-encoded, so the dictionary page has all
   values (for a sketch, only the entries that data pages use);
3. **scanned**: the values are decoded once, for filter and sketch together.

Damage costs what it hits: a bad footer the piece's file, anything else one column of a row group or stripe. What
is lost is a reason in the record, never an exception, and never an entry.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from sys import intern
from typing import NamedTuple

from pyiceberg.io import FileIO, load_file_io
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.bundle.filters.rules import SPLIT_BLOCK, IndexRule, OrcRule
from sidecar.bundle.model import UnitEntry, UnitState
from sidecar.convert.outcome import DICTIONARY, EXACT, NONE, VALUES
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError, UsageError, advisory
from sidecar.iceberg.resolve import FileLeaf, FoundColumn, MissingColumn, TableColumn, resolve_in_file
from sidecar.indexing.columns import ColumnResult, Options
from sidecar.indexing.data_file import DataFile, PagesResult, WantedColumn, describe
from sidecar.indexing.fault import fault_of, reason_of
from sidecar.indexing.formats import Metadata, open_data_file, read_metadata
from sidecar.indexing.sketches import TaskSketches, Thresholds
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import read_tail
from sidecar.source import Source, local_path, open_source

ORIGINS = {NONE: "", EXACT: "harvested", DICTIONARY: "dictionary", VALUES: "scanned"}
"""Where a filter came from, in the words of a build's report."""

Opener = Callable[[str, int], Source]
"""Opens the file at a location whose length is known."""


class TableOpener:
    """An opener for the files of a table, fit to be sent to other processes.

    The properties of the table's FileIO may hold secrets: they are neither shown nor compared.
    """

    def __init__(self, properties: Mapping[str, str], location: str, io: FileIO | None = None) -> None:
        self._properties = dict(properties)
        self._location = location
        self._io = io

    def __call__(self, path: str, size: int) -> Source:
        """The file at ``path``; local ones are opened directly."""
        if local_path(path) is not None:
            return open_source(path, size=size)
        if self._io is None:
            self._io = load_file_io(self._properties, self._location)
        return open_source(path, self._io, size)

    def __getstate__(self) -> dict[str, object]:
        return {"_properties": self._properties, "_location": self._location, "_io": None}

    def __repr__(self) -> str:
        return f"TableOpener({self._location!r})"


class Record(NamedTuple):
    """One result of stage 1. ``kind`` says which of the fields count.

    - ``unit``: a unit was seen; ``file``, ``row_group``, ``first_row``, ``rows``.
    - ``column``: one column of that unit, with its filter if there is one.
    - ``pages``: the page index of that column, if there is one: ``data`` is ColumnIndex, then OffsetIndex; of an ORC
      file its row index, one RowIndexEntry.
    - ``sketch``: theta of column ``field_id`` over the whole task; ``data`` is the compact sketch.
    - ``file``: the file cannot be indexed at all; ``reason``.
    - ``encrypted``: the file has column ``field_id`` encrypted, or (-1) perhaps any.
    """

    kind: str
    file: int
    row_group: int = -1
    field_id: int = -1
    first_row: int = 0
    rows: int = 0
    encoding: str = ""
    resolution: str = ""
    how: str = ""
    """``harvested``, ``dictionary`` or ``scanned``: where the filter came from; of an index also ``built``."""
    data: bytes | None = None
    """The filter's whole blocks (an ORC filter's last one is filled up with zeros), an index, or the sketch."""
    blocks: int = 0
    """Number of blocks of the filter, 0 if there is none."""
    tail: bytes = b""
    """The odd bytes after the last whole block of a harvested filter."""
    reason: str = ""
    """Why there is no filter (empty if there is one, or if none was asked for)."""
    theta_reason: str = ""
    """Why the sketch does not count this unit (empty if it does, or if none was asked for)."""
    fault: str = ""
    """``damage`` if a reason is that bytes could not be decoded, ``storage`` if they could not be read."""
    rate: float = 0.0
    """False-positive rate of the filter, estimated from its bits."""
    bytes_read: int = 0
    bits: int = 0
    """m of an ORC filter, 0 of a split-block filter."""
    hashes: int = 0
    """k of an ORC filter."""
    length: int = 0
    """Bytes of the page index or row index, 0 if there is none."""
    column_length: int = 0
    """Those of them that are the ColumnIndex."""
    described: str = ""
    """What a reader must know of the page index or row index, see :func:`sidecar.indexing.data_file.describe`."""

    @property
    def rule(self) -> IndexRule:
        """How a hash becomes bits of the filter."""
        return OrcRule(self.hashes, self.bits) if self.bits else SPLIT_BLOCK

    @property
    def filter_bytes(self) -> int:
        """Bytes of the filter as a file has it, 0 if there is none."""
        return self.bits // 8 or self.blocks * BLOCK_BYTES + len(self.tail)


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
    """:attr:`sidecar.iceberg.listing.ListedFile.identity` of the file."""


@dataclass(frozen=True)
class UnitsTask:
    """One task of stage 1."""

    number: int
    pieces: tuple[FilePiece, ...]


@dataclass(frozen=True)
class BuildPlan:
    """What all tasks of a build share."""

    columns: tuple[TableColumn, ...]
    schema: Schema
    """The schema of the snapshot, in whose types sketches are hashed."""
    name_mapping: NameMapping | None
    options: Options
    encryption_keys: EncryptionKeys | None = field(default=None, repr=False)
    """For data files; on Spark they travel in the functions that are shipped, like the secrets of a FileIO."""


@dataclass(frozen=True)
class Shared:
    """What tasks of one process share: the way to files' metadata, which may remember it, and known thetas."""

    metadata: Callable[[Source, FileFormat], Metadata] = read_metadata
    thresholds: Thresholds = field(default_factory=dict)


def index_units(
    task: UnitsTask, plan: BuildPlan, opener: Opener, shared: Shared | None = None
) -> Iterator[Record]:
    """Index the task's row groups; the records of one unit follow each other, sketches come last."""
    shared = shared or Shared()
    sketches = TaskSketches(plan.options.lg_k, shared.thresholds)
    last = -1
    for piece in task.pieces:
        yield from _index_piece(piece, plan, opener, shared, sketches)
        last = piece.file
    for field_id, sketch in sorted(sketches.united.items()):
        yield Record("sketch", last, field_id=field_id, data=sketch.to_bytes())


def _index_piece(
    piece: FilePiece, plan: BuildPlan, opener: Opener, shared: Shared, sketches: TaskSketches
) -> Iterator[Record]:
    try:
        source = opener(piece.path, piece.size)
    except Exception as error:  # a FileIO may raise anything
        yield Record("file", piece.file, reason=reason_of(error), fault=fault_of(error))
        return
    try:
        source = _unlocked(source, piece, plan)
        file = open_data_file(source, shared.metadata(source, piece.format), plan.options, sketches)
        found = {column.field_id: _resolve(file, column, piece, plan) for column in plan.columns}
    except Exception as error:  # whatever a broken footer leads to, it costs this file alone
        advisory(error)
        if _has_encrypted_footer(source, piece):
            yield Record("encrypted", piece.file)
        source.close()
        yield Record("file", piece.file, reason=reason_of(error), fault=fault_of(error))
        return
    for field_id, leaf in _encrypted_fields(file, piece, plan):
        yield Record("encrypted", piece.file, field_id=field_id)
        if field_id in found and not file.is_locked(leaf) and not plan.options.may_index(field_id):
            found[field_id] = MissingColumn(UnitState.REFUSED)
    wanted = {
        column.field_id: WantedColumn(column.type, where.leaf, where.resolution)
        for column in plan.columns
        if isinstance(where := found[column.field_id], FoundColumn)
    }
    try:
        for unit in file.index(piece.start, piece.stop, wanted):
            entry = unit.entry
            yield Record("unit", piece.file, entry.row_group, first_row=entry.first_row, rows=entry.rows)
            for column in plan.columns:
                where = found[column.field_id]
                if isinstance(where, MissingColumn):
                    yield from _absent(piece.file, entry, column, where.reason, plan)
                    continue
                result = unit.columns[column.field_id]
                if result.sketch is not None:
                    sketches.add(column.field_id, result.sketch)
                yield _column(piece.file, entry, column.field_id, where.resolution, result)
                if column.field_id in unit.pages:
                    yield _pages(piece.file, entry, column.field_id, unit.pages[column.field_id])
    finally:
        file.close()
        source.close()


def _unlocked(source: Source, piece: FilePiece, plan: BuildPlan) -> Source:
    """The file's plaintext view where it can be had; else the file, whose encrypted columns are not indexed."""
    if plan.encryption_keys is None or piece.format != FileFormat.PARQUET:
        return source
    try:
        return unlock(source, plan.encryption_keys)
    except UsageError:  # the key of its footer is missing
        return source


def _has_encrypted_footer(source: Source, piece: FilePiece) -> bool:
    try:
        return piece.format == FileFormat.PARQUET and read_tail(source).is_encrypted
    except SidecarError:
        return False


def _encrypted_fields(file: DataFile, piece: FilePiece, plan: BuildPlan) -> Iterator[tuple[int, FileLeaf]]:
    """Fields of the table, asked for or not, that the file has encrypted."""
    if not any(file.is_encrypted(leaf) for leaf in file.leaves):
        return
    for field_id in sorted(plan.schema.field_ids):
        if plan.schema.find_type(field_id).is_primitive:
            found = resolve_in_file(file.leaves, field_id, plan.schema, plan.name_mapping, piece.identity)
            if isinstance(found, FoundColumn) and file.is_encrypted(found.leaf):
                yield field_id, found.leaf


def _column(file: int, unit: UnitEntry, field_id: int, resolution: str, result: ColumnResult) -> Record:
    return Record(
        "column",
        file,
        unit.row_group,
        field_id,
        encoding=result.encoding,
        resolution=resolution,
        how=ORIGINS[result.outcome.way],
        data=result.bitset,
        blocks=len(result.bitset or b"") // BLOCK_BYTES,
        tail=result.tail,
        bits=result.bits,
        hashes=result.hashes,
        reason=result.outcome.reason,
        theta_reason=result.theta_reason,
        fault=result.fault,
        rate=result.outcome.rate_after or 0.0,
        bytes_read=result.bytes_read,
    )


def _pages(file: int, unit: UnitEntry, field_id: int, pages: PagesResult) -> Record:
    return Record(
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


def _absent(
    file: int, unit: UnitEntry, column: TableColumn, reason: str, plan: BuildPlan
) -> Iterator[Record]:
    """A column that the file does not have is no empty column: it may have a default or a partition's
    constant.

    Only where it has neither are its values all null, which a sketch counts by counting nothing.
    """
    nothing = reason == UnitState.ABSENT and plan.schema.find_field(column.field_id).initial_default is None
    yield Record(
        "column",
        file,
        unit.row_group,
        column.field_id,
        reason=reason if plan.options.bloom else "",
        theta_reason=reason if plan.options.theta and not nothing else "",
    )
    if plan.options.page_index:
        yield Record("pages", file, unit.row_group, column.field_id, reason=reason)


def _resolve(
    file: DataFile, column: TableColumn, piece: FilePiece, plan: BuildPlan
) -> FoundColumn[FileLeaf] | MissingColumn:
    return resolve_in_file(file.leaves, column.field_id, plan.schema, plan.name_mapping, piece.identity)
