"""Makes each further task of a Python worker of Spark cheap.

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
from collections.abc import Iterator
from functools import wraps
from zipimport import zipimporter

import pyarrow as pa

from sidecar.spark.frames import ArrowMap


def sparing_workers(run: ArrowMap) -> ArrowMap:
    """Return a function for ``mapInArrow`` that does what ``run`` does, and then makes the worker's next task cheap."""

    @wraps(run)
    def sparing(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        yield from run(batches)
        spare_worker()

    return sparing


def spare_worker() -> None:
    """Take what this process has imported out of garbage collections, and forget importers of archives."""
    if not gc.get_freeze_count():
        gc.collect()
        gc.freeze()
    for path, importer in list(sys.path_importer_cache.items()):
        if isinstance(importer, zipimporter):
            del sys.path_importer_cache[path]
