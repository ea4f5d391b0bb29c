"""Python workers of Spark after a task: nothing is slow in the next one, and imports go on as before."""

from __future__ import annotations

import gc
import importlib
import sys
from pathlib import Path
from zipfile import ZipFile
from zipimport import zipimporter

import pyarrow as pa
import pytest

from sidecar.spark.workers import on_workers, spare_worker


@pytest.fixture
def archive(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """An archive of modules on the path, as pyspark.zip is for workers."""
    path = str(tmp_path / "modules.zip")
    with ZipFile(path, "w") as file:
        for name in ("spare_first", "spare_second", "spare_package/__init__", "spare_package/inner"):
            file.writestr(f"{name}.py", f"name = {name!r}")
    monkeypatch.setattr(sys, "path", [*sys.path, path])
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    monkeypatch.setattr(gc, "get_freeze_count", lambda: 1)
    return path


def _archives() -> list[str]:
    return [path for path, importer in sys.path_importer_cache.items() if isinstance(importer, zipimporter)]


def test_no_importer_of_an_archive_is_left_and_imports_go_on(archive: str) -> None:
    for name in ("spare_first", "spare_package.inner"):
        importlib.import_module(name)
    assert len(_archives()) >= 2
    list(on_workers(lambda batches: iter([]), lambda digest: pa.record_batch({}))(iter([])))
    assert _archives() == []
    importlib.invalidate_caches()
    assert importlib.import_module("spare_second").name == "spare_second"
    assert importlib.import_module("spare_first").__spec__.loader.archive == archive  # type: ignore[union-attr]


def test_objects_are_frozen_once(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    monkeypatch.setattr(gc, "get_freeze_count", lambda: done.count("freeze"))
    monkeypatch.setattr(gc, "collect", lambda: done.append("collect"))
    monkeypatch.setattr(gc, "freeze", lambda: done.append("freeze"))
    spare_worker()
    spare_worker()
    assert done == ["collect", "freeze"]  # garbage first, or it would stay
