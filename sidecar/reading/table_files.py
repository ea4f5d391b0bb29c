"""The rows of one data file of a table, from as few of its pages as the indexes allow.

:mod:`sidecar.reading.arrow_reader` says how pyiceberg sees the file, :mod:`sidecar.parquet.page_scan` reads it: row
groups that the plan and Arrow's statistics leave, pages that the indexes leave, deleted rows taken out by their
position in the file, then the filter, then the projection. Page indexes come from the sidecar where it has them.

pyiceberg gets the whole file wherever anything is in doubt: other formats, types that Arrow reads in two ways
(INT96), encryption, columns that cannot be found. It also gets those whose rows indexes cannot rule out: filters that
none can help, for which none is read, and files of which so much is left that pages are the slower way.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from threading import Event
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.expressions.visitors import extract_field_ids, rewrite_not
from pyiceberg.io import FileIO
from pyiceberg.manifest import FileFormat
from pyiceberg.schema import Schema
from pyiceberg.table import FileScanTask
from pyiceberg.types import NestedField, StructType

from sidecar.bundle.page_index_use import decode_page_index, page_index_kind
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.iceberg.resolve import BY_ID, BY_NAME
from sidecar.parquet.decrypted import unlock
from sidecar.parquet.footer import TAIL, Footer, RowGroup, read_footer
from sidecar.parquet.known_indexes import KnownIndex
from sidecar.parquet.page_scan import Request, Residual, ScanReport, TooMuch, scan_pages
from sidecar.parquet.pages import WRONG_CHECKSUM
from sidecar.parquet.parts import Shape, finish_file, read_shape
from sidecar.parquet.row_ranges import RowRanges
from sidecar.parquet.schema import Leaf
from sidecar.planning.conditions import FileQuestion, condition_of
from sidecar.planning.row_groups import FilePart, KeptRowGroups
from sidecar.reading.arrow_reader import Deletes, FileView, TableReader
from sidecar.source import CountingSource, Source, open_source

SMALL = TAIL
"""Bytes of a file that reading its footer reads anyway: pyiceberg gets it whole, unless the plan knows its pages."""

TOO_MUCH = 0.5
"""Share of the rows of a file from which on pyiceberg gets it whole, of those in row groups that Arrow would scan:
reading pages costs about twice as much a row."""

MUCH_IS_LEFT = "much of it is left"

Path = tuple[str, ...]
_Part = TypeVar("_Part")


@dataclass
class FileRows:
    """Matching rows of a data file, and how they were read: ``whole`` says why by pyiceberg, if so."""

    batches: list[pa.RecordBatch]
    report: ScanReport = field(default_factory=ScanReport)
    warnings: list[str] = field(default_factory=list)
    whole: str = ""


@dataclass(frozen=True, eq=False)
class DataFileReader:
    """Reads data files of one table for one filter and schema. Safe to share between threads."""

    reader: TableReader
    io: FileIO
    deletes: Deletes
    limit: int | None
    question: FileQuestion
    is_locked: bool = False
    """Whether columns that are asked are known to be encrypted: each file is looked at before pyiceberg gets it."""
    stopped: Event = field(default_factory=Event)
    """Set when nobody wants the rows any more: reading ends at the next row group or batch."""
    met_often: Event = field(default_factory=Event)
    """Set when much of a file met what few rows might have met: the next ones are not tried."""

    def read(self, task: FileScanTask, kept: KeptRowGroups | None, answered: bool) -> FileRows:
        """The rows of ``task``'s file. ``answered``: the sidecar's filters have been asked, the file's need not be.

        Raises :class:`StorageError`, :class:`DamagedFileError` for a wrong checksum of a page, and whatever
        pyiceberg raises for a file that it gets whole.
        """
        part = None if kept is None else kept.part
        whole = partial(self._whole, task, part)
        if task.file.file_format != FileFormat.PARQUET:
            return whole(f"the file is {task.file.file_format.value}, not Parquet")
        if self.is_locked:
            self._check_readable(task)
        if kept is None and not self.question.helpful_fields(task.file):
            return whole("no index can help")
        if kept is None and task.file.file_size_in_bytes <= SMALL:
            return whole("the file is small")
        if kept is not None and part is None and self.much_is_left(task, kept):
            return whole(MUCH_IS_LEFT)
        try:
            source = open_source(task.file.file_path, self.io, task.file.file_size_in_bytes)
        except SidecarError as error:
            return whole(error.what)
        try:
            source = unlock(source, self.reader.encryption_keys)
        except SidecarError:
            source.close()
            raise
        try:
            return self._pages(task, source, kept, answered)
        except TooMuch:
            self.met_often.set()
            return whole(MUCH_IS_LEFT)
        except _LockedError:
            raise
        except StorageError:
            raise
        except DamagedFileError as error:
            if error.what == WRONG_CHECKSUM:
                raise
            return whole(error.what)
        except Exception as error:  # whatever it is, pyiceberg decides what it means for the query
            return whole(error.what if isinstance(error, SidecarError) else f"{error}"[:200])
        finally:
            source.close()

    def _check_readable(self, task: FileScanTask) -> None:
        with closing(open_source(task.file.file_path, self.io, task.file.file_size_in_bytes)) as source:
            footer = read_footer(unlock(source, self.reader.encryption_keys))
        _check_readable(footer, self.reader.field_ids, task.file.file_path)

    def much_is_left(self, task: FileScanTask, kept: KeptRowGroups) -> bool:
        """Whether the plan settles that too much is left: it has asked all page indexes that can help."""
        if self.question.asks_for_few or kept.may_match < TOO_MUCH * kept.num_rows:
            return False
        return self.question.helpful_fields(task.file) <= {field_id for field_id, _ in list(kept.stored)}

    def _whole(self, task: FileScanTask, part: FilePart | None, why: str) -> FileRows:
        """By pyiceberg; of a part of a file, all other rows are deleted for it."""
        path = task.file.file_path
        report = ScanReport(file=path, file_bytes=task.file.file_size_in_bytes)
        batches, rows = list[pa.RecordBatch](), 0
        deletes = self.deletes
        if part is not None:
            others = np.r_[
                : part[0], task.file.record_count if part[1] is None else part[1] : task.file.record_count
            ]
            deletes = {**deletes, path: [*deletes.get(path, ()), pa.chunked_array([others])]}
        for batch in self._until_stopped(self.reader.read_whole(task, deletes)):
            batches.append(batch)
            rows += batch.num_rows
            if self.limit is not None and rows >= self.limit:
                break
        return FileRows(batches, report, whole=why)

    def _until_stopped(self, parts: Iterator[_Part]) -> Iterator[_Part]:
        return takewhile(lambda _: not self.stopped.is_set(), parts)

    def _pages(
        self, task: FileScanTask, source: Source, kept: KeptRowGroups | None, answered: bool
    ) -> FileRows:
        counted = CountingSource(source)
        footer = read_footer(counted)
        _check_readable(footer, self.reader.field_ids, task.file.file_path)
        report = ScanReport(footer_bytes=counted.bytes_read)
        view = self.reader.view(task, finish_file(b"", footer.raw))
        planner = _Planner(view, footer)
        request = planner.request(kept, self._deleted(task), not answered)
        request = replace(request, sample=not self.met_often.is_set())
        found = scan_pages(source, footer, request, self.limit, report)
        batches = [batch for rows in self._until_stopped(found) for batch in view.project(rows.rows)]
        return FileRows(batches, report, planner.doubts + report.warnings)

    def _deleted(self, task: FileScanTask) -> npt.NDArray[np.int64] | None:
        """Deleted positions, rising; ``None`` if pyiceberg knows of no delete for the file."""
        arrays = self.deletes.get(task.file.file_path)
        if not arrays:
            return None
        positions: npt.NDArray[np.int64] = np.unique(np.concatenate([a.to_numpy() for a in arrays]))
        return positions.astype(np.int64)


class _LockedError(UnsupportedFeatureError):
    """Columns that cannot be read without a key: Arrow, asked for them, may wait for ever or end the process."""


def _check_readable(footer: Footer, field_ids: set[int], path: str) -> None:
    """Raise an error where a column that is read is encrypted and its key not at hand."""
    for group in footer.row_groups:
        for chunk in group.columns:
            if chunk.encrypted and chunk.leaf.field_id in {None, *field_ids}:
                raise _LockedError(
                    "the column is encrypted and its key was not given",
                    file=path,
                    column=chunk.leaf.path,
                    hint="Keys are given as encryption_keys, on the command line as --encryption-keys.",
                )


class _Planner:
    """From pyiceberg's view of a file to a request for its pages."""

    def __init__(self, view: FileView, footer: Footer) -> None:
        self._view = view
        self._footer = footer
        self.doubts: list[str] = []
        """Why something of the plan was not used."""
        self._shape = read_shape(footer)
        if not self._shape.schema.equals(view.physical_schema):
            raise UnsupportedFeatureError("pyiceberg reads columns of the file as other types")
        if not view.projected.fields:
            raise UnsupportedFeatureError("no column of the file is read")
        self._paths = dict(_column_paths(view.file_schema))
        self._leaves = {leaf.parts: leaf for leaf in footer.columns}

    def request(
        self,
        kept: KeptRowGroups | None,
        deleted: npt.NDArray[np.int64] | None,
        filters: bool,
    ) -> Request:
        view = self._view
        known, limits = self._known(kept), self._limits(kept)
        part = None if kept is None else kept.part
        scanned = view.scanned_row_groups() if deleted is None else None

        def wanted(group: RowGroup) -> RowRanges:
            if scanned is not None and group.ordinal not in scanned:
                return RowRanges()
            rows = limits.get(group.ordinal, RowRanges.all(group.num_rows))
            if part is not None:
                rows = rows & _of_part(part, group)
            return rows if deleted is None else rows.without(_within(deleted, group))

        return Request(
            shape=self._shape.select_paths(list(_leaf_paths(view.projected.fields))),
            condition=condition_of(rewrite_not(view.row_filter), self._leaf),
            asked=self._asked(),
            residual=None if view.arrow_filter is None else _residual(view.arrow_filter),
            wanted=wanted,
            known=known,
            filters=filters,
            too_much=TOO_MUCH if part is None else math.inf,
            other_rows=sum(
                group.num_rows
                for group in self._footer.row_groups
                if scanned is None or group.ordinal in scanned
            ),
        )

    def _asked(self) -> Shape | None:
        """What has to be read to evaluate the filter: of a struct that is asked itself, where it is null."""
        paths = [self._paths[field_id] for field_id in sorted(extract_field_ids(self._view.row_filter))]
        return self._shape.select_paths([self._shape.enough(path) for path in paths]) if paths else None

    def _leaf(self, field_id: int) -> Leaf | None:
        """The leaf of a column outside of lists and maps."""
        path = self._paths.get(field_id)
        leaf = None if path is None else self._leaves.get(path)
        return None if leaf is None or leaf.max_rep else leaf

    def _limits(self, kept: KeptRowGroups | None) -> dict[int, RowRanges]:
        if kept is None:
            return {}
        groups = self._footer.row_groups
        if [tuple(unit) for unit in kept.units] != [(g.ordinal, g.first_row, g.num_rows) for g in groups]:
            self.doubts.append("the file has other row groups than the sidecar says")
            return {}
        return {unit.row_group: rows for unit, rows in zip(kept.units, kept.rows, strict=True)}

    def _known(self, kept: KeptRowGroups | None) -> dict[tuple[int, int], KnownIndex]:
        """The sidecar's page indexes of this file, for those leaves that are stored as it says."""
        known: dict[tuple[int, int], KnownIndex] = {}
        for (field_id, row_group), stored in dict(kept.stored if kept else {}).items():
            leaf = self._stored_leaf(field_id, stored.kind.resolution)
            if leaf is None or page_index_kind(self._footer, leaf, stored.kind.resolution) != stored.kind:
                continue
            try:
                decoded = decode_page_index(stored)
            except SidecarError as error:
                self.doubts.append(f"page index of the sidecar not used: {leaf.path}: {error.what}")
                continue
            known[row_group, leaf.index] = KnownIndex(decoded.column_index, decoded.offset_index)
        return known

    def _stored_leaf(self, field_id: int, resolution: str) -> Leaf | None:
        if resolution == BY_ID:
            found = [leaf for leaf in self._footer.columns if leaf.field_id == field_id]
        else:
            path = resolution.removeprefix(BY_NAME).partition("|")[0]
            found = [leaf for leaf in self._footer.columns if leaf.path == path]
        return found[0] if len(found) == 1 else None


