"""PySpark's daemon for workers that die: for each kind of work, the first worker that has finished an item.

At that moment its new file is published, and its result is lost. With ``executor`` as the way to die, the whole
executor goes, with the results that it keeps; with ``worker`` only the Python process.
"""

from __future__ import annotations

import os
import signal
import time
from importlib import import_module
from pathlib import Path
from typing import Any

from tests.spark.daemon import OURS

DEATHS = "SIDECAR_TEST_DEATHS"
"""Variable with the folder where each death is noted, as an empty file. ``<kind>.executor`` is there before."""


def die_once(kind: str) -> None:
    folder = Path(os.environ[DEATHS])
    try:
        (folder / kind).touch(exist_ok=False)
    except FileExistsError:
        return
    whole = (folder / f"{kind}.executor").exists()
    daemon = os.getppid()
    executor = int(Path(f"/proc/{daemon}/stat").read_text().rpartition(")")[2].split()[1])
    os.kill(executor if whole else os.getpid(), signal.SIGKILL)
    time.sleep(60)


def patch() -> None:
    """Have workers die after an item of :mod:`sidecar.spark.work`, and after a task of a build's stage 1."""
    work: Any = import_module("sidecar.spark.work")
    tasks: Any = import_module("sidecar.indexing.stage_one.tasks")
    answer, index_units = work.answer_of, tasks.index_units

    def answer_and_die(function: Any, item: Any) -> bytes:
        found: bytes = answer(function, item)
        inner = getattr(function, "work", function)
        die_once(type(inner).__name__.strip("_"))
        return found

    def index_and_die(*arguments: Any) -> Any:
        yield from index_units(*arguments)
        die_once("index_units")

    work.answer_of, tasks.index_units = answer_and_die, index_and_die


if __name__ == "__main__":
    for name in (*OURS, "sidecar.embedding.file", "sidecar.conversion.to_puffin", "sidecar.many_files.verify"):
        import_module(name)
    patch()
    pyspark_daemon: Any = import_module("pyspark.daemon")
    pyspark_daemon.manager()
