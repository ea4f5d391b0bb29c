"""Pages are copied while their digest is taken: nothing is published before the file is proven to be the right one."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import pyarrow as pa
import pytest
from pyarrow import orc
from pyiceberg.io.fsspec import FsspecFileIO

import sidecar
from sidecar.conversion.matching.identity import Identity
from sidecar.conversion.matching.match import Match, prove
from sidecar.embedding import restore_plan
from sidecar.errors import StorageError, UsageError, WrongChecksumError
from sidecar.parquet.footer import read_footer
from sidecar.storage.local import LocalSource
from tests.embedding.witness_cases import assert_nothing_lost, extracted, write

ANEW = "rewritten since it was indexed"


def indexed(folder: Path, seed: int, **options: Any) -> tuple[Path, str]:
    """A file without indexes, and a sidecar of the same file with indexes."""
    bare, full = write(folder / f"{seed}.parquet", seed, **options), folder / "full" / f"{seed}.parquet"
    full.parent.mkdir(exist_ok=True)
    sidecar.embed(str(bare), into=str(full), bloom=["k", "s"], page_index=True)
    return bare, extracted(full)


def flip(path: Path, row_group: int, column: int) -> None:
    """Change a bit of the last byte of a column chunk, which is a value."""
    source = LocalSource(str(path))
    chunk = read_footer(source).row_groups[row_group].columns[column]
    source.close()
    data = bytearray(path.read_bytes())
    data[chunk.start + chunk.total_compressed_size - 1] ^= 1
    path.write_bytes(data)


def test_a_wrong_file_is_copied_and_not_published(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its proof comes only after its pages were copied."""
    bare, puffin = indexed(tmp_path, 1)
    write(bare, 2)
    out, copied = tmp_path / "out", []

    def late(identity: Identity, matches: Sequence[Match]) -> list[Match]:
        done = threading.Event()
        for _ in range(1000):
            copied[:] = [path.name for path in out.iterdir() if path.stat().st_size > 10_000]
            if copied or done.wait(0.01):
                break
        return prove(identity, matches)

    out.mkdir()
    monkeypatch.setattr(restore_plan, "prove", late)
    with pytest.raises(UsageError, match=ANEW):
        sidecar.embed(str(bare), into=str(out / "1.parquet"), from_=puffin)
    assert copied[0].endswith(".sidecar-tmp")
    assert list(out.iterdir()) == []


class FilesInMemory(FsspecFileIO):
    """A ``FileIO`` that is not pyiceberg's own, so that any URL goes."""


