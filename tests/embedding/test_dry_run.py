"""Dry runs of embed, strip and convert: the report of the run that follows, and nothing written."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.errors import DamagedFileError, StorageError, UsageError
from sidecar.orc.tail import read_tail
from sidecar.source import LocalSource
from tests.conversion.cases import indexed, plain_of
from tests.dry_runs import assert_promised, assert_same_error, plain, unchanged, without_flag
from tests.embedding.encryption_matrix import Kind, Kms, rows, write_by_arrow

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
ORC, BARE_ORC, OLDER_ORC = "java_zlib_2stripes_utf8", "java_zlib_2stripes_nofilters", "apache_over1k_bloom"
ENCRYPTED = Kind("arrow", "encrypted", "AES_GCM_V1", 32, "none", "mixed")


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with files of all formats, and the temporary folder of the process in it."""
    (tmp_path / "temporary").mkdir()
    indexed(tmp_path, 1, 1500)
    indexed(tmp_path, 2, 300)
    for name in (ORC, BARE_ORC, OLDER_ORC):
        shutil.copy(DATA / f"{name}.orc", tmp_path / f"{name}.orc")
    at = str(tmp_path)
    sidecar.extract_files([f"{at}/part-1.parquet"], f"{at}/one.puffin")
    sidecar.extract_files([f"{at}/{ORC}.orc"], f"{at}/orc.puffin")
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    monkeypatch.chdir(tmp_path)
    return tmp_path


def column(name: str) -> str:
    """A column of an ORC file that can have a filter."""
    return next(c.path for c in read_tail(LocalSource(f"{name}.orc")).columns if not c.is_compound)


Run = Callable[[bool], Any]
EMBED: dict[str, Run] = {
    "parquet": lambda dry: sidecar.embed_file(
        "plain-1.parquet", "new.parquet", bloom=["k", "s"], page_index=True, dry_run=dry
    ),
    "after row groups": lambda dry: sidecar.embed_file(
        "part-1.parquet", "new.parquet", bloom=["n"], placement="row-group", harvest="never", dry_run=dry
    ),
    "orc": lambda dry: sidecar.embed_file(f"{BARE_ORC}.orc", "new.orc", bloom=[column(BARE_ORC)], dry_run=dry),
    "strip parquet": lambda dry: sidecar.strip_file("part-1.parquet", "new.parquet", dry_run=dry),
    "strip orc": lambda dry: sidecar.strip_file(f"{ORC}.orc", "new.orc", dry_run=dry),
    "from": lambda dry: sidecar.embed_from("one.puffin", "plain-1.parquet", "new.parquet", dry_run=dry),
    "from orc": lambda dry: sidecar.embed_from("orc.puffin", f"{ORC}.orc", "new.orc", dry_run=dry),
}


def convert(sources: list[str], target: str, **options: Any) -> Run:
    return lambda dry: sidecar.convert_files(sources, target, dry_run=dry, **options)


CONVERT: dict[str, Run] = {
    "parquet to puffin": convert(["part-1.parquet", "part-2.parquet"], "new.puffin"),
    "merged": convert(["part-1.parquet", "part-2.parquet"], "new.puffin", merge_all=True, measure=False),
    "orc to puffin": convert([f"{ORC}.orc"], "new.puffin"),
    "orc to puffin, rebuilt": convert([f"{ORC}.orc"], "new.puffin", kind="parquet"),
    "parquet to puffin, rebuilt": convert(["part-1.parquet"], "new.puffin", kind="orc"),
    "puffin to puffin": convert(["one.puffin"], "new.puffin", fpp=0.05),
    "puffin to parquet": convert(["one.puffin"], "new.parquet", data="plain-1.parquet"),
    "puffin to orc": convert(["orc.puffin"], "new.orc", data=f"{ORC}.orc"),
    "parquet to parquet": convert(["part-1.parquet"], "new.parquet", fpp=0.2),
    "parquet to parquet, widened": convert(["part-1.parquet"], "new.parquet", widen=True),
    "orc to orc": convert([f"{OLDER_ORC}.orc"], "new.orc"),
    "orc to parquet": convert(["twin.orc"], "new.parquet", data="bare.parquet"),
    "parquet to orc": convert(["same.parquet"], "new.orc", data="twin.orc"),
}


def new_file() -> Path:
    (found,) = Path().glob("new.*")
    return found


