"""Runs a build in this process: a pool of threads works on the same tasks that Spark runs.

Decoding (pyarrow) and hashing (kernels) both release the interpreter's lock. Filters go to an unnamed temporary file.
So a build needs memory only for its metadata, and per thread for one batch of values and one range of blocks,
independent of the table's size.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import Any, TypeVar

from pyiceberg.manifest import FileFormat

from sidecar.bundle.filters.layout import BLOCK_BYTES
from sidecar.convert.outcome import Progress
from sidecar.convert.spool import Spool
from sidecar.indexing.formats import Metadata, read_metadata
from sidecar.indexing.slices import GroupTask, Key, gather
from sidecar.indexing.tasks import BuildPlan, Opener, Record, Shared, UnitsTask, index_units
from sidecar.source import Source

T = TypeVar("T")
R = TypeVar("R")


class LocalEngine:
    """Runs both stages in this process on ``threads`` threads."""

    name = "local"

    def __init__(self, opener: Opener, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1
        self._opener = opener
        self._spool = Spool()
        self._pool = ThreadPoolExecutor(self.threads, thread_name_prefix="sidecar-build")
        self._metadata = MetadataCache()
        self._at: dict[Key, int] = {}
        self._pages = Spool()
        self._pages_at: dict[Key, tuple[int, int]] = {}

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan, progress: Progress) -> list[Record]:
        """See :meth:`sidecar.indexing.engine.Engine.index`."""
        records: list[Record] = []
        progress("indexing", 0, len(tasks))
        shared = Shared(self._metadata)
        parts = _ahead(self._pool, lambda task: self._run(task, plan, shared), tasks, 2 * self.threads)
        for done, part in enumerate(parts, 1):
            records.extend(part)
            progress("indexing", done, len(tasks))
        return records

    def slices(self, groups: Sequence[GroupTask], progress: Progress) -> Iterator[tuple[int, bytes]]:
        """See :meth:`sidecar.indexing.engine.Engine.slices`."""
        ranges = [
            (group, first, part)
            for group, first in ((group, self._first(group)) for group in groups)
            for part in range(group.parts)
        ]
        progress("slicing", 0, len(ranges))
        finished = _ahead(self._pool, lambda work: self._slice(*work), ranges, self.threads + 1)
        for done, ((group, _, _), data) in enumerate(zip(ranges, finished, strict=True), 1):
            yield group.number, data
            progress("slicing", done, len(ranges))

    def page_indexes(self, keys: Sequence[Key]) -> Iterator[bytes]:
        """See :meth:`sidecar.indexing.engine.Engine.page_indexes`."""
        return (self._pages.read(*self._pages_at[key]) for key in keys)

    def close(self) -> None:
        """Stop the threads and free the temporary files."""
        self._pool.shutdown(cancel_futures=True)
        self._spool.close()
        self._pages.close()

    def _run(self, task: UnitsTask, plan: BuildPlan, shared: Shared) -> list[Record]:
        return [self._keep(record) for record in index_units(task, plan, self._opener, shared)]

    def _keep(self, record: Record) -> Record:
        if record.kind not in ("column", "pages") or record.data is None:
            return record
        key = (record.file, record.row_group, record.field_id)
        if record.kind == "column":
            self._at[key] = self._spool.append(record.data) // BLOCK_BYTES
        else:
            self._pages_at[key] = self._pages.append(record.data), len(record.data)
        return record._replace(data=None)

    def _first(self, group: GroupTask) -> list[int]:
        """Return the offset in blocks of each position's filter in the spool."""
        return [self._at[key] for key in group.keys]

    def _slice(self, group: GroupTask, first: Sequence[int], part: int) -> bytes:
        # Read, not mapped: pages of a mapped file count as memory of this process as long as it is mapped.
        def pieces() -> Iterator[tuple[int, int, bytes]]:
            for position, at in enumerate(first):
                start, stop, factor = group.own_blocks(part, position)
                yield position, factor, self._spool.read((at + start) * BLOCK_BYTES, (stop - start) * BLOCK_BYTES)

        return group.slice(part, gather(group, part, pieces()))


class MetadataCache:
    """Caches the metadata of the last files: decoding it is slow, and pieces of a file follow each other."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Future[Metadata]] = OrderedDict()

    def __call__(self, source: Source, kind: FileFormat) -> Metadata:
        """Return the metadata of a file. Tasks that need the same metadata wait for the first of them."""
        with self._lock:
            known = self._kept.get(source.name)
            waiting: Future[Metadata] = known or Future()
            if known is None:
                self._kept[source.name] = waiting
                while len(self._kept) > self._most:
                    self._kept.popitem(last=False)
        if known is None:
            try:
                waiting.set_result(read_metadata(source, kind))
            except BaseException as error:
                waiting.set_exception(error)
        return waiting.result()


def _ahead(pool: ThreadPoolExecutor, function: Callable[[T], R], items: Sequence[T], ahead: int) -> Iterator[R]:
    """Yield results in order; at most ``ahead`` of them are computed before they are consumed."""
    waiting: deque[Future[Any]] = deque()
    source = iter(items)
    try:
        for item in islice(source, ahead):
            waiting.append(pool.submit(function, item))
        while waiting:
            result = waiting.popleft().result()
            for item in islice(source, 1):
                waiting.append(pool.submit(function, item))
            yield result
    finally:
        for future in waiting:
            future.cancel()
