"""Reads the rows of one data file of a table, from as few of its pages as the indexes allow.

:mod:`sidecar.reading.arrow_reader` has pyiceberg's view of the file, :mod:`sidecar.parquet.scan.page_scan` reads it.
It starts with the row groups that the plan and Arrow's statistics keep, takes from them the pages that indexes keep,
removes deleted rows by position, filters, and projects. Page indexes come from the sidecar if it has them.

ORC files are read by the row groups that the plan keeps (:mod:`sidecar.reading.orc_table_rows`).

pyiceberg reads the whole file if anything is in doubt: other formats, types that Arrow reads in two ways (INT96),
columns that are not found. It also reads files for which indexes do not pay: no index can help with the
filter, the file is small, or indexes leave so much of it that reading pages is slower.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import takewhile
from threading import Event, Lock
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyiceberg.manifest import FileFormat
from pyiceberg.table import FileScanTask

from sidecar.errors import (
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    WrongChecksumError,
    advisory,
)
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import KEYS_HINT, LOCKED, Footer, read_footer
from sidecar.parquet.scan.page_scan import ScanReport, TooMuchLeft, scan_pages
from sidecar.parquet.scan.schema_parts import finish_file
from sidecar.parquet.scan.usual_types import usual_footer
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.reading.arrow_reader import SMALL, PackedLevelsError, TableReader
from sidecar.reading.orc_table_rows import OrcFileRows
from sidecar.reading.page_request import PagePlanner
from sidecar.reading.row_deletes import Deletes, deletes_of
from sidecar.storage.source import CountingSource, Source

TOO_MUCH = 0.5
"""If indexes leave at least this share of the rows in row groups that Arrow would scan, pyiceberg reads the file
whole: reading pages costs about twice as much per row."""

MUCH_IS_LEFT = "much of it is left"

PATIENCE = 0.1
"""Seconds that files wait, at most, for what the first one shows about an equality."""

_Part = TypeVar("_Part")


@dataclass
class FileRows:
    """Matching rows of a data file. ``whole`` is the reason why pyiceberg read the file; empty if it did not."""

    batches: list[pa.RecordBatch]
    report: ScanReport = field(default_factory=ScanReport)
    warnings: list[str] = field(default_factory=list)
    whole: str = ""


@dataclass(frozen=True, eq=False)
class DataFileReader:
    """Reads data files of one table for one filter and schema. Threads can share it."""

    reader: TableReader
    deletes: Deletes
    limit: int | None
    is_locked: bool = False
    """Whether some of the columns that are read are encrypted: then each file is checked before pyiceberg reads it."""
    stopped: Event = field(default_factory=Event)
    """Set when the rows are no longer needed: reading ends at the next row group or batch."""
    met_often: Event = field(default_factory=Event)
    """Set when many rows of a file matched an equality: the next files are not sampled for few matches."""
    first_sample: Lock = field(default_factory=Lock)
    """Taken by the first file in which an equality may leave few rows."""
    sampled: Event = field(default_factory=Event)
    """Set when that file has been read, or is left to pyiceberg."""

    def read(self, task: FileScanTask, kept: KeptRowGroups | None, answered: bool) -> FileRows:
        """Return the matching rows of ``task``'s file.

        ``answered`` says that the plan has used the sidecar's filters for this file, so its own filters are not read.
        Raises :class:`StorageError`, :class:`WrongChecksumError`, and the errors of pyiceberg for a file that it reads
        whole.
        """
        whole = partial(self._read_whole, task)
        if task.file.file_format != FileFormat.PARQUET:  # a sidecar keeps row groups of ORC files alone
            why = f"the file is {task.file.file_format.value}, not Parquet"
            return whole(why) if kept is None else self._orc(task, kept)
        if self.is_locked:
            self._check_readable(task)
        if kept is None and not self.reader.question.helpful_fields(task.file):
            return whole("no index can help")
        if kept is None and task.file.file_size_in_bytes <= SMALL:  # finding pages takes as long as reading all
            return whole("the file is small")
        if kept is not None and self.much_is_left(task, kept):
            return whole(MUCH_IS_LEFT)
        try:
            source = self.reader.access.open(task.file.file_path, task.file.file_size_in_bytes)
        except SidecarError as error:
            return whole(error.what)
        try:
            source = unlock(source, self.reader.access.keys)
        except SidecarError:
            source.close()
            raise
        try:
            return self._pages(task, source, kept, answered, self._deleted(task), TOO_MUCH)
        except TooMuchLeft as error:
            if error.often:
                self.met_often.set()
            return whole(MUCH_IS_LEFT)
        except (_LockedError, StorageError, WrongChecksumError):
            raise
        except Exception as error:  # pyiceberg decides whether the file can be read
            return whole(_why_whole(error))
        finally:
            source.close()
            self.sampled.set()

    def read_whole(self, task: FileScanTask) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows of ``task``'s file, read whole by pyiceberg. Raises the errors of :meth:`read`."""
        if self.is_locked and task.file.file_format == FileFormat.PARQUET:
            self._check_readable(task)
        deletes = deletes_of(task, self.deletes)
        try:
            yield from self._until_stopped(self.reader.read_whole(task, deletes))
        except PackedLevelsError:
            yield from self._by_pages(task, deletes).batches

    def _orc(self, task: FileScanTask, kept: KeptRowGroups) -> FileRows:
        """Read an ORC file by the row groups that the plan keeps; whole if these are most of it, or in doubt."""
        if len(kept.kept) > TOO_MUCH * kept.total:
            return self._read_whole(task, MUCH_IS_LEFT)
        try:
            with closing(self.reader.access.open(task.file.file_path, task.file.file_size_in_bytes)) as source:
                rows = OrcFileRows(self.reader, task, source, kept, self._deleted(task))
                batches = self._up_to_limit(self._until_stopped(rows.batches()))
                return FileRows(batches, rows.report)
        except StorageError:
            raise
        except Exception as error:  # pyiceberg decides whether the file can be read
            return self._read_whole(task, _why_whole(error))

    def _up_to_limit(self, found: Iterator[pa.RecordBatch]) -> list[pa.RecordBatch]:
        """Read batches until they have at least ``limit`` rows."""
        batches, rows = list[pa.RecordBatch](), 0
        for batch in found:
            batches.append(batch)
            rows += batch.num_rows
            if self.limit is not None and rows >= self.limit:
                break
        return batches

    def _check_readable(self, task: FileScanTask) -> None:
        with closing(self.reader.access.open(task.file.file_path, task.file.file_size_in_bytes)) as source:
            footer = read_footer(unlock(source, self.reader.access.keys))
        _check_readable(footer, self.reader.field_ids, task.file.file_path)

    def much_is_left(self, task: FileScanTask, kept: KeptRowGroups) -> bool:
        """Return whether too much is left for certain: no index rules out more, and an equality does not match few.

        An equality may match few rows of many pages. That is not so if many rows of another file matched it.
        """
        return self.much_is_left_by_indexes(task, kept) and not (
            self.reader.question.asks_for_few and self._may_be_few()
        )

    def _may_be_few(self) -> bool:
        """Return whether an equality may match few rows of a file. The first file shows it, while the others wait."""
        if not self.first_sample.acquire(blocking=False):
            self.sampled.wait(PATIENCE)
        return not self.met_often.is_set()

    def much_is_left_by_indexes(self, task: FileScanTask, kept: KeptRowGroups) -> bool:
        """Return whether the plan leaves too much, and has used all page indexes that can help."""
        if kept.may_match < TOO_MUCH * kept.num_rows:
            return False
        return self.reader.question.helpful_fields(task.file) <= {field_id for field_id, _ in list(kept.stored)}

    def _read_whole(self, task: FileScanTask, why: str) -> FileRows:
        """Let pyiceberg read the file."""
        report = ScanReport(file=task.file.file_path, file_bytes=task.file.file_size_in_bytes)
        deletes = deletes_of(task, self.deletes)
        try:
            batches = self._up_to_limit(self._until_stopped(self.reader.read_whole(task, deletes)))
        except PackedLevelsError:
            return self._by_pages(task, deletes)
        return FileRows(batches, report, whole=why)

    def _by_pages(self, task: FileScanTask, deletes: Sequence[Any]) -> FileRows:
        """Read all pages of a file whose levels Arrow decodes wrong. Raises the errors of the file."""
        with closing(self.reader.access.open(task.file.file_path, task.file.file_size_in_bytes)) as opened:
            source = unlock(opened, self.reader.access.keys)
            return self._pages(task, source, None, True, _positions(deletes), math.inf)

    def _until_stopped(self, parts: Iterator[_Part]) -> Iterator[_Part]:
        return takewhile(lambda _: not self.stopped.is_set(), parts)

    def _pages(
        self,
        task: FileScanTask,
        source: Source,
        kept: KeptRowGroups | None,
        answered: bool,
        deleted: npt.NDArray[np.int64] | None,
        too_much: float,
    ) -> FileRows:
        counted = CountingSource(source)
        footer = read_footer(counted)
        _check_readable(footer, self.reader.field_ids, task.file.file_path)
        report = ScanReport(footer_bytes=counted.bytes_read)
        view, fragment = self.reader.view(task, finish_file(b"", usual_footer(footer)))
        planner = PagePlanner(view, fragment, footer)
        request = planner.request(kept, deleted, not answered, too_much)
        request = replace(request, sample=not self.met_often.is_set())
        found = scan_pages(source, footer, request, self.limit, report)
        batches = [batch for rows in self._until_stopped(found) for batch in view.project(rows.rows)]
        return FileRows(batches, report, planner.warnings + report.warnings)

    def _deleted(self, task: FileScanTask) -> npt.NDArray[np.int64] | None:
        """Return the deleted positions (int64 [n], rising); ``None`` if no delete file names the data file."""
        return _positions(deletes_of(task, self.deletes))


def _positions(arrays: Sequence[Any]) -> npt.NDArray[np.int64] | None:
    """Return the positions in chunked arrays (int64 [n], rising); ``None`` if there are no arrays."""
    if not arrays:
        return None
    positions: npt.NDArray[np.int64] = np.unique(np.concatenate([a.to_numpy() for a in arrays]))
    return positions.astype(np.int64)


def _why_whole(error: Exception) -> str:
    """Return why pyiceberg reads a file whole after our own reading raised ``error``."""
    return error.what if isinstance(error, SidecarError) else advisory(error)


class _LockedError(UnsupportedFeatureError):
    """A column cannot be read without a key. Arrow must not be asked for it: it may hang or abort the process."""


def _check_readable(footer: Footer, field_ids: set[int], path: str) -> None:
    """Raise :class:`UnsupportedFeatureError` if a column that is read is encrypted and its key was not given."""
    for group in footer.row_groups:
        for chunk in group.columns.locked:
            # A leaf without field id may be any of the columns, by the name mapping.
            if chunk.leaf.field_id in {None, *field_ids}:
                raise _LockedError(LOCKED, file=path, column=chunk.leaf.path, hint=KEYS_HINT)
