"""PySpark's daemon for Python workers, with what they import imported before it forks them.

Workers end after a minute without work, and each would import for two seconds.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

OURS = ("numba", "pandas", "pyiceberg.catalog.sql", "sidecar.indexing.stage_one.tasks")

if __name__ == "__main__":
    for name in OURS:
        import_module(name)
    pyspark_daemon: Any = import_module("pyspark.daemon")
    pyspark_daemon.manager()
