"""Executors with another version of sidecar than the driver do no work, and the driver says so."""

from __future__ import annotations

import os
import pickle
import shutil
import subprocess
import sys
import zipfile
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.errors import UsageError
from sidecar.spark import engine, same_code
from sidecar.spark.same_code import digest_of
from tests.tables import create_with_rows

OTHER = "another version of sidecar than the driver"


@pytest.fixture
def package(tmp_path: Path) -> Path:
    folder = tmp_path / "package"
    (folder / "inner").mkdir(parents=True)
    (folder / "one.py").write_text("a = 1\n")
    (folder / "inner" / "two.py").write_text("b = 2\n")
    return folder


def test_equal_sources_have_equal_digests(package: Path, tmp_path: Path) -> None:
    """Whatever lies beside them, also in an archive."""
    copy = tmp_path / "copy"
    shutil.copytree(package, copy)
    (copy / "__pycache__").mkdir()
    (copy / "__pycache__" / "one.py").write_text("compiled")
    (copy / "guide.md").write_text("text")
    (copy / "one.py").write_bytes(b"a = 1\r\n")  # as a checkout on Windows has it
    (copy / ".#one.py").symlink_to("somebody@a-machine")  # Emacs locks a file so
    (copy / "one 2.py").write_text("a copy")
    (copy / ".ipynb_checkpoints").mkdir()
    (copy / ".ipynb_checkpoints" / "one.py").write_text("older")
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for file in ("one.py", "inner/two.py"):
            archive.write(package / file, f"package/{file}")
    assert digest_of(copy) == digest_of(package)
    assert digest_of(zipfile.Path(tmp_path / "package.zip", "package/")) == digest_of(package)


@pytest.mark.parametrize("change", ["byte", "name", "place", "missing"])
def test_other_sources_have_other_digests(package: Path, change: str) -> None:
    before = digest_of(package)
    if change == "byte":
        (package / "one.py").write_text("a = 2\n")
    elif change == "name":
        (package / "one.py").rename(package / "uno.py")
    elif change == "place":
        (package / "inner" / "two.py").rename(package / "two.py")
    else:
        (package / "one.py").unlink()
    assert digest_of(package) != before


def test_a_package_without_sources_has_its_version(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(same_code, "files", lambda _: tmp_path)
    assert same_code.code_digest.__wrapped__() == version("lakehouse-sidecar")


def test_the_package_in_an_archive_is_the_same_version(tmp_path: Path) -> None:
    """As ``--py-files`` sends it."""
    folder = Path(sidecar.__file__).parent
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for file in folder.rglob("*.py*"):
            if file.suffix in (".py", ".pyi"):
                archive.write(file, file.relative_to(folder.parent))
    code = "import sidecar as s, sidecar.spark.same_code as c; print(s.__file__, len(s.__all__), c.code_digest())"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": "package.zip"},
        capture_output=True,
        text=True,
        check=True,
    )
    place, names, digest = done.stdout.split()
    assert "package.zip" in place
    assert (int(names), digest) == (len(sidecar.__all__), same_code.code_digest())


def _fail() -> None:
    raise ModuleNotFoundError("the other version does not have this module")


class OfTheDriver:
    """A plan of whose class the other version knows nothing."""

    def __reduce__(self) -> Any:
        return _fail, ()


def test_a_worker_says_so_before_it_looks_at_the_plan(monkeypatch: pytest.MonkeyPatch) -> None:
    from pyspark import cloudpickle

    shipped = cloudpickle.dumps(engine._stage_one(OfTheDriver()))  # type: ignore[arg-type]
    monkeypatch.setattr("sidecar.spark.same_code.code_digest", lambda: "worker")
    (refusal,) = pickle.loads(shipped)(iter([]))
    assert (refusal["task"].to_pylist(), refusal["records"].to_pylist()) == ([engine.REFUSED], [b"worker"])


@pytest.mark.jvm
def test_nothing_is_done_by_other_code(
    catalog: Any, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver has a digest of its own, the workers have another one."""
    table = create_with_rows(catalog, "db.other_code", [pa.table({"k": [1, 2, 3]})])
    files = [task.file.file_path for task in table.scan().plan_files()]
    sidecar.embed(files, into=str(tmp_path / "embedded"), bloom=["k"], spark=spark)
    driver = os.getpid()
    for module in ("same_code", "workers"):
        monkeypatch.setattr(
            f"sidecar.spark.{module}.code_digest", lambda: "driver" if os.getpid() == driver else "worker"
        )
    with pytest.raises(UsageError, match=OTHER) as built:
        sidecar.build(table, ["k"], spark=spark)
    assert (built.value.expected, built.value.found) == ("driver", "worker")
    with pytest.raises(UsageError, match=OTHER):
        sidecar.embed(files, into=str(tmp_path / "other"), bloom=["k"], spark=spark)
    assert list(tmp_path.glob("other/*")) == []
    assert table.refresh().metadata.statistics == []
