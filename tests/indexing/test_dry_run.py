"""The dry run of a build: what the build that follows does; no data file is opened, nothing is written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.io.pyarrow import PyArrowFileIO
from pyiceberg.table import StaticTable

import sidecar
from sidecar.errors import SidecarError, UsageError
from sidecar.storage.local import LocalSource
from sidecar.storage.locations import local_path
from tests.dry_runs import unchanged
from tests.tables import create_with_rows

SCHEMA = pa.schema([("k", pa.int64()), ("s", pa.string())])


def rows(start: int) -> pa.Table:
    keys = range(start, start + 500)
    return pa.table({"k": keys, "s": [f"text {key}" for key in keys]}, schema=SCHEMA)


@pytest.fixture
def table(own_catalog: Any) -> Any:
    return create_with_rows(own_catalog, "db.t", [rows(0), rows(500), rows(1000)])


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of all files that are opened from now on, whether by sidecar or by pyiceberg."""
    paths: list[str] = []
    local, remote = LocalSource.__init__, PyArrowFileIO.new_input

    def open_local(self: LocalSource, path: str) -> None:
        paths.append(path)
        local(self, path)

    def open_remote(self: PyArrowFileIO, location: str) -> Any:
        paths.append(local_path(location) or location)
        return remote(self, location)

    monkeypatch.setattr(LocalSource, "__init__", open_local)
    monkeypatch.setattr(PyArrowFileIO, "new_input", open_remote)
    return paths


def data_files(table: Any) -> dict[str, int]:
    return {task.file.file_path: task.file.file_size_in_bytes for task in table.scan().plan_files()}


def dry(table: Any, *columns: str, **options: Any) -> sidecar.results.BuildReport:
    """The dry run of a build, after which table and warehouse are as before."""
    folder = Path(local_path(table.location()) or "").parents[1]
    location = table.metadata_location
    with unchanged(folder):
        planned = sidecar.build(table, list(columns), dry_run=True, **options)
    assert table.refresh().metadata_location == location
    assert planned.dry_run
    return planned


def test_the_build_that_follows_does_what_was_said(table: Any, opened: list[str]) -> None:
    live = data_files(table)
    opened.clear()
    planned = dry(table, "k", "s", engine="local")
    assert opened
    assert not {local_path(path) for path in live} & {*opened}
    assert {file.path: file.size for file in planned.files} == live
    assert (planned.files_total, planned.files_carried, planned.tasks) == (3, 0, 1)
    assert planned.files_size == sum(live.values())
    assert planned.bytes_carried == planned.segments_carried == 0
    assert (planned.engine, planned.engine_reason) == ("local", "as asked for")
    assert [(c.name, c.field_id, c.type, c.encrypted) for c in planned.columns] == [
        ("k", 1, "long", False),
        ("s", 2, "string", False),
    ]
    assert planned.kinds == ["bloom", "theta"]
    report = sidecar.build(table, ["k", "s"], engine="local")
    assert report.snapshot_id == planned.snapshot_id
    assert report.fpp == planned.fpp
    assert report.units == planned.row_groups == report.row_groups
    assert report.files_indexed == len(planned.files)
    assert report.statistics_path is not None
    assert report.statistics_path.startswith(f"{planned.folder}/")
    assert planned.commits is planned.dry_run is report.commits is True
    said = [(one.files, one.folder, one.tasks, one.kinds) for one in (planned, report)]
    assert said[0] == said[1]
    assert table.refresh().metadata.statistics


