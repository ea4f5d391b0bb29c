"""What a refresh reads, counted: little when there is little to do, whatever the size of the table."""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.manifest import ManifestContent, ManifestFile

import sidecar
from sidecar.iceberg import listing
from sidecar.iceberg.listing import Listing, list_snapshot
from sidecar.maintenance import costs
from sidecar.puffin.reader import TAIL_LENGTH
from sidecar.storage.local import LocalSource
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import bundle_keys, encrypted_table

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
    assert [len(reads[name]) for name in manifests] == [1, 1]  # the manifest list and the new manifest
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


def manifests_of(made: Any) -> list[ManifestFile]:
    return [one for one in made.current_snapshot().manifests(made.io) if one.content == ManifestContent.DATA]


def facts(listed: Listing) -> Any:
    """A listing as plain values: pyiceberg compares data files by their path alone."""
    files = [(*replace(file, data_file=None).__dict__.values(), [*file.data_file._data]) for file in listed.files]
    return replace(listed, files=()), files


def append(made: Any) -> None:
    made.append(rows(9))


def delete_a_file(made: Any) -> None:
    (file, *_) = [task.file for task in made.scan().plan_files()]
    with made.transaction() as tx, tx.update_snapshot().overwrite() as change:
        change.delete_data_file(file)


def delete_rows(made: Any) -> None:
    made.delete("k >= 0 and k <= 7919")


def overwrite(made: Any) -> None:
    made.overwrite(rows(3).slice(0, 7), overwrite_filter="k < 40000")


def merge_manifests(made: Any) -> None:
    """Append, and write the entries of all manifests into one, as existing ones."""
    with made.transaction() as tx:
        tx.set_properties({"commit.manifest-merge.enabled": "true", "commit.manifest.min-count-to-merge": "2"})
    made.append(rows(11))


def list_twice(made: Any) -> None:
    """The file of an earlier snapshot comes back: the same path, in another manifest and with another identity."""
    gone = [task.file for task in made.scan(snapshot_id=made.metadata.snapshots[0].snapshot_id).plan_files()]
    made.add_files([gone[0].file_path], check_duplicate_files=False)


def change_partitions(made: Any) -> None:
    with made.update_spec() as spec:
        spec.add_identity("s")
    made.refresh().append(rows(12).slice(0, 2))


CHANGES = [
    append,
    delete_a_file,
    delete_rows,
    overwrite,
    append,
    merge_manifests,
    append,
    list_twice,
    change_partitions,
    append,
]


@pytest.fixture
def read_manifests(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The manifests that a listing has read."""
    read, of_file = list[str](), listing.read_manifest

    def noted(io: Any, line: ManifestFile, *version: Any) -> Any:
        read.append(line.manifest_path)
        return of_file(io, line, *version)

    monkeypatch.setattr(listing, "read_manifest", noted)
    return read


def test_a_refresh_reads_the_manifests_that_are_new_and_lists_what_one_lists_that_reads_all(
    own_catalog: Any, read_manifests: list[str]
) -> None:
    made = own_catalog.create_table("db.manifests", SCHEMA, properties={"commit.manifest-merge.enabled": "false"})
    for number in range(8):
        made.append(rows(number))
    sidecar.build(made, ["k", "s"], engine="local", save=True)
    assert len(read_manifests) == 8
    for change in CHANGES:
        known = {line.manifest_path for line in manifests_of(made)}
        change(made)
        made = loaded(made)
        read_manifests.clear()
        report = sidecar.refresh(made, engine="local")
        new = {line.manifest_path for line in manifests_of(made)} - known
        assert sorted(read_manifests) == sorted(new), change.__name__
        with closing(sidecar.open_sidecar(loaded(made))) as opened:
            recorded = list_snapshot(made, None, opened.segments)
        assert facts(recorded) == facts(list_snapshot(made)), change.__name__
    _damage_records(loaded(made), report.statistics_path)
    made.append(rows(13).slice(0, 1))
    read_manifests.clear()
    report = sidecar.refresh(loaded(made), engine="local")
    assert sorted(read_manifests) == sorted(line.manifest_path for line in manifests_of(loaded(made)))
    assert (report.files_indexed, report.files_carried) == (1, report.files_total - 1)


def _damage_records(made: Any, path: str) -> None:
    """Flip a bit of what the sidecar has recorded of files."""
    with closing(sidecar.open_sidecar(made)) as opened:
        units = opened.segments[0].entry
        (section, *_) = [one for one in opened.segments[0].units.toc.sections if one.name == "files"]
    data = bytearray(local(path).read_bytes())
    data[units.offset + section.offset + 100] ^= 1
    local(path).write_bytes(data)


def test_with_keys_only_what_a_key_vouches_for_stands_for_manifests(
    own_catalog: Any, read_manifests: list[str]
) -> None:
    made = encrypted_table(own_catalog, "db.vouched", 2, encrypted=False)
    sidecar.build(made, ["ssn", "v"], engine="local")
    for expected in (1, 0):  # indexes in plaintext, then those that this build has encrypted
        read_manifests.clear()
        sidecar.refresh(loaded(made), engine="local", encryption_keys=bundle_keys())
        assert len(read_manifests) == expected
