"""One function for files and tables: which options go together, where one file and several go, and what fails alone."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar
from sidecar.errors import DamagedFileError, StorageError, UsageError
from tests.embedding.table_cases import create


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A file, one beside it that is cut, and a Puffin file with the indexes of the first."""
    pq.write_table(pa.table({"k": list(range(100))}), tmp_path / "a.parquet")
    (tmp_path / "data").mkdir()
    whole = (tmp_path / "a.parquet").read_bytes()
    (tmp_path / "data" / "a.parquet").write_bytes(whole)
    (tmp_path / "data" / "cut.parquet").write_bytes(whole[:-9])
    sidecar.embed(tmp_path / "a.parquet", into=tmp_path / "full.parquet", bloom=["k"])
    sidecar.extract(tmp_path / "full.parquet", tmp_path / "x.puffin")
    return tmp_path


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"bloom": ["k"]}, "files are written anew"),
        ({"into": "new.parquet"}, "nothing to embed"),
        ({"into": "new.parquet", "bloom": ["k"], "dry_run": True}, "dry_run and refresh are for tables"),
        ({"into": "new.parquet", "bloom": ["k"], "refresh": False}, "dry_run and refresh are for tables"),
        ({"into": "new.parquet", "from_": "x.puffin", "fpp": 0.1}, "fpp and reuse are for new indexes"),
        ({"into": "new.parquet", "from_": "x.puffin", "reuse": "never"}, "fpp and reuse are for new indexes"),
        ({"into": "a.parquet", "bloom": ["k"]}, "the same file"),
        ({"into": "full.parquet", "bloom": ["k"]}, "exists already"),
    ],
)
def test_options_that_do_not_go_with_files(
    folder: Path, monkeypatch: pytest.MonkeyPatch, options: dict[str, Any], why: str
) -> None:
    monkeypatch.chdir(folder)
    before = {path: path.read_bytes() for path in folder.rglob("*.*")}
    with pytest.raises(UsageError, match=why):
        sidecar.embed("a.parquet", **options)
    assert {path: path.read_bytes() for path in folder.rglob("*.*")} == before


def test_options_that_do_not_go_with_a_table(catalog: Any, folder: Path) -> None:
    table = create(catalog, 1)
    for options in ({"into": folder / "new"}, {"from_": folder / "x.puffin"}):
        with pytest.raises(UsageError, match="into and from_ are for files"):
            sidecar.embed(table, bloom=["k"], **options)
    with pytest.raises(UsageError, match="no file was named"):
        sidecar.embed(into=folder / "new", bloom=["k"])


def test_one_file_takes_the_name_and_several_a_folder(folder: Path) -> None:
    for into, target in (("new.parquet", "new.parquet"), ("data", "data/full.parquet"), ("out/", "out/full.parquet")):
        report = sidecar.strip(folder / "full.parquet", f"{folder}/{into}")
        assert (report.only.target, len(report)) == (f"{folder}/{target}", 1)
        assert (folder / target).exists()
    report = sidecar.strip([folder / "full.parquet"], folder / "list")
    assert report.only.target == str(folder / "list" / "full.parquet")


@pytest.mark.parametrize("way", ["embed", "from", "strip"])
def test_a_bad_file_among_many_does_not_end_the_others(folder: Path, way: str) -> None:
    out = folder / "out"
    if way == "strip":
        report = sidecar.strip(folder / "data", out)
    else:
        report = sidecar.embed(
            folder / "data", into=out, **({"bloom": ["k"]} if way == "embed" else {"from_": folder / "x.puffin"})
        )
    assert {path: type(error) for path, error in report.failed.items()} == {
        str(folder / "data" / "cut.parquet"): DamagedFileError
    }
    assert [path.name for path in out.iterdir()] == ["a.parquet"]
    assert report.to_dict()["failed"].keys() == report.failed.keys()
    with pytest.raises(DamagedFileError):
        sidecar.strip(folder / "data" / "cut.parquet", folder / "one.parquet")


def test_a_file_that_is_missing_among_many_fails_alone_in_extract(folder: Path) -> None:
    missing = str(folder / "missing.parquet")
    report = sidecar.extract([folder / "full.parquet", missing], folder / "y.puffin")
    assert {path: type(error) for path, error in report.failed.items()} == {missing: StorageError}
    assert report.files == [str(folder / "full.parquet")]
    with pytest.raises(StorageError):
        sidecar.extract([missing], folder / "z.puffin")
    assert not (folder / "z.puffin").exists()


def test_a_sidecar_that_cannot_be_read_fails_for_each_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters are loaded once for all files; the writers that wait for them must not wait for ever."""

    def fail(*args: object) -> None:
        raise StorageError("the store is down")

    monkeypatch.setattr("sidecar.conversion.filter_pool.FilterPool.load_all", fail)
    (folder / "data" / "cut.parquet").unlink()
    (folder / "data" / "b").mkdir()
    for number in range(4):
        (folder / "data" / "b" / f"{number}.parquet").write_bytes((folder / "a.parquet").read_bytes())
    report = sidecar.embed(folder / "data", into=folder / "out", from_=folder / "x.puffin")
    assert [str(error.what) for error in report.failed.values()] == ["the store is down"] * 5
    assert [path for path in folder.joinpath("out").rglob("*") if path.is_file()] == []
