"""Runs stages on Spark's Python workers: with the driver's version of sidecar only, and with cheap further tasks.

pyspark does two things for each task that take longer the more a process has imported, and sidecar imports much:

- After a task it collects garbage, and looks at all objects for that: 0.1 s. :func:`gc.freeze` takes those that are
  there after the first task out of all collections.
- Before a task importlib forgets what folders and archives hold. In Python 3.10 to 3.12 the importers of archives read
  their lists again at once, and a worker has one importer for each package in ``pyspark.zip``: 0.15 s. An importer
  that is removed from importlib's cache is made again by the next import that needs it.

Neither changes what the process does. It also serves the other tasks of the session.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from functools import wraps
from zipimport import zipimporter

import pyarrow as pa

from sidecar.spark.frames import ArrowMap
from sidecar.spark.same_code import code_digest


def on_workers(run: ArrowMap, refusal: Callable[[str], pa.RecordBatch]) -> ArrowMap:
    """Return a function for ``mapInArrow`` that does what ``run`` does, and then makes the worker's next task cheap.

    A worker with another version of sidecar does not call ``run``. It yields ``refusal(digest)``, the row that tells
    the driver so: an exception would reach the driver as a text among others.
    """
    expected = code_digest()

    @wraps(run)
    def checked(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        found = code_digest()
        if found == expected:
            yield from run(batches)
        else:
            yield refusal(found)
        spare_worker()

    return checked


def spare_worker() -> None:
    """Take what this process has imported out of garbage collections, and forget importers of archives."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
