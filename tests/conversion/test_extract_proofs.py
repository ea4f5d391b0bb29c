"""Which pages extraction reads to tell that filters and indexes are those of their file."""

from __future__ import annotations

import shutil
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

import sidecar
from sidecar.access import Access
from sidecar.conversion.collection import Collection
from sidecar.conversion.extract import Extractor
from sidecar.data_files.formats import open_file
from sidecar.errors import UsageError
from sidecar.parquet.footer import read_footer
from sidecar.parquet.identity import is_distinctive, pages_fingerprint
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.local import LocalSource
from sidecar.storage.source import BytesSource, CountingSource
from tests.conversion.cases import as_remote, indexed, indexes, plain_of
from tests.object_store import SCHEME, FolderIO


class _Copied:
    """A target whose copies are made by the kernel of another file: the source is not read for them."""

    def __init__(self, target: Any, inner: LocalSource) -> None:
        self._target, self._inner = target, inner
        self.name = target.name

    @property
    def position(self) -> int:
        return int(self._target.position)

    def write(self, data: bytes) -> None:
        self._target.write(data)

    def copy(self, source: Any, offset: int, length: int) -> None:
        self._target.copy(self._inner, offset, length)

    def flush(self) -> None:
        self._target.flush()


def test_pages_are_read_once_for_their_digest_and_one_a_chunk_is_looked_at(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin)
    plain = plain_of(path)
    footer = read_footer(LocalSource(str(plain)))
    inner = LocalSource(str(plain))
    counting = CountingSource(inner)
    reads: list[tuple[int, int]] = []
    real = counting.read

    def read(offset: int, length: int) -> bytes:
        reads.append((offset, length))
        return real(offset, length)

    monkeypatch.setattr(counting, "read", read)
    create = Access.create
    monkeypatch.setattr(Access, "open", lambda access, p: counting if p == str(plain) else LocalSource(p))

    @contextmanager
    def target(access: Access, p: str) -> Any:
        with create(access, p) as opened:
            yield _Copied(opened, inner)

    monkeypatch.setattr(Access, "create", target)
    sidecar.embed(str(plain), into=str(back), from_=puffin)
    assert indexes(back) == indexes(path)
    chunks = [(c.start, c.total_compressed_size) for g in footer.row_groups for c in g.columns]
    others = [read for read in reads if read not in [(0, 4), *chunks]]
    body = max(offset + length for offset, length in chunks)
    of_pages = [read for read in others if read[0] < body and sum(read) < footer.size]
    assert len(others) - len(of_pages) <= 3
    assert [read for read in reads if read in chunks][: len(chunks)] == chunks
    assert len(of_pages) <= 2 * len(chunks)


