"""What a scan asks an object store for, counted request by request in file systems that stand in for one."""

from __future__ import annotations

import threading
from collections import Counter
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from fsspec import AbstractFileSystem
from pyarrow.fs import LocalFileSystem
from pyiceberg.io import FileIO, InputFile
from pyiceberg.io.fsspec import FsspecInputFile
from pyiceberg.io.pyarrow import PyArrowFile
from pyiceberg.table import Table

import sidecar
from sidecar.access import Access
from sidecar.errors import DamagedFileError, StorageError
from sidecar.reading.known_files import KnownFiles
from sidecar.reading.report import TableScanReport
from sidecar.reading.scanning import MOST_THREADS, read, reading_threads
from sidecar.storage.costs import REMOTE_GAP, REMOTE_TAIL
from sidecar.storage.ranges import read_ranges
from sidecar.storage.remote import FileIOSource, read_file
from sidecar.storage.source import CountingSource
from tests.iceberg.cases import comparable, oracle
from tests.iceberg.table_cases import delete_by_position
from tests.tables import create_with_rows, new_catalog

FILES, ROWS = 30, 40_000


class Store(AbstractFileSystem):  # type: ignore[misc]
    """A folder as an object store would show it: lengths are asked for, ranges are requests."""

    cachable = False

    def __init__(self, root: Path) -> None:
        super().__init__()
        self.root = root
        self.requests: list[tuple[str, str, Any]] = []
        self.together, self._now, self._lock = 0, 0, threading.Lock()
        self.meeting: threading.Barrier | None = None

    def place(self, path: str) -> Path:
        return self.root / str(path).split("://", 1)[1].split("/", 1)[1]

    def cat_file(  # the second argument is another in other file systems
        self, path: str, version_id: str | None = None, start: int | None = None, end: int | None = None
    ) -> bytes:
        assert version_id is None
        assert start is not None, "s3fs asks for the length then"
        with self._lock:
            self.requests.append(("GET", path, (start, end)))
        if self.meeting is not None:
            self.meeting.wait(10)
        return self.place(path).read_bytes()[start:end]

    def info(self, path: str, **_: Any) -> dict[str, Any]:
        self.requests.append(("HEAD", path, None))
        return {"name": path, "size": self.place(path).stat().st_size, "type": "file"}

    def _open(self, path: str, mode: str = "rb", **_: Any) -> Any:
        """As s3fs does: the length, then the bytes."""
        self.info(path)
        self.requests.append(("GET", path, (0, None)))
        return self.place(path).open(mode)


class StoreIO(FileIO):
    """pyiceberg's way to a store through fsspec, made by its catalog; what is written goes to the folder."""

    stores: ClassVar[dict[str, Store]] = {}

    def __init__(self, properties: dict[str, str]) -> None:
        super().__init__(properties)
        root = properties["root"]
        self.store = self.stores.setdefault(root, Store(Path(root)))

    def new_input(self, location: str) -> InputFile:
        return FsspecInputFile(location, self.store)

    def new_output(self, location: str) -> Any:
        path = self.store.place(location)
        path.parent.mkdir(parents=True, exist_ok=True)
        return PyArrowFile(location, str(path), LocalFileSystem())

    def delete(self, location: Any) -> None:
        raise NotImplementedError


def io_of(root: Path) -> StoreIO:
    return StoreIO({"root": str(root)})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return io_of(tmp_path_factory.mktemp("store")).store


