"""Dry runs of extract and of converting a single filter: the report of the run that follows, and nothing written."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import SidecarError
from tests.conversion.cases import DATA, indexed
from tests.dry_runs import assert_promised, assert_same_error

ORC = DATA.parent / "orc" / "java_zlib_2stripes_utf8.orc"


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files, and the temporary folder of the process in it."""
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    for number in (1, 2):
        indexed(tmp_path, number, 300)
    shutil.copy(ORC, tmp_path / "some.orc")
    shutil.copy(DATA / "apache_bloom_filter.bin", tmp_path / "old.bin")
    pq.write_table(pa.table({"s": ["hello", "parquet", "bloom", "filter"]}), tmp_path / "values.parquet")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize("options", [{}, {"bloom": False}, {"columns": ["k"]}])
def test_extract_promises_its_file(options: dict[str, Any], place: Path) -> None:
    files = ["part-1.parquet", "part-2.parquet", *([] if "columns" in options else ["some.orc"])]

    def run(dry: bool) -> Any:
        return sidecar.extract_files(files, "new.puffin", dry_run=dry, **options)

    report = assert_promised(place, run)
    assert report.size == Path("new.puffin").stat().st_size
    assert list(Path("temporary").iterdir()) == []
    assert_same_error(place, run)


@pytest.mark.parametrize(
    ("files", "target"),
    [
        (["plain-1.parquet"], "new.puffin"),
        (["part-1.parquet"], "none/new.puffin"),
        (["part-1.parquet", "nosuch.parquet"], "new.puffin"),
        (["part-1.parquet", "cut.parquet"], "new.puffin"),
        ([], "new.puffin"),
    ],
)
def test_errors_of_extract_are_the_same(files: list[str], target: str, place: Path) -> None:
    Path("cut.parquet").write_bytes(Path("part-1.parquet").read_bytes()[:-20])
    assert_same_error(place, lambda dry: sidecar.extract_files(files, target, dry_run=dry))


def test_a_historical_filter(place: Path) -> None:
    def run(dry: bool) -> Any:
        return sidecar.convert_filter("old.bin", "new.bin", values="values.parquet:s", dry_run=dry)

    report = assert_promised(place, run)
    assert report.size == Path("new.bin").stat().st_size
    assert isinstance(assert_same_error(place, run), SidecarError)
