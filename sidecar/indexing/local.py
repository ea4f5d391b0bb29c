"""Runs stage 1 of a build in this process: threads work on the same tasks that Spark runs.

Decoding (pyarrow) and hashing (kernels) both release the interpreter's lock. Filters go to an unnamed temporary file.
So a build needs memory only for its metadata, and per thread for one batch of values and one range of blocks,
independent of the table's size.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from collections.abc import Sequence
from concurrent.futures import Future

import numpy as np

from sidecar.data_files.formats import Metadata, read_metadata
from sidecar.indexing.costs import FREED_BYTES
from sidecar.indexing.slices import KeptIndexes
from sidecar.indexing.stage_one.tasks import BuildPlan, ProcessCaches, StageResult, UnitsTask, index_units
from sidecar.results.choices import EngineKind
from sidecar.run import in_turn, report_progress
from sidecar.storage.source import Source


class LocalEngine:
    """Runs stage 1 in this process on ``threads`` threads, see :class:`sidecar.indexing.engine_choice.Engine`."""

    name: EngineKind = "local"

    def __init__(self, threads: int | None = None) -> None:
        self.threads = threads or os.cpu_count() or 1
        self.kept = KeptIndexes(self.threads)
        self._metadata = MetadataCache()

    def index(self, tasks: Sequence[UnitsTask], plan: BuildPlan) -> list[StageResult]:
        """See :meth:`sidecar.indexing.engine_choice.Engine.index`."""
        _keep_freed_memory()
        records: list[StageResult] = []
        report_progress("indexing", 0, len(tasks))
        shared = ProcessCaches(self._metadata)

        def run(task: UnitsTask) -> list[StageResult]:
            return [self.kept.keep(record) for record in index_units(task, plan, shared)]

        for done, part in enumerate(in_turn(run, tasks, self.threads), 1):
            records.extend(part)
            report_progress("indexing", done, len(tasks))
        return records

    def close(self) -> None:
        """Free the temporary file."""
        self.kept.close()


def _keep_freed_memory() -> None:
    """Let the C library keep memory that a thread frees between two files.

    That of GNU gives it back to the system else, and each file faults it in again, which costs a sixth of indexing. It
    keeps twice the largest array that was ever freed, for each thread. The array is never written, so it takes no
    memory.
    """
    np.empty(FREED_BYTES, np.uint8)


class MetadataCache:
    """Caches the metadata of the last files: decoding it is slow, and pieces of a file follow each other."""

    def __init__(self, most: int = 4) -> None:
        self._most = most
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Future[Metadata]] = OrderedDict()

    def __call__(self, source: Source, kind: str) -> Metadata:
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