def test_a_digest_is_all_that_extraction_reads_pages_for(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = indexed(tmp_path, 1)
    chunks = [
        (chunk.start, chunk.total_compressed_size)
        for group in read_footer(LocalSource(str(path))).row_groups
        for chunk in group.columns
    ]
    reads: list[tuple[int, int]] = []

    class Noted(LocalSource):
        def read(self, offset: int, length: int) -> bytes:
            reads.append((offset, length))
            return super().read(offset, length)

    monkeypatch.setattr(Access, "open", lambda access, path: Noted(path))
    with as_remote():
        sidecar.extract([str(path)], str(tmp_path / "a.puffin"))
    without = list(reads)
    reads.clear()
    monkeypatch.setattr("sidecar.conversion.matching.witness.is_local", lambda path: False)
    sidecar.extract([str(path)], str(tmp_path / "b.puffin"))
    assert sorted(reads) == sorted([*without, *chunks])
    assert not set(chunks) & set(without)


def _swapped(folder: Path) -> Path:
    """A file of two columns, each with the other's filters: sound in themselves, and of one size."""
    bare, path = folder / "bare.parquet", folder / "swapped.parquet"
    table = pa.table({"a": range(3000), "b": range(10_000, 13_000), "c": range(3000)})
    pq.write_table(table, bare, use_dictionary=False, row_group_size=1000)
    sidecar.embed(str(bare), into=str(path), bloom=["a", "b", "c"], page_index=True)
    data = bytearray(path.read_bytes())
    for group in read_footer(LocalSource(str(path))).row_groups:
        a, b = (
            slice(chunk.bloom_filter_offset, (chunk.bloom_filter_offset or 0) + (chunk.bloom_filter_length or 0))
            for chunk in list(group.columns)[:2]
        )
        data[a], data[b] = data[b], data[a]
    path.write_bytes(data)
    return path


def test_one_page_tells_that_a_filter_is_not_its_columns(tmp_path: Path) -> None:
    path = str(_swapped(tmp_path))
    report = sidecar.extract([path], str(tmp_path / "a.puffin"))
    ways = {(unit.column, unit.kind): unit.way for unit in report.units}
    assert {place for place, way in ways.items() if way == "none"} == {("a", "bloom"), ("b", "bloom")}
    assert all("the filter denies" in unit.reason for unit in report.units if unit.way == "none")
    assert report.witness.chunks == report.witness.pages == 6  # two looks at one row group of three columns
    assert len(report.warnings) == 2
    with as_remote():
        blind = sidecar.extract([path], str(tmp_path / "b.puffin"))
    assert {unit.way for unit in blind.units} == {"exact"}
    assert blind.to_dict()["witness"]["pages"] == 0


def test_other_storage_is_not_read_for_proofs_and_witnesses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The file's name is not that of a local file, so only its indexes and its footer are read."""
    path = indexed(tmp_path, 1, 60_000)
    inner = LocalSource(str(path))
    footer = read_footer(inner)
    reads = {}
    for taken_for_local in ("", "witness", "identity"):
        source = CountingSource(BytesSource(path.read_bytes(), "s3://bucket/part-1.parquet"))
        with closing(Collection()) as collection, monkeypatch.context() as patched:
            if taken_for_local:
                patched.setattr(f"sidecar.conversion.matching.{taken_for_local}.is_local", lambda path: True)
            taker = Extractor(collection, True, True, None)
            taker.take(open_file(source))
        reads[taken_for_local] = (source.reads, source.bytes_read)
        assert taker.witness.pages == (7 if taken_for_local == "witness" else 0)
    sizes = sum(chunk.total_compressed_size for group in footer.row_groups for chunk in group.columns)
    assert reads["identity"][1] - reads[""][1] == sizes
    assert 0 < reads["witness"][0] - reads[""][0] <= 4 * 7
    assert reads["witness"][1] - reads[""][1] < sizes / 5


def test_the_path_may_differ_and_the_file_may_have_lost_its_indexes(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path), str(indexed(tmp_path, 2))], puffin)
    moved = tmp_path / "elsewhere" / "other.parquet"
    moved.parent.mkdir()
    shutil.copy(path, moved)
    for number, source in enumerate((path, moved, plain_of(path))):
        target = tmp_path / f"back-{number}.parquet"
        sidecar.embed(str(source), into=str(target), from_=puffin)
        assert indexes(target) == indexes(path)


def test_another_file_is_refused(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(path)], puffin)
    other = indexed(tmp_path, 3)
    with pytest.raises(UsageError, match="does not list this file"):
        sidecar.embed(str(other), into=str(tmp_path / "y.parquet"), from_=puffin)
    changed = tmp_path / "new" / path.name
    changed.parent.mkdir()
    shutil.copy(other, changed)
    with pytest.raises(UsageError, match="not the one that was indexed"):
        sidecar.embed(str(changed), into=str(tmp_path / "y.parquet"), from_=puffin)
    path.write_bytes(other.read_bytes() + b"")
    with pytest.raises(UsageError, match=r"indexed|written anew"):
        sidecar.embed(str(path), into=str(tmp_path / "y.parquet"), from_=puffin)
    assert not (tmp_path / "y.parquet").exists()


