"""Tables that pyiceberg refuses are still planned, and ``repair`` makes them fit for all readers again."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from sqlalchemy import text

import sidecar
from sidecar.errors import UnsupportedFeatureError, UsageError
from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.partial_loading import PartlyLoaded, left_out
from sidecar.iceberg.statistics_files import entry_commits
from sidecar.puffin.types import SBBF, THETA, UNITS
from tests.cli.running import run
from tests.iceberg import registering_cases
from tests.iceberg.cases import local
from tests.tables import create_with_rows

Edit = Callable[[dict[str, Any]], None]
KEYS = [2 * n for n in range(200)]


def register_raw(catalog: Any, name: str, edit: Edit) -> str:
    """Another version of the metadata, as another engine writes it; its location."""
    place = {"n": name.rpartition(".")[2]}
    with catalog.engine.begin() as connection:
        old = connection.execute(text("select metadata_location from iceberg_tables where table_name = :n"), place)
        location = old.scalar_one()
        document = json.loads(local(location).read_text())
        edit(document)
        document["metadata-log"].append({"metadata-file": location, "timestamp-ms": document["last-updated-ms"]})
        folder, _, file = location.rpartition("/")
        number = int(file.partition("-")[0]) + 1
        new = f"{folder}/{number:05}-{uuid.uuid4()}.metadata.json"
        local(new).write_text(json.dumps(document))
        connection.execute(
            text("update iceberg_tables set metadata_location = :new where table_name = :n"),
            {**place, "new": new},
        )
    return str(new)


def statistics_in(table: Table) -> dict[int, list[dict[str, Any]]]:
    """Registered blobs by snapshot, as the metadata file has them."""
    document = json.loads(local(table.metadata_location).read_text())
    return {entry["snapshot-id"]: entry["blob-metadata"] for entry in document["statistics"]}


def as_trino_does(document: dict[str, Any]) -> None:
    """Register all blobs of a sidecar, those of unknown types too."""
    for entry in document["statistics"]:
        for kind in (UNITS, SBBF):
            fields = [1] if kind == SBBF else []
            blob = {"type": kind, "snapshot-id": entry["snapshot-id"], "sequence-number": 1, "fields": fields}
            entry["blob-metadata"].append({**blob, "properties": {}})


def create(catalog: Any, name: str) -> Table:
    """Two files, each of its own snapshot; the second snapshot is indexed."""
    parts = [pa.table({"k": KEYS[start::2], "gone": KEYS[start::2]}) for start in (0, 1)]
    table = create_with_rows(catalog, name, parts)
    sidecar.build(table, ["k", "gone"], kinds=["bloom", "theta"], engine="local")
    return table.refresh()


def open_again(catalog: Any, name: str) -> Table:
    return sidecar.open_table(name, catalog.name, **catalog.properties)


def test_a_table_that_pyiceberg_refuses_is_planned_and_mended(catalog: Any, caplog: Any) -> None:
    table = create(catalog, "db.trino")
    before = local(table.metadata.statistics[0].statistics_path).read_bytes()
    location = register_raw(catalog, "db.trino", as_trino_does)
    with pytest.raises(Exception, match="validation error"):
        catalog.load_table("db.trino")

    opened = open_again(catalog, "db.trino")
    assert isinstance(opened, PartlyLoaded)
    assert "care --only repair fixes that" in caplog.text
    for table in (opened, opened.refresh(), sidecar.open_table(location)):
        plan = sidecar.plan(table, "k = 7")
        assert (plan.files_total, plan.files_kept) == (2, 0)
        assert any("only repair" in warning for warning in plan.warnings)
        assert sidecar.scan(table, "k = 8")["gone"].to_pylist() == [8]
        status = sidecar.status(table)
        assert status.files.to_dict() == {"live": 2, "listed": 2}
        assert len(status.repairs[0].reasons) == 2
        assert any("registers statistics" in p.problem for p in sidecar.verify(table).problems)
    with pytest.raises(UnsupportedFeatureError, match="only repair first"):
        sidecar.build(opened, ["k"])
    with pytest.raises(UnsupportedFeatureError, match="only repair first"):
        sidecar.embed(opened, bloom=["k"])
    with pytest.raises(UsageError, match="cannot be changed"):
        sidecar.repair(sidecar.open_table(location))

    assert sidecar.repair(opened, dry_run=True).repairs == status.repairs
    assert open_again(catalog, "db.trino").metadata_location == location
    done = sidecar.repair(opened)
    assert [found.action for found in done.repairs] == ["register anew"]
    mended = catalog.load_table("db.trino")
    assert left_out(mended) == {}
    ((_, blobs),) = statistics_in(mended).items()
    assert [blob["type"] for blob in blobs] == [THETA, THETA]
    assert mended.metadata.metadata_log[-1].metadata_file == location
    assert local(mended.metadata.statistics[0].statistics_path).read_bytes() == before
    assert sidecar.plan(mended, "k = 7").files_kept == 0
    assert sidecar.repair(mended).repairs == []
    sidecar.build(mended, ["k"], engine="local")


def test_entries_that_break_planners_are_mended_for_all_snapshots(catalog: Any) -> None:
    table = create(catalog, "db.breaking")
    first, second = (snapshot.snapshot_id for snapshot in table.metadata.snapshots)

    def edit(document: dict[str, Any]) -> None:
        (entry,) = document["statistics"]
        k, gone = entry["blob-metadata"]
        k["properties"]["ndv"] = "about 100"
        entry["blob-metadata"].append({**gone, "fields": []})
        missing = {**entry, "snapshot-id": first, "statistics-path": "file:/nowhere/1.stats"}
        document["statistics"].append(missing)

    with table.update_schema() as update:
        update.delete_column("gone")
    register_raw(catalog, "db.breaking", edit)
    table.refresh()
    path = table.metadata_location
    preview = sidecar.repair(sidecar.open_table(path), dry_run=True)
    found = {entry["snapshot_id"]: entry for entry in preview.to_dict()["repairs"]}
    assert found[first] | {"statistics_path": ""} == {
        "snapshot_id": first,
        "statistics_path": "",
        "action": "drop",
        "reasons": ["the file is gone"],
    }
    assert found[second]["reasons"] == [
        "field 1: its ndv 'about 100' is not a whole number, the sketch says 200",
        "a theta sketch of field 2, which the table has dropped, is registered",
        "a theta sketch without a field is registered",
    ]
    assert "register anew" in run("status", path).stdout
    sidecar.repair(table)
    ((snapshot, blobs),) = statistics_in(table).items()
    assert snapshot == second
    assert [(blob["fields"], blob["properties"]["ndv"]) for blob in blobs] == [([1], "200")]
    assert sidecar.repair(sidecar.open_table(table.metadata_location), dry_run=True).repairs == []
    assert sidecar.plan(table, "k = 7").files_kept == 0


def test_a_repair_starts_from_the_version_that_it_looked_at(catalog: Any, monkeypatch: Any) -> None:
    """Another engine registers a file between our look and our commit: it stays, and is mended too."""
    table = create(catalog, "db.raced")
    register_raw(catalog, "db.raced", as_trino_does)
    theirs = local(table.metadata.statistics[0].statistics_path)
    copy = Path(f"{theirs}.copy.stats")
    copy.write_bytes(theirs.read_bytes())
    outcomes: list[str] = []

    def raced(*args: Any) -> None:
        if not outcomes:

            def edit(document: dict[str, Any]) -> None:
                document["statistics"][0]["statistics-path"] = f"file:{copy}"

            register_raw(catalog, "db.raced", edit)
        try:
            commit(*args)
        except CommitFailedException:
            outcomes.append("conflict")
            raise
        outcomes.append("done")

    commit = entry_commits.commit
    monkeypatch.setattr(entry_commits, "commit", raced)
    done = sidecar.repair(open_again(catalog, "db.raced"))
    assert outcomes == ["conflict", "done"]
    assert [found.statistics_path for found in done.repairs] == [f"file:{copy}"]
    (entry,) = catalog.load_table("db.raced").metadata.statistics
    assert entry.statistics_path == f"file:{copy}"


def test_damaged_sketches_of_others_are_named_dropped_and_copied_no_more(catalog: Any) -> None:
    table = registering_cases.create(catalog)
    sketch = ThetaSketch(12)
    sketch.absorb([np.array([5, 6, 7], np.uint64)])
    whole = sketch.to_bytes()
    registering_cases.set_foreign(table, {}, [(THETA, [1], whole[:-3]), (THETA, [2], whole)])
    assert sidecar.status(table, quick=True).repairs == []
    assert len(sidecar.status(table).repairs) == 1
    (repaired,) = sidecar.repair(table).repairs
    (reason,) = repaired.reasons
    assert reason.startswith("field 1: the sketch of another writer: the theta sketch cannot be read")
    assert [blob.fields for blob in registering_cases.entry(table).blob_metadata] == [[2]]
    built = sidecar.build(table, ["c"], kinds=["bloom"], engine="local")
    kept = registering_cases.blobs_of(built.statistics_path or "")
    assert {key for key in kept if key[0] == THETA} == {(THETA, (2,))}
    assert sidecar.status(table).repairs == []
