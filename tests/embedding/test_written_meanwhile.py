"""A file that somebody writes to while it is read gets, and gives, no indexes."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pyarrow as pa
import pyarrow.orc
import pytest

import sidecar
from sidecar.conversion.collection import Collection
from sidecar.conversion.extract import Extractor
from sidecar.data_files.formats import open_file
from sidecar.errors import StorageError
from sidecar.storage.local import LocalSource
from tests.embedding.cases import assert_sound
from tests.embedding.witness_cases import keys_of, write


def _rewrite(path: Path, seed: int) -> None:
    """Write other values of equal size into the very file that is open."""
    inode = path.stat().st_ino
    path.write_bytes(write(path.with_name("other"), seed).read_bytes())
    assert path.stat().st_ino == inode


@pytest.mark.parametrize("way", ["embed", "embed --from"])
def test_a_file_that_is_written_to_meanwhile_is_not_published(tmp_path: Path, way: str) -> None:
    """Its pages are copied first; filters would be of the values that came later, or those that were there before."""
    path, target = write(tmp_path / "a.parquet", 1), tmp_path / "out.parquet"
    indexed, puffin = tmp_path / "whole" / "a.parquet", tmp_path / "x.puffin"
    indexed.parent.mkdir()
    sidecar.embed(str(path), into=str(indexed), bloom=["k"])
    sidecar.extract([str(indexed)], str(puffin))
    state = path.stat().st_mtime_ns

    def progress(what: str, number: int | None, count: int | None) -> None:
        if what == "row groups" and path.stat().st_mtime_ns == state:
            _rewrite(path, 2)

    def run() -> None:
        if way == "embed":
            sidecar.embed(str(path), into=str(target), bloom=["k"])
        else:
            sidecar.embed(str(path), into=str(target), from_=str(puffin))

    with sidecar.progress(progress), pytest.raises(StorageError, match="the file changed while sidecar was reading it"):
        run()
    assert path.stat().st_mtime_ns != state
    assert not target.exists()
    sidecar.embed(str(path), into=str(target), bloom=["k"])
    assert_sound(target)


class _RewrittenBehind(LocalSource):
    """A file into which somebody writes other values once its first bytes were read."""

    def read(self, offset: int, length: int) -> bytes:
        data = super().read(offset, length)
        path = Path(self.name)
        path.write_bytes(path.with_name("other").read_bytes())
        return data


def test_nothing_is_extracted_of_a_file_that_is_written_to_meanwhile(tmp_path: Path) -> None:
    """The digest would prove pages that the filters are not of."""
    for name, seed in (("a.parquet", 1), ("other", 2)):
        sidecar.embed(str(write(tmp_path / str(seed) / name, seed)), into=str(tmp_path / name), bloom=["k"])
    with (
        closing(Collection()) as collection,
        closing(_RewrittenBehind(str(tmp_path / "a.parquet"))) as source,
    ):
        taker = Extractor(collection, bloom=True, page_index=True, columns=None)
        with pytest.raises(StorageError, match="the file changed while sidecar was reading it"):
            taker.take(open_file(source))


def test_an_orc_file_that_is_written_to_meanwhile_is_not_published(tmp_path: Path) -> None:
    path, target = tmp_path / "a.orc", tmp_path / "out.orc"
    pyarrow.orc.write_table(pa.table({"k": keys_of(1)}), path)
    state = path.stat().st_mtime_ns

    def progress(what: str, number: int | None, count: int | None) -> None:
        if path.stat().st_mtime_ns == state:
            path.write_bytes(path.read_bytes())

    with (
        sidecar.progress(progress),
        pytest.raises(StorageError, match="the file changed while sidecar was reading it"),
    ):
        sidecar.embed(str(path), into=str(target), bloom=["k"])
    assert not target.exists()