def test_files_without_statistics_are_known_by_their_path_alone(tmp_path: Path) -> None:
    paths = []
    for number in range(2):
        path = tmp_path / f"{number}.parquet"
        table = pa.table({"k": np.random.default_rng(number).integers(0, 2**60, 1000)})
        pq.write_table(
            table,
            path,
            compression="none",
            use_dictionary=False,
            write_statistics=False,
            bloom_filter_options={"k": {"ndv": 1000}},
        )
        paths.append(path)
    footers = [read_footer(LocalSource(str(path))) for path in paths]
    assert pages_fingerprint(footers[0]) == pages_fingerprint(footers[1])
    assert not is_distinctive(footers[0])
    puffin = str(tmp_path / "x.puffin")
    sidecar.extract([str(paths[0])], puffin)
    sidecar.embed(str(paths[0]), into=str(tmp_path / "same.parquet"), from_=puffin)
    with pytest.raises(UsageError):  # its filters would deny the other file's rows
        sidecar.embed(str(paths[1]), into=str(tmp_path / "y.parquet"), from_=puffin)
    moved = tmp_path / "moved" / paths[0].name
    moved.parent.mkdir()
    shutil.copy(paths[0], moved)
    with pytest.raises(UsageError, match="no statistics"):
        sidecar.embed(str(moved), into=str(tmp_path / "y.parquet"), from_=puffin)


@pytest.mark.parametrize("name", ["f.orc", "f.parquet"])
def test_a_file_without_rows_in_an_object_store_is_found_at_another_path(name: str, tmp_path: Path) -> None:
    """No digest tells such files apart, and none has to: nothing can be denied."""
    (tmp_path / "in").mkdir()
    for path in (f"in/{name}", f"in/other-{name}"):
        write = orc.write_table if name == "f.orc" else pq.write_table
        write(pa.table({"k": pa.array([], pa.int64())}), str(tmp_path / path))
    pq.write_table(pa.table({"k": [1]}), tmp_path / "in" / "full.parquet", bloom_filter_options={"k": {"ndv": 10}})
    io = FolderIO({"folder": str(tmp_path)})
    paths = [f"{SCHEME}in/{path.name}" for path in (tmp_path / "in").iterdir()]
    sidecar.extract(paths, f"{SCHEME}x.puffin", io=io)
    sidecar.strip(f"{SCHEME}in/{name}", into=f"{SCHEME}bare-{name}", io=io)
    written = sidecar.embed(f"{SCHEME}bare-{name}", into=f"{SCHEME}new-{name}", from_=f"{SCHEME}x.puffin", io=io)
    assert not written.failed
    assert (tmp_path / f"new-{name}").exists()


def test_the_fingerprint_ignores_places_only(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    placed = tmp_path / "placed.parquet"
    sidecar.embed(str(plain_of(path)), into=str(placed), bloom=["k"], placement="row-group")
    prints = {pages_fingerprint(read_footer(LocalSource(str(p)))) for p in (path, plain_of(path), placed)}
    assert len(prints) == 1
    assert pages_fingerprint(read_footer(LocalSource(str(indexed(tmp_path, 2))))) not in prints


def test_moved_pages_get_no_offset_index_of_other_places(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin, placed, back = str(tmp_path / "x.puffin"), tmp_path / "placed.parquet", tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin)
    sidecar.embed(str(plain_of(path)), into=str(placed), bloom=["k"], placement="row-group")
    report = sidecar.embed(str(placed), into=str(back), from_=puffin).only
    assert verify_file(LocalSource(str(back))) == []
    assert {o.way for o in report.outcomes if o.kind == "page-index" and o.row_group > 0} == {"none"}
    assert {o.way for o in report.outcomes if o.kind == "bloom"} == {"exact"}


def test_indexes_that_only_the_file_has_stay(tmp_path: Path) -> None:
    path = indexed(tmp_path, 1)
    puffin, back = str(tmp_path / "x.puffin"), tmp_path / "back.parquet"
    sidecar.extract([str(path)], puffin, columns=["s"])
    sidecar.embed(str(path), into=str(back), from_=puffin)
    assert indexes(back) == indexes(path)