def test_nothing_is_written_to_a_store_before_the_proof(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A store may publish what it has when a file is given up."""
    bare, puffin = indexed(tmp_path, 1)
    created: list[str] = []
    io, target = FilesInMemory({}), "memory://proof/out.parquet"
    io._scheme_to_fs["memory"] = lambda _: fsspec.filesystem("memory")
    new_output = io.new_output
    monkeypatch.setattr(io, "new_output", lambda path: created.append(path) or new_output(path))
    write(bare, 2)
    with pytest.raises(UsageError, match=ANEW):
        sidecar.embed(str(bare), into=target, from_=puffin, io=io)
    assert created == []
    write(bare, 1)
    sidecar.embed(str(bare), into=target, from_=puffin, io=io)
    assert created == [target]


def test_the_right_files_beside_a_wrong_one_are_whole_or_absent(tmp_path: Path) -> None:
    files = [indexed(tmp_path / str(seed), seed)[0] for seed in range(1, 7)]
    puffin = str(tmp_path / "all.puffin")
    sidecar.extract([str(path.parent / "full" / path.name) for path in files], puffin)
    write(files[4], 9)
    found = sidecar.embed([str(path) for path in files], into=str(tmp_path / "out"), from_=puffin)
    ((failed, error),) = found.failed.items()
    assert (failed, ANEW in str(error)) == (str(files[4]), True)
    made = sorted(path.name for path in (tmp_path / "out").rglob("*") if path.is_file())
    assert made == ["1.parquet", "2.parquet", "3.parquet", "4.parquet", "6.parquet"]
    write(files[4], 5)
    for report in sidecar.embed([str(path) for path in files], into=str(tmp_path / "again"), from_=puffin):
        assert report.ways() == {"bloom": {"exact": 6}, "page-index": {"exact": 6}}
        assert_nothing_lost(Path(report.target), int(Path(report.source).stem))


def test_a_damaged_page_is_named_where_it_has_a_checksum(tmp_path: Path) -> None:
    bare, puffin = indexed(tmp_path, 1, write_page_checksum=True)
    flip(bare, 1, 0)
    with pytest.raises(WrongChecksumError, match="column k") as caught:
        sidecar.embed(str(bare), into=str(tmp_path / "out.parquet"), from_=puffin)
    assert caught.value.file == str(bare)
    bare, puffin = indexed(tmp_path / "without", 1)
    flip(bare, 1, 0)
    with pytest.raises(UsageError, match=ANEW):
        sidecar.embed(str(bare), into=str(tmp_path / "out.parquet"), from_=puffin)
    assert not (tmp_path / "out.parquet").exists()


def test_a_bit_that_flips_on_the_way_once_does_no_harm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The pages are read again, with their checksums."""
    bare, puffin = indexed(tmp_path, 1, write_page_checksum=True)
    read, flips = LocalSource.read, [True]

    def flipping(source: LocalSource, offset: int, length: int) -> bytes:
        data = read(source, offset, length)
        if source.name == str(bare) and offset + length < source.size and length > 5_000 and flips:
            return data[:-1] + bytes([data[-1] ^ flips.pop()])
        return data

    monkeypatch.setattr(LocalSource, "read", flipping)
    report = sidecar.embed(str(bare), into=str(tmp_path / "out.parquet"), from_=puffin).only
    assert flips == []
    assert report.witness.proof == "the digest of the stored pages"
    assert_nothing_lost(tmp_path / "out.parquet", 1)


def test_checksums_of_the_right_pages_are_not_computed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They cost as much as the digest, which says more."""
    bare, puffin = indexed(tmp_path, 1, write_page_checksum=True)

    def never(*args: object) -> None:
        raise AssertionError(args)

    monkeypatch.setattr("sidecar.parquet.identity.CheckedPages", never)
    report = sidecar.embed(str(bare), into=str(tmp_path / "out.parquet"), from_=puffin).only
    assert report.ways()["bloom"] == {"exact": 6}


@pytest.mark.parametrize("make", ["parquet", "orc"])
def test_a_file_stays_open_until_its_proof_has_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make: str
) -> None:
    """Else the number of its descriptor is soon another file's, whose bytes would go into the digest."""
    if make == "parquet":
        bare, puffin = indexed(tmp_path, 1)
    else:
        bare, puffin = orc_pair(tmp_path)
    failed, seen = threading.Event(), []

    def late(identity: Identity, matches: Sequence[Match]) -> list[Match]:
        failed.wait(10)
        threading.Event().wait(0.1)
        seen.append(len(identity.digest()))
        return prove(identity, matches)

    def fail(*args: object, **options: object) -> None:
        failed.set()
        raise StorageError("the disk is full")

    monkeypatch.setattr(restore_plan, "prove", late)
    monkeypatch.setattr("sidecar.access.Access.create", fail)
    with pytest.raises(StorageError, match="the disk is full"):
        sidecar.embed(str(bare), into=str(tmp_path / "out"), from_=puffin)
    assert seen == [32]


def orc_pair(folder: Path) -> tuple[Path, str]:
    """An ORC file without filters, and a sidecar of the same file with filters."""
    bare, full = folder / "a.orc", folder / "full" / "a.orc"
    full.parent.mkdir()
    orc.write_table(pa.table({"k": list(range(5000))}), bare)
    sidecar.embed(str(bare), into=str(full), bloom=["k"])
    return bare, extracted(full)