def test_what_is_indexed_already_gets_no_commit(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local")
    table.refresh()
    planned = dry(table, "k")
    assert (planned.commits, planned.folder, planned.files, planned.files_carried) == (False, None, [], 3)
    assert planned.engine_reason == "there is nothing to index"
    assert planned.files_size == planned.bytes_carried == 0
    location = table.metadata_location
    sidecar.build(table, ["k"])
    assert table.refresh().metadata_location == location


def test_new_files_and_what_is_copied(table: Any) -> None:
    first = sidecar.build(table, ["k"], engine="local", kinds=["bloom"])
    table.refresh()
    table.append(rows(1500))
    planned = dry(table, "k", kinds=["bloom"], engine="local")
    assert (len(planned.files), planned.files_carried, planned.segments_carried) == (1, 3, 1)
    assert 0 < planned.bytes_carried < first.file_size
    report = sidecar.build(table, ["k"], engine="local", kinds=["bloom"])
    assert (report.files_carried, report.segments_carried) == (3, 1)
    copied = [blob for blob in report.blobs if blob.length in {old.length for old in first.blobs}]
    assert planned.bytes_carried == sum(blob.length for blob in copied)


@pytest.mark.parametrize(("options", "files"), [({"full": True}, 3), ({"kinds": ["page-index"]}, 3), ({}, 0)])
def test_what_an_earlier_sidecar_does_not_answer(table: Any, options: dict[str, Any], files: int) -> None:
    sidecar.build(table, ["k"], engine="local")
    table.refresh()
    planned = dry(table, "k", engine="local", **options)
    assert len(planned.files) == files
    report = sidecar.build(table, ["k"], engine="local", **options)
    assert report.files_carried == planned.files_carried
    assert report.segments_carried == planned.segments_carried


def test_files_that_are_counted_no_more_are_named(table: Any) -> None:
    sidecar.build(table, ["k"], engine="local")
    table.refresh()
    table.delete("k < 500")
    planned = dry(table, "k", engine="local")
    report = sidecar.build(table, ["k"], engine="local")
    assert planned.files_carried == report.files_carried == 1
    assert set() < {file.path for file in planned.files} < {t.file.file_path for t in table.scan().plan_files()}
    assert (len(planned.files), planned.commits, planned.warnings) == (report.units, True, [])


def test_a_table_without_a_snapshot(own_catalog: Any) -> None:
    table = own_catalog.create_table("db.empty", SCHEMA)
    planned = dry(table, "k")
    assert (planned.snapshot_id, planned.commits, planned.files_total) == (None, False, 0)


@pytest.mark.parametrize(
    ("columns", "options"),
    [
        (["nosuch"], {}),
        (["k"], {"kinds": ["nosuch"]}),
        (["k"], {"fpp": 2.0}),
        (["k"], {"engine": "nosuch"}),
        (["k"], {"at": 1}),
        (["k"], {"at": "nosuch"}),
        (["k"], {"encryption_keys": sidecar.EncryptionKeys(bundle_keys={"k": b"missing"})}),
    ],
)
def test_errors_are_those_of_a_build(table: Any, columns: list[str], options: dict[str, Any]) -> None:
    found = []
    for is_dry in (True, False):
        with pytest.raises(UsageError) as raised:
            sidecar.build(table, columns, **options, dry_run=is_dry)
        found.append(raised.value.to_dict())
    assert found[0] == found[1]


def test_a_table_of_a_metadata_file_cannot_be_changed(table: Any) -> None:
    static = StaticTable.from_metadata(table.metadata_location)
    for is_dry in (True, False):
        with pytest.raises(UsageError, match="opened from a metadata file"):
            sidecar.build(static, ["k"], engine="local", dry_run=is_dry)


def test_a_statistics_file_that_would_be_lost(table: Any) -> None:
    report = sidecar.build(table, ["k"], engine="local")
    Path(local_path(report.statistics_path or "") or "").write_bytes(b"broken")
    table.refresh()
    found = []
    for is_dry in (True, False):
        with pytest.raises(SidecarError) as raised:
            sidecar.build(table, ["k"], engine="local", dry_run=is_dry)
        found.append(raised.value.to_dict())
    assert found[0] == found[1]
    assert any("its blobs are lost" in text for text in dry(table, "k", force=True).warnings)


def test_bundles_that_would_be_encrypted(table: Any) -> None:
    keys = sidecar.EncryptionKeys(sidecar.ExplicitKeys({b"m": bytes(16)}), bundle_keys={"k": b"m"})
    planned = dry(table, "k", "s", encryption_keys=keys)
    assert [column.encrypted for column in planned.columns] == [True, False]


def test_the_result_is_no_build(table: Any) -> None:
    data = dry(table, "k").to_dict()
    assert data["dry_run"] is True
    assert not {"statistics_path", "files_indexed", "units", "blobs"} & {*data}
