"""Tables of a REST catalog: planned on the server or here, with statistics that pyiceberg refuses, and mended."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from sidecar.errors import StorageError, UnsupportedFeatureError, UsageError
from sidecar.iceberg.partial_loading import PartlyLoaded
from sidecar.iceberg.statistics_files import entry_commits
from sidecar.puffin.types import THETA, UNITS
from tests.iceberg.cases import local
from tests.iceberg.rest_server import Server, client, serving
from tests.tables import create_with_rows, new_catalog


@pytest.fixture
def served(tmp_path: Path) -> Iterator[tuple[Server, str]]:
    """A server with one table of three files, indexed."""
    catalog = new_catalog(tmp_path, "made")
    parts = [pa.table({"k": [2 * (part + 3 * n) for n in range(50)]}) for part in range(3)]
    table = create_with_rows(catalog, "db.t", parts)
    with serving() as (server, address):
        server.locations["t"] = table.metadata_location
        server.client_side["t"] = table
        opened = sidecar.open_table("db.t", "rest", type="rest", uri=address)
        sidecar.build(opened, ["k"], kinds=["bloom", "theta"], engine="local")
        yield server, address


def register_all(server: Server, name: str = "t") -> None:
    """Register a blob of a type that pyiceberg does not know, as other engines do."""
    document = server.document(name)
    (entry,) = document["statistics"]
    blob = {"type": UNITS, "snapshot-id": entry["snapshot-id"], "sequence-number": 1, "fields": []}
    entry["blob-metadata"].append(blob)
    server.write(name, document)


def test_tasks_of_the_server_are_filtered(served: tuple[Server, str]) -> None:
    server, address = served
    for mode, requests in (("client", 0), ("server", 2)):
        table = client(address, **{"scan-planning-mode": mode}).load_table("db.t")
        absent, present = sidecar.plan(table, "k = 31"), sidecar.plan(table, "k = 30")
        assert len(server.planned) == requests
        assert (absent.files_total, absent.files_kept, present.files_kept) == (3, 0, 1)
        assert present.to_arrow()["k"].to_pylist() == [30]
        assert present.tasks[0].file.file_path in {t.file.file_path for t in table.scan().plan_files()}
        server.planned.clear()


def test_statistics_that_pyiceberg_refuses_are_mended(served: tuple[Server, str]) -> None:
    server, address = served
    path = server.document("t")["statistics"][0]["statistics-path"]
    before = local(path).read_bytes()
    register_all(server)
    with pytest.raises(ValueError, match="apache-datasketches"):
        client(address).load_table("db.t")
    table = sidecar.open_table("db.t", "rest", type="rest", uri=address)
    assert isinstance(table, PartlyLoaded)
    assert sidecar.plan(table, "k = 31").files_kept == 0
    assert sidecar.scan(table, "k = 30")["k"].to_pylist() == [30]
    assert sidecar.status(table).repairs
    assert len(sidecar.repair(table).repairs) == 1
    assert [blob["type"] for blob in server.document("t")["statistics"][0]["blob-metadata"]] == [THETA]
    assert local(path).read_bytes() == before
    assert sidecar.plan(client(address).load_table("db.t"), "k = 31").files_kept == 0
    with pytest.raises(UsageError, match="has no"):
        sidecar.open_table("db.nope", "rest", type="rest", uri=address)


@pytest.mark.parametrize("refused", [False, True], ids=["fit", "unfit"])
def test_an_entry_that_was_set_meanwhile_is_put_back(served: tuple[Server, str], refused: bool) -> None:
    """No REST commit depends on statistics: what it replaced is seen in the metadata log, and set again."""
    server, address = served
    register_all(server)
    (entry,) = server.document("t")["statistics"]
    theirs = f"{entry['statistics-path']}.theirs.stats"
    local(theirs).write_bytes(local(entry["statistics-path"]).read_bytes())

    def meanwhile(name: str) -> None:
        document = server.document(name)
        document["statistics"][0]["statistics-path"] = theirs
        blobs = document["statistics"][0]["blob-metadata"]
        document["statistics"][0]["blob-metadata"] = blobs if refused else blobs[:1]
        server.write(name, document)

    server.before_commit = meanwhile
    table = sidecar.open_table("db.t", "rest", type="rest", uri=address)
    done = sidecar.repair(table)
    assert done.repairs[0].statistics_path == theirs
    (after,) = server.document("t")["statistics"]
    assert after["statistics-path"] == theirs
    assert [blob["type"] for blob in after["blob-metadata"]] == [THETA]


def test_a_commit_that_is_overtaken_by_another_type_is_looked_at_again(served: tuple[Server, str]) -> None:
    """The answer to our commit cannot be read by pyiceberg, as more was registered for another snapshot."""
    server, address = served
    register_all(server)

    def meanwhile(name: str) -> None:
        document: dict[str, Any] = server.document(name)
        (entry,) = document["statistics"]
        other = document["snapshots"][0]["snapshot-id"]
        document["statistics"].append({**entry, "snapshot-id": other})
        server.write(name, document)

    server.before_commit = meanwhile
    done = sidecar.repair(sidecar.open_table("db.t", "rest", type="rest", uri=address))
    assert len(done.repairs) == 2
    types = [[blob["type"] for blob in e["blob-metadata"]] for e in server.document("t")["statistics"]]
    assert types == [[THETA], [THETA]]


def test_snapshots_that_a_client_does_not_load_are_not_taken_for_expired(served: tuple[Server, str]) -> None:
    """pyiceberg can be told to load the snapshots of branches and tags only, without the statistics of others."""
    server, address = served
    writer = server.client_side["t"].refresh()
    document = server.document("t")
    first, *_, last = sorted(document["snapshots"], key=lambda one: one["timestamp-ms"])
    sidecar.build(client(address).load_table("db.t"), ["k"], at=first["snapshot-id"], engine="local")
    mode = {"snapshot-loading-mode": "refs"}
    opened = sidecar.open_table("db.t", "rest", type="rest", uri=address, **mode)
    tables = [client(address, **mode).load_table("db.t"), opened]
    assert [len(table.metadata.snapshots) for table in tables] == [1, 3]
    for table in tables:
        report = sidecar.find(table, {"k": "0"}, all_snapshots=True)
        assert (report.answer, len(report.snapshots)) == ("found", 3)
        assert all(one.registered_for for one in report.sidecars)
        kept = sidecar.expire(table, dry_run=True).kept
        assert {entry.snapshot_id for entry in kept} == {first["snapshot-id"], last["snapshot-id"]}
        for path in local(writer.location()).glob("metadata/*"):
            os.utime(path, (0, 0))
        server.write("t", server.document("t") | {"metadata-log": []})
        os.utime(local(server.locations["t"]), (1, 1))
        assert sidecar.gc(table, dry_run=True).files == []


@pytest.mark.parametrize("status", [0, 406, 501])
def test_a_catalog_that_keeps_no_statistics_is_asked_once(
    served: tuple[Server, str], status: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = served
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    table = sidecar.open_table("db.t", "rest", type="rest", uri=address)
    folder = local(server.document("t")["statistics"][0]["statistics-path"]).parent
    before = set(folder.glob("*.stats"))
    server.on_statistics, server.commits = status, 0
    done = sidecar.care(table, only=["repair", "refresh", "expire", "gc"])
    assert done.exit_code == 0, "the table's sidecar is current"
    with pytest.raises(UnsupportedFeatureError, match="'rest' does not keep statistics") as error:
        sidecar.build(table, ["k"], full=True, engine="local")
    left = {str(path) for path in set(folder.glob("*.stats")) - before}
    assert left == ({str(local(error.value.file))} if error.value.file else set())
    assert len(left) == (1 if status == 0 else 0)
    for _ in range(2):
        with pytest.raises(UnsupportedFeatureError, match="does not keep statistics"):
            sidecar.build(table, ["k"], full=True, engine="local")
    assert server.commits == 1
    done = sidecar.care(table, only=["repair", "refresh", "expire", "gc"])
    assert (done.exit_code, done.tables[0].errors) == (4, {})
    assert "does not keep statistics" in (done.tables[0].left_alone or "")


@pytest.mark.parametrize(("status", "text"), [(422, "refused the commit"), (408, "may still take effect")])
def test_a_commit_that_a_server_refuses_is_over(served: tuple[Server, str], status: int, text: str) -> None:
    server, address = served
    table = sidecar.open_table("db.t", "rest", type="rest", uri=address)
    server.on_statistics = status
    with pytest.raises(StorageError, match=text):
        sidecar.build(table, ["k"], full=True, engine="local")


def test_a_removal_that_a_catalog_ignores_is_no_conflict(
    served: tuple[Server, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server, address = served
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
    register_all(server)
    server.on_statistics, server.commits = 0, 0
    done = sidecar.care(sidecar.open_table("db.t", "rest", type="rest", uri=address), only=["repair", "refresh"])
    assert "no version of the table shows it" in (done.tables[0].left_alone or "")
    assert server.commits == 1
