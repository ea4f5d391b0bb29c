"""Indexes a Parquet file for stage 1. Its units are the row groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from sidecar.bundle.indexes.page_indexes import page_index_kind
from sidecar.bundle.model import UnitEntry, UnitState
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.indexing.columns import Options
from sidecar.indexing.sketches import TaskSketches
from sidecar.indexing.stage_one.chunks import ChunkIndexer
from sidecar.indexing.stage_one.data_file import IndexedUnit, PagesResult, WantedColumn
from sidecar.indexing.stage_one.page_indexes import page_index_of
from sidecar.parquet.footer import RowGroup


class ParquetDataFile:
    """See :class:`sidecar.indexing.stage_one.data_file.DataFile`."""

    def __init__(self, file: OpenParquet, options: Options, sketches: TaskSketches) -> None:
        self._source = file.source
        self._footer = file.footer
        self._options = options
        self._indexer = ChunkIndexer(file.source, options, sketches)

    def index(self, start: int, stop: int, columns: Mapping[int, WantedColumn]) -> Iterator[IndexedUnit]:
        """See :class:`sidecar.indexing.stage_one.data_file.DataFile`. A row group begins at its first page."""
        chunks = {field_id: (wanted.type, wanted.leaf) for field_id, wanted in columns.items()}
        for group in self._footer.row_groups:
            if start <= _start(group, self._source.size) < stop:
                entry = UnitEntry(group.ordinal, group.first_row, group.num_rows)
                results = self._indexer.index(group, chunks)
                pages = {
                    field_id: self._pages(group, wanted)
                    for field_id, wanted in columns.items()
                    if self._options.of(field_id).page_index
                }
                yield IndexedUnit(entry, results, pages)

    def close(self) -> None:
        """See :class:`sidecar.indexing.stage_one.data_file.DataFile`."""
        self._indexer.close()

    def _pages(self, group: RowGroup, wanted: WantedColumn) -> PagesResult:
        chunk = group.columns.get(wanted.leaf.index)
        if chunk is None:
            return PagesResult(
                page_index_kind(self._footer, wanted.leaf, wanted.resolution), reason=UnitState.ENCRYPTED
            )
        return page_index_of(self._source, self._footer, chunk, wanted.resolution, self._options.reuse)


def _start(group: RowGroup, size: int) -> int:
    """Return where a row group begins, clamped to the file: some piece must own it, even if the footer is wrong."""
    offsets = [chunk.start for chunk in group.columns.stored]
    return min(max(min(offsets, default=0), 0), size - 1)