@pytest.mark.parametrize("name", EMBED)
@pytest.mark.usefixtures("place")
def test_a_dry_run_promises_the_file_that_embed_writes(name: str) -> None:
    report = assert_promised(Path(), EMBED[name])
    assert report.written.size == new_file().stat().st_size
    assert list(Path("temporary").iterdir()) == []


def write_twins() -> None:
    """A Parquet and an ORC file with the same rows, and filters on two columns."""
    table = pa.table({"k": range(3000), "s": [f"text {n % 70}" for n in range(3000)]})
    orc.write_table(table, "twin.orc", bloom_filter_columns=[0, 1])
    pq.write_table(table, "bare.parquet", row_group_size=1000)
    sidecar.embed_file("bare.parquet", "same.parquet", bloom=["k", "s"])


@pytest.mark.parametrize("name", CONVERT)
@pytest.mark.usefixtures("place")
def test_a_dry_run_promises_the_file_that_convert_writes(name: str) -> None:
    if "parquet" in name and "orc" in name:
        write_twins()
    report = assert_promised(Path(), CONVERT[name])
    assert report.size == new_file().stat().st_size
    assert list(Path("temporary").iterdir()) == []


@pytest.mark.usefixtures("place")
def test_encrypted_files_and_their_key_material() -> None:
    keys = sidecar.EncryptionKeys(sidecar.KmsKeys(Kms, None))
    Path("sealed").mkdir()
    write_by_arrow(ENCRYPTED, Path("sealed/file.parquet").absolute(), rows(), outside=True)
    for run, target in (
        (
            lambda dry: sidecar.embed_file(
                "sealed/file.parquet", "a.parquet", bloom=["k"], encryption_keys=keys, dry_run=dry
            ),
            "a.parquet",
        ),
        (
            lambda dry: sidecar.strip_file("a.parquet", "b.parquet", encryption_keys=keys, dry_run=dry),
            "b.parquet",
        ),
    ):
        report = assert_promised(Path(), run)
        assert report.written.size == Path(target).stat().st_size
        assert Path(f"_KEY_MATERIAL_FOR_{target}.json").exists()
    assert_same_error(Path(), lambda dry: sidecar.strip_file("a.parquet", "c.parquet", dry_run=dry))


@pytest.mark.usefixtures("place")
def test_many_files_make_no_folder() -> None:
    sources = [os.path.abspath("plain-1.parquet"), os.path.abspath("plain-2.parquet")]

    def embed(dry: bool) -> Any:
        return sidecar.embed_files(sources, "deep/new", bloom=["k"], dry_run=dry)

    def strip(dry: bool) -> Any:
        return sidecar.strip_files("deep/new", "deep/bare", dry_run=dry)

    for run, folder in ((embed, "deep/new"), (strip, "deep/bare")):
        report = assert_promised(Path(), run)
        assert report.to_dict()["summary"]["size"] == sum(p.stat().st_size for p in Path(folder).iterdir())
    assert isinstance(assert_same_error(Path(), strip), UsageError)


@pytest.mark.usefixtures("place")
def test_all_files_of_a_sidecar_make_no_folder() -> None:
    files = [os.path.abspath(f"part-{number}.parquet") for number in (1, 2)]
    sidecar.extract_files(files, "both.puffin")
    reports = assert_promised(Path(), lambda dry: sidecar.embed_all_from("both.puffin", "a/b", dry_run=dry))
    assert [r.written.size for r in reports] == [os.path.getsize(r.target) for r in reports]


@pytest.mark.parametrize(
    "target",
    ["none/new.parquet", "part-1.parquet/new.parquet", "part-2.parquet", "n" * 230, "plain-1.parquet"],
)
@pytest.mark.usefixtures("place")
def test_a_target_that_cannot_be_made_is_the_same_error(target: str) -> None:
    def embed(dry: bool) -> Any:
        return sidecar.embed_file("plain-1.parquet", target, bloom=["k"], dry_run=dry)

    assert isinstance(assert_same_error(Path(), embed), UsageError | StorageError)


@pytest.mark.parametrize("folder", ["part-1.parquet", "part-1.parquet/deep/er", "n" * 300])
@pytest.mark.usefixtures("place")
def test_a_folder_that_cannot_be_made_is_the_same_error(folder: str) -> None:
    def strip(dry: bool) -> Any:
        return sidecar.strip_files(["plain-1.parquet", "plain-2.parquet"], folder, dry_run=dry)

    assert isinstance(assert_same_error(Path(), strip), StorageError)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
