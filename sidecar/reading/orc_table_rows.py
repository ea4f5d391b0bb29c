"""Reads the rows of one ORC file of a table, from the row groups that a plan keeps.

The steps are those of pyiceberg (:mod:`sidecar.reading.arrow_reader`): match columns by field ids or name mapping,
remove deleted rows by position, filter, project. Top-level columns are decoded in the kept row groups only. Values
must equal those that pyiceberg gives. pyarrow takes one second too many off timestamps before 1970 that have a
fraction of a second, so files that may have such timestamps are not read here.

A file that is in doubt raises an error, and the caller lets pyiceberg read the whole file.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from io import IOBase
from typing import Any, cast

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.dataset as ds
from pyiceberg.table import FileScanTask

from sidecar.errors import UnsupportedFeatureError
from sidecar.orc.schema import OrcColumn
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcRowGroup, OrcTail, Stripe, read_tail
from sidecar.parquet.scan.page_scan import ScanReport
from sidecar.planning.row_groups import KeptRowGroups
from sidecar.reading.arrow_reader import TableReader
from sidecar.reading.file_view import FileView
from sidecar.reading.orc_columns import column_name
from sidecar.reading.orc_stripe_reader import OrcHandle, StripeReader
from sidecar.storage.source import CountingSource, Source, SourceFile

Positions = npt.NDArray[np.int64]


class OrcFileRows:
    """The matching rows of one file. Iterate :meth:`batches` once; ``report`` is filled in meanwhile.

    ``deleted`` are the deleted positions, int64 [n]. Raises :class:`UnsupportedFeatureError` if the file is in doubt.
    """

    def __init__(
        self,
        reader: TableReader,
        task: FileScanTask,
        source: Source,
        kept: KeptRowGroups,
        deleted: Positions | None,
    ) -> None:
        counted = CountingSource(source)
        self._tail = read_tail(counted)
        self._groups = _left_of(self._tail, kept)
        file: Any = pa.PythonFile(cast(IOBase, SourceFile(counted)), "r")
        self._view: FileView = reader.view_of(task, ds.OrcFileFormat().make_fragment(file))
        self._handle = OrcHandle(source, self._tail)
        self._columns = _columns(self._tail, [column.name for column in self._view.projected.columns])
        _refuse_early_times(self._handle, self._columns.values())
        self._deleted = np.array([], np.int64) if deleted is None else deleted
        self.report = ScanReport(
            file=self._tail.name,
            file_bytes=self._tail.size,
            rows=self._tail.num_rows,
            row_groups=kept.total,
            footer_bytes=counted.bytes_read,
        )

    def batches(self) -> Iterator[pa.RecordBatch]:
        """Yield the matching rows in the requested schema, stripe by stripe."""
        residual = self._view.residual()
        for stripe, groups in self._groups:
            footer = read_stripe_footer(self._handle.index, self._tail, stripe)
            reader = StripeReader(self._handle, stripe, footer)
            arrays = {name: reader.read(top, None, groups) for name, top in self._columns.items()}
            table = pa.table(arrays).take(self._wanted(groups))
            matching = table if residual is None else table.take(residual(table))
            self._count(groups, matching.num_rows)
            if matching.num_rows:
                yield from self._view.project(matching)

    def _wanted(self, groups: Sequence[OrcRowGroup]) -> npt.NDArray[np.int64]:
        """Return the rows to read, counted from the first of ``groups``: those that are not deleted."""
        positions = np.concatenate([np.arange(g.first_row, g.first_row + g.rows) for g in groups])
        return np.flatnonzero(~np.isin(positions, self._deleted))

    def _count(self, groups: Sequence[OrcRowGroup], found: int) -> None:
        report, index, data = self.report, self._handle.index, self._handle.data
        report.row_groups_read += len(groups)
        report.rows_may_match += sum(group.rows for group in groups)
        report.rows_found += found
        report.index_bytes, report.index_reads = index.bytes_read, index.reads
        report.data_bytes, report.data_reads = data.bytes_read, data.reads


def _left_of(tail: OrcTail, kept: KeptRowGroups) -> list[tuple[Stripe, list[OrcRowGroup]]]:
    """Return the kept row groups by stripe.

    Raises :class:`UnsupportedFeatureError` if the row groups of the file differ from those in the sidecar.
    """
    all_groups = [(stripe, group) for stripe in tail.stripes for group in stripe.row_groups]
    known = [(unit.first_row, unit.rows) for unit in kept.units]
    if known != [(group.first_row, group.rows) for _, group in all_groups]:
        raise UnsupportedFeatureError("the row groups of the file differ from those in the sidecar", file=tail.name)
    left: dict[int, tuple[Stripe, list[OrcRowGroup]]] = {}
    for (stripe, group), rows in zip(all_groups, kept.rows, strict=True):
        if rows:
            left.setdefault(stripe.ordinal, (stripe, []))[1].append(group)
    return list(left.values())


def _columns(tail: OrcTail, names: Sequence[str]) -> dict[str, OrcColumn]:
    """Return the top-level columns by name.

    Raises :class:`UnsupportedFeatureError` if a name does not match exactly one column.
    """
    tops = [tail.columns[number] for number in tail.columns[0].children]
    found = {name: [top for top in tops if column_name(tail, top) == name] for name in names}
    if not found or any(len(same) != 1 for same in found.values()):
        raise UnsupportedFeatureError("a column name is missing from the file or not unique", file=tail.name)
    return {name: same[0] for name, same in found.items()}


def _refuse_early_times(file: OrcHandle, tops: Iterable[OrcColumn]) -> None:
    """Raise :class:`UnsupportedFeatureError` unless the file's statistics rule out timestamps before 1970."""
    tail = file.tail
    for number in (below for top in tops for below in tail.subtree(top.id)):
        column = tail.columns[number]
        if column.kind not in ("TIMESTAMP", "TIMESTAMP_INSTANT"):
            continue
        found = file.statistics.of_file(column)
        is_late = found is not None and isinstance(found.min, int) and found.min >= 0
        if not is_late and (found is None or not found.all_null):
            raise UnsupportedFeatureError(
                "the file may have timestamps before 1970", file=tail.name, column=column.path
            )