@pytest.fixture(scope="module")
def table(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Table:
    """Thirty files of random numbers, longer than what is read whole, with filters and page indexes in a sidecar."""
    folder, rng, paths = tmp_path_factory.mktemp("catalog"), np.random.default_rng(3), []
    io = {"py-io-impl": f"{__name__}.StoreIO", "root": str(store.root)}
    catalog = new_catalog(folder, "remote", warehouse="mem://bucket/wh", **io)
    for number in range(FILES):
        data = pa.table({"k": rng.integers(0, 2**61, ROWS) * 2, "v": np.arange(ROWS) + number * ROWS})
        path = f"mem://bucket/data/{number}.parquet"
        store.place(path).parent.mkdir(exist_ok=True)
        pq.write_table(
            data,
            store.place(path),
            compression="none",
            use_dictionary=False,
            write_page_index=True,
            data_page_size=16 * 1024,
            write_batch_size=256,
        )
        paths.append(path)
    made = catalog.create_table("db.remote", data.schema)
    made.add_files(paths)
    sidecar.build(made, ["k"], kinds=["bloom"], engine="local")
    return catalog.load_table("db.remote")


def held(store: Store, number: int) -> int:
    return int(pq.read_table(store.place(f"mem://bucket/data/{number}.parquet"))["k"][100].as_py())


def test_a_needle_from_loading_the_table_to_its_row(store: Store, table: Table) -> None:
    """Metadata, manifest list, the index, one file; lengths are asked for only where pyiceberg itself does."""
    key = held(store, 7)
    store.requests.clear()
    found = sidecar.scan(table.catalog.load_table("db.remote"), f"k = {key}")
    assert found["v"].to_pylist() == [7 * ROWS + 100]
    kinds = Counter(method for method, _, _ in store.requests)
    assert sum(kinds.values()) <= 12, store.requests
    asked = {path for method, path, _ in store.requests if method == "HEAD"}
    assert all(path.endswith((".metadata.json", ".avro")) for path in asked), "lengths that are registered"
    data = [place for _, path, place in store.requests if "/data/" in path]
    assert len(data) <= 3, "footer, the column that is asked, the page of the other"
    assert data[-1][1] - data[-1][0] < 32 * 1024, "one page"


def test_whole_files_are_read_without_asking_for_their_length(store: Store, table: Table) -> None:
    store.requests.clear()
    planned, report = sidecar.plan(table, "v >= 0"), TableScanReport()
    assert read(planned, report=report).num_rows == FILES * ROWS
    assert sum(report.whole_files.values()) == FILES
    data = [(method, place) for method, path, place in store.requests if "/data/" in path]
    assert {method for method, _ in data} == {"GET"}
    assert len(data) <= 3 * FILES


def test_deletes_and_small_files_too(store: Store, table: Table) -> None:
    """Position deletes of some files: the same rows as pyiceberg's, and no length is asked for."""
    parts = [pa.table({"k": np.arange(start, start + 100)}) for start in (0, 100, 200)]
    made = create_with_rows(table.catalog, "db.deleted", parts)
    paths = sorted(task.file.file_path for task in made.scan().plan_files())
    delete_by_position(made, {paths[0]: [0, 5, 99]})
    made = table.catalog.load_table("db.deleted")
    wanted = oracle(made, "k >= 0")
    planned = sidecar.plan(made, "k >= 0")
    store.requests.clear()
    assert comparable(read(planned)) == comparable(wanted)
    assert [method for method, _, _ in store.requests] == ["GET"] * 4, "three files and the deletes"


def test_ranges_apart_are_asked_for_together_and_near_ones_at_once(tmp_path: Path) -> None:
    io, size = io_of(tmp_path), 8 * REMOTE_GAP
    store = io.store
    data = np.random.default_rng(1).bytes(size)
    (tmp_path / "f").write_bytes(data)
    source = CountingSource(FileIOSource(io, "mem://bucket/f", size))
    store.meeting = threading.Barrier(3)  # three requests wait for each other: one after another would never end
    ranges = [(5 * REMOTE_GAP, 10), (0, 10), (100, 10), (REMOTE_GAP, 5), (7 * REMOTE_GAP, 10), (9, 3)]
    assert read_ranges(source, ranges) == [data[start : start + length] for start, length in ranges]
    assert (source.reads, len(store.requests)) == (3, 3)
    store.meeting = None
    assert read_file("mem://bucket/f", io) == data
    assert store.requests[-1] == ("GET", "mem://bucket/f", (0, None))


def test_a_small_file_is_fetched_once_and_ends_where_it_should(tmp_path: Path) -> None:
    io = io_of(tmp_path)
    store = io.store
    (tmp_path / "f").write_bytes(bytes(range(200)))
    source = FileIOSource(io, "mem://bucket/f", 200)
    assert [source.read(10, 2), source.read(0, 3), source.read(7, 0)] == [b"\x0a\x0b", b"\0\1\2", b""]
    assert len(store.requests) == 1
    for length in (201, REMOTE_TAIL + 1):
        with pytest.raises(DamagedFileError, match="ended early"):
            FileIOSource(io, "mem://bucket/f", length).read(length - 5, 5)
    with pytest.raises(StorageError, match="FileNotFoundError"):
        FileIOSource(io, "mem://bucket/none", 200).read(0, 1)
    with pytest.raises(StorageError, match="FileNotFoundError"):
        read_file("mem://bucket/none", io)


def test_more_remote_files_than_processors_are_read_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PYICEBERG_MAX_WORKERS", raising=False)
    assert reading_threads(None, remote=True) == MOST_THREADS
    assert reading_threads(3, remote=True) == 3


@pytest.mark.parametrize("wrong", [-1, 1, -100, 100, 0])
def test_whole_files_that_have_another_length_than_their_manifest_says(tmp_path: Path, wrong: int) -> None:
    """pyiceberg alone never asks a manifest for a length, so it reads them: so it does here."""
    io = io_of(tmp_path)
    pq.write_table(pa.table({"k": np.arange(1000)}), tmp_path / "f.parquet")
    files, path = KnownFiles(Access(io)), "mem://bucket/f.parquet"
    files.sizes[path] = (tmp_path / "f.parquet").stat().st_size + wrong
    with files.new_input(path).open() as opened:
        assert pq.read_table(opened)["k"].to_pylist() == list(range(1000))
    assert ("HEAD" in {method for method, _, _ in io.store.requests}) == bool(wrong)