@pytest.mark.usefixtures("place")
def test_a_folder_without_permission_is_the_same_error() -> None:
    Path("closed").mkdir(mode=0o500)
    assert_same_error(Path(), lambda dry: sidecar.strip_file("part-1.parquet", "closed/new.parquet", dry_run=dry))


@pytest.mark.usefixtures("place")
def test_a_file_that_breaks_in_the_middle_leaves_nothing() -> None:
    path = Path(f"{ORC}.orc")
    last = read_tail(LocalSource(str(path))).stripes[-1]
    data = bytearray(path.read_bytes())
    footer = last.offset + last.index_length + last.data_length
    data[footer : footer + last.footer_length] = b"\xff" * last.footer_length
    path.write_bytes(data)
    error = assert_same_error(Path(), lambda dry: sidecar.strip_file(str(path), "new.orc", dry_run=dry))
    assert isinstance(error, DamagedFileError)


@pytest.mark.usefixtures("place")
def test_many_files_with_a_damaged_one() -> None:
    Path("bad.parquet").write_bytes(Path("part-1.parquet").read_bytes()[:-9])
    sources = ["part-1.parquet", "bad.parquet", "part-2.parquet"]
    with unchanged(Path()), pytest.raises(DamagedFileError):
        sidecar.strip_files(sources, "out", dry_run=True)
    report = assert_promised(Path(), lambda dry: sidecar.strip_files(sources, "out", skip_bad=True, dry_run=dry))
    assert [os.path.basename(file.file) for file in report.skipped] == ["bad.parquet"]


@pytest.mark.usefixtures("place")
def test_damaged_pages_are_the_same_outcome() -> None:
    data = bytearray(Path("plain-1.parquet").read_bytes())
    data[200:9000] = b"\xff" * 8800
    Path("plain-1.parquet").write_bytes(data)
    report = assert_promised(Path(), EMBED["parquet"])
    assert report.damaged


@pytest.mark.usefixtures("place")
def test_temporary_files_of_killed_runs_stay() -> None:
    left = Path(f"old.parquet.{'0' * 32}.sidecar-tmp")
    left.touch()
    os.utime(left, (0, 0))
    with unchanged(Path()):
        sidecar.strip_file("part-1.parquet", "new.parquet", dry_run=True)


@pytest.mark.usefixtures("place")
def test_progress_is_reported() -> None:
    seen: list[Any] = []
    for dry in (True, False):
        calls: list[Any] = []
        with sidecar.progress(lambda *call, to=calls: to.append(call)):
            sidecar.strip_file("part-1.parquet", "new.parquet", dry_run=dry)
        seen.append(calls)
    assert seen[0] == seen[1] != []


def test_a_url_of_a_local_file(place: Path) -> None:
    source, target = f"file:{plain_of(place / 'part-1.parquet')}", f"file:{place}/new.parquet"
    assert_promised(place, lambda dry: sidecar.embed_file(source, target, bloom=["k"], dry_run=dry))


@pytest.mark.usefixtures("place")
def test_a_store_is_asked_whether_the_file_exists() -> None:
    from pyiceberg.io.fsspec import FsspecFileIO

    io = FsspecFileIO({})
    io._scheme_to_fs["memory"] = lambda _: __import__("fsspec").filesystem("memory")
    filesystem = io.get_fs("memory")
    filesystem.pipe_file("/dry/in.parquet", Path("part-1.parquet").read_bytes())

    def strip(dry: bool) -> Any:
        return sidecar.strip_file("memory://dry/in.parquet", "memory://dry/out.parquet", io=io, dry_run=dry)

    promised = strip(True)
    assert filesystem.find("/dry") == ["/dry/in.parquet"]
    assert without_flag(plain(promised)) == without_flag(plain(strip(False)))
    with pytest.raises(UsageError, match="exists already"):
        strip(True)


@pytest.mark.usefixtures("place")
@pytest.mark.parametrize("folder", [None, "out"])
def test_a_url_of_the_web_is_the_same_error(folder: str | None) -> None:
    url = "https://example.invalid/a.parquet"

    def strip(dry: bool) -> Any:
        if folder is not None:
            return sidecar.strip_files(url, folder, dry_run=dry)
        return sidecar.strip_file(url, "new.parquet", dry_run=dry)

    assert isinstance(assert_same_error(Path(), strip), UsageError)
