"""What a refresh reads, counted: little when there is little to do, whatever the size of the table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO

import sidecar
from sidecar.maintenance import costs
from sidecar.puffin.reader import TAIL_LENGTH
from sidecar.storage.local import LocalSource
from tests.iceberg.cases import local

FILES = 60
SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])

Reads = dict[str, list[tuple[int, int]]]
"""(offset, length) of each read, by path; a file that pyiceberg opens counts as one read without a length."""


def rows(number: int) -> pa.Table:
    keys = [number * 7919 + 1000003 * n for n in range(500)]
    return pa.table({"k": keys, "s": [f"v{key}" for key in keys]}, schema=SCHEMA)


@pytest.fixture(scope="module")
def table(catalog: Any) -> Any:
    """Many files, in two commits, with a sidecar."""
    made = catalog.create_table("db.refresh_reads", SCHEMA)
    folder = Path(local(made.location())) / "data"
    folder.mkdir(parents=True)
    paths = [folder / f"{number}.parquet" for number in range(FILES)]
    for number, path in enumerate(paths):
        pq.write_table(rows(number), path)
    for half in (paths[: FILES // 2], paths[FILES // 2 :]):
        made.add_files([f"file:{path}" for path in half], check_duplicate_files=False)
    sidecar.build(made, ["k", "s"], kinds=["bloom", "page-index"], engine="local", save=True)
    return made


@contextmanager
def counted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Reads]:
    """Count the reads of files in the block: those of sidecar, of the kernel for it, and of pyiceberg."""
    reads: Reads = defaultdict(list)
    read, new_input, kernel_copy = LocalSource.read, PyArrowFileIO.new_input, os.copy_file_range

    def counting_read(self: LocalSource, offset: int, length: int) -> bytes:
        reads[self.name].append((offset, length))
        return read(self, offset, length)

    def counting_copy(source: int, target: int, count: int, offset_src: int) -> int:
        """The kernel's copy: its bytes do not come through this process."""
        done = kernel_copy(source, target, count, offset_src)
        reads[Path(f"/proc/self/fd/{source}").readlink().as_posix()].append((offset_src, done))
        return done

    def counting_input(self: PyArrowFileIO, location: str) -> Any:
        if location.endswith((".json", ".avro")):
            reads[local(location).as_posix()].append((0, -1))
        return new_input(self, location)

    with monkeypatch.context() as patch:
        patch.setattr(LocalSource, "read", counting_read)
        patch.setattr(os, "copy_file_range", counting_copy)
        patch.setattr(PyArrowFileIO, "new_input", counting_input)
        yield reads


def loaded(table: Any) -> Any:
    return table.catalog.load_table(table.name())


def test_nothing_to_do_is_one_read_of_metadata_and_one_of_a_tail(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar.refresh(loaded(table), engine="local")
    with counted(monkeypatch) as reads:
        report = sidecar.refresh(loaded(table), engine="local")
    path = local(report.statistics_path).as_posix()
    metadata = local(loaded(table).metadata_location).as_posix()
    assert report.action == "current"
    assert reads.keys() == {metadata, path}
    assert (len(reads[metadata]), reads[path]) == (1, [(report.file_size - TAIL_LENGTH, TAIL_LENGTH)])


@pytest.mark.parametrize("is_large", [False, True])
def test_one_new_file_costs_its_own_reads_and_the_copy(
    table: Any, monkeypatch: pytest.MonkeyPatch, is_large: bool
) -> None:
    """Its checksums are looked at before it is copied, or made one segment, which costs a second read of it."""
    if is_large:
        monkeypatch.setattr(costs, "LARGE", 1)
        monkeypatch.setattr(costs, "MERGED_AT_ONCE", 1)
        monkeypatch.setattr(costs, "FEW_ROWS", 0)
    sidecar.refresh(loaded(table), engine="local")
    before = {local(task.file.file_path).as_posix() for task in loaded(table).scan().plan_files()}
    table.refresh().append(rows(FILES))
    (new,) = {local(task.file.file_path).as_posix() for task in table.scan().plan_files()} - before
    old = next(e for e in table.metadata.statistics)
    with counted(monkeypatch) as reads:
        report = sidecar.refresh(loaded(table), engine="local")
    assert (report.action, report.files_indexed, report.files_carried) == ("written", 1, len(before))
    assert before.isdisjoint(reads)
    of_table = {name for name in reads if not name.endswith((".avro", ".json"))}
    assert of_table == {new, local(old.statistics_path).as_posix(), local(report.statistics_path).as_posix()}
    copied = sum(length for _, length in reads[local(old.statistics_path).as_posix()])
    assert report.bytes_carried <= copied <= 2 * report.bytes_carried + 3 * TAIL_LENGTH
    manifests = [name for name in reads if name.endswith(".avro")]
    assert all(len(reads[name]) == 1 for name in manifests)
    written = [length for _, length in reads[local(report.statistics_path).as_posix()]]
    assert len(written) == 1  # its footer is read back


def test_a_new_snapshot_without_new_files_opens_no_data_file(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    sidecar.refresh(loaded(table), engine="local")
    table.refresh().overwrite(rows(0).slice(0, 0), overwrite_filter="k = -1")
    with counted(monkeypatch) as reads:
        report = sidecar.refresh(loaded(table), engine="local")
    assert report.action == "registered"
    assert {Path(name).suffix for name in reads} == {".json", ".avro", ".stats"}
    assert sum(length for name in reads if name.endswith(".stats") for _, length in reads[name]) <= report.file_size
    assert sidecar.plan(loaded(table), "k = 1").files_kept == 0