def _residual(expression: Any) -> Residual:
    """Where rows match, as Arrow evaluates pyiceberg's expression."""

    def matching(table: pa.Table) -> npt.NDArray[np.int64]:
        name = "row"
        while name in table.column_names:
            name += "_"
        rows = table.append_column(name, pa.array(np.arange(table.num_rows))).filter(expression)[name]
        return np.sort(rows.to_numpy())  # Arrow filters in threads

    return matching


def _of_part(part: FilePart, group: RowGroup) -> RowRanges:
    """The rows of a row group, counted from its first, that lie in a part of the file."""
    end = group.num_rows if part[1] is None else part[1] - group.first_row
    return RowRanges([(max(part[0] - group.first_row, 0), min(end, group.num_rows))])


def _within(positions: npt.NDArray[np.int64], group: RowGroup) -> npt.NDArray[np.int64]:
    """Positions in the file that lie in a row group, counted from its first row."""
    start, end = np.searchsorted(positions, [group.first_row, group.first_row + group.num_rows])
    return positions[start:end] - group.first_row


def _column_paths(schema: Schema) -> Iterator[tuple[int, Path]]:
    """Field ids of all columns outside of lists and maps, with their names from the top."""
    open_: list[tuple[Path, Sequence[NestedField]]] = [((), schema.fields)]
    while open_:
        above, fields = open_.pop()
        for column in fields:
            path = (*above, column.name)
            yield column.field_id, path
            if isinstance(column.field_type, StructType):
                open_.append((path, column.field_type.fields))


def _leaf_paths(fields: Sequence[NestedField], above: Path = ()) -> Iterator[Path]:
    """The paths to what is projected: down to the fields of structs, lists and maps as a whole."""
    for column in fields:
        path = (*above, column.name)
        if isinstance(column.field_type, StructType) and column.field_type.fields:
            yield from _leaf_paths(column.field_type.fields, path)
        else:
            yield path
