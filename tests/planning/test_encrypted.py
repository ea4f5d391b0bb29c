"""Sidecars of tables with encrypted columns: refused, encrypted, or in plaintext on request; plans with keys."""

from __future__ import annotations

import base64
import json
import logging
import pickle
from contextlib import closing
from dataclasses import replace
from typing import Any

import pytest

import sidecar
from sidecar.access import Access
from sidecar.bundle.model import UnitState
from sidecar.conversion.protection import NO_SKETCH, PLAINTEXT_PROPERTY
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import SidecarError, UsageError
from sidecar.iceberg.statistics_files.find_sidecar import open_sidecar
from sidecar.indexing.driver import build
from sidecar.indexing.stage_one.tasks import BuildPlan
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import read_footer
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.reading.scanning import scan
from sidecar.reading.table_files import _check_readable
from sidecar.storage.opening import open_source
from tests.cli.running import run
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import (
    MASTER,
    METADATA,
    SECRET,
    Retriever,
    add_encrypted,
    bundle_keys,
    encrypted_table,
    file_keys,
    rows,
)

ALL = ["bloom", "theta", "page-index"]
WANTED = SECRET.format(250)
ASKED = f"ssn = '{WANTED}'"


def blobs_of(path: str) -> list[tuple[str, tuple[int, ...], dict[str, str]]]:
    reader = PuffinReader(open_source(path))
    return [(blob.type, blob.fields, dict(blob.properties)) for blob in reader.metadata.blobs]


def bytes_of(path: str) -> bytes:
    return local(path).read_bytes()


@pytest.mark.parametrize("plaintext_footer", [True, False])
def test_encrypted_bundles_answer_with_keys_and_keep_without(own_catalog, plaintext_footer, caplog):
    table = encrypted_table(own_catalog, "db.t", plaintext_footer=plaintext_footer)
    keys = bundle_keys()
    with caplog.at_level(logging.DEBUG):
        report = build(table, ["ssn", "id"], kinds=ALL, encryption_keys=keys)
    column = next(column for column in report.columns if column.name == "ssn")
    assert column.ndv is None
    assert column.uncovered == {"bloom": {}, "theta": {NO_SKETCH: 4}, "page-index": {}}
    table = own_catalog.load_table("db.t")
    assert [fields for kind, fields, _ in blobs_of(report.statistics_path) if "theta" in kind] == [(1,), (1,)]
    assert [list(b.fields) for b in table.metadata.statistics[0].blob_metadata] == [[1]]
    with_keys = plan(table, ASKED, encryption_keys=keys)
    assert (with_keys.files_kept, with_keys.warnings, with_keys.funnel.dropped_by_filter) == (1, (), 3)
    assert with_keys.to_arrow().to_pydict() == rows(2).slice(50, 1).to_pydict()
    ranges = plan(table, f"ssn > '{SECRET.format(35)}'", encryption_keys=keys)
    assert (ranges.files_kept, ranges.warnings) == (2, ())
    assert ranges.funnel.dropped_by_page_index == 2
    assert scan(table, "v = 3", encryption_keys=keys).num_rows == sum(
        rows(n)["v"].to_pylist().count(3) for n in range(4)
    )
    wrong = EncryptionKeys(Retriever(**{METADATA.decode(): bytes(16)}))
    for given, why in ((None, "no keys"), (wrong, "not the one")):
        for predicate in (ASKED, f"ssn in ('{WANTED}', 'x', 'y')", f"ssn > '{SECRET.format(35)}'"):
            kept = plan(table, predicate, encryption_keys=given)
            assert kept.files_kept == 4
            assert [why in warning for warning in kept.warnings] == [True], kept.warnings
    assert plan(table, "id = 250").files_kept == 1
    assert sidecar.verify(table, data=True, encryption_keys=keys).problems == []
    assert any("not checked" in p.problem for p in sidecar.verify(table).problems)
    _check_secrets(report.statistics_path, table, caplog.text, keys)


def _check_secrets(path: str, table: Any, log: str, keys: EncryptionKeys) -> None:
    """Key, key metadata, values and bounds are nowhere to be read."""
    data = bytes_of(path)
    planted = [MASTER, METADATA, base64.b64encode(MASTER), b"planted-secret", SECRET.format(0).encode()]
    assert not [secret for secret in planted if secret in data]
    assert data.count(base64.b64encode(METADATA)) == 4  # two blobs, and the directory's copies
    errors = []
    for wrong in (None, file_keys()):
        found = plan(table, ASKED, encryption_keys=wrong)
        errors.append(repr(found.warnings) + found.explain() + repr(found))
    try:
        build(table, ["ssn"], full=True, encryption_keys=file_keys())
    except SidecarError as error:
        errors.append(str(error))
    texts = [
        log,
        repr(blobs_of(path)),
        json.dumps(sidecar.inspect(path).only, default=str),
        json.dumps(sidecar.status(table), default=str),
        repr(keys),
        repr(replace(plan(table, "id = 1", encryption_keys=keys))),
        *errors,
    ]
    for text in texts:
        for secret in (*planted[:3], base64.b64encode(METADATA)):
            assert secret.decode() not in text


def test_plaintext_is_refused_unless_said_in_so_many_words(own_catalog):
    table = encrypted_table(own_catalog, "db.t")
    with pytest.raises(UsageError, match="would leak") as refused:
        build(table, ["id", "ssn"], encryption_keys=file_keys())
    assert refused.value.column == "ssn"
    assert "--allow-plaintext" in str(refused.value)
    assert not own_catalog.load_table("db.t").metadata.statistics
    with pytest.raises(UsageError, match="not among the keys"):
        build(table, ["ssn"], encryption_keys=EncryptionKeys(Retriever(), bundle_keys={"ssn": b"none"}))
    report = build(table, ["ssn", "id"], kinds=ALL, encryption_keys=file_keys(), allow_plaintext=True)
    marks = {(kind, fields): said.get(PLAINTEXT_PROPERTY) for kind, fields, said in blobs_of(report.statistics_path)}
    assert {key: mark for key, mark in marks.items() if key[1]} == {
        (kind, (field,)): "true" if field == 2 else None
        for kind in (
            "apache-datasketches-theta-v1",
            "sidecar-theta-groups-v1",
            "sidecar-sbbf-v1",
            "sidecar-page-index-v1",
        )
        for field in (1, 2)
    }
    assert plan(own_catalog.load_table("db.t"), ASKED).files_kept == 1
    again = build(own_catalog.load_table("db.t"), ["ssn"], kinds=ALL, full=True, encryption_keys=bundle_keys())
    left = [(kind, fields, said) for kind, fields, said in blobs_of(again.statistics_path) if fields == (2,)]
    assert {(kind, PLAINTEXT_PROPERTY in said) for kind, _, said in left} == {
        ("sidecar-page-index-v1", False),
        ("sidecar-sbbf-v1", False),
    }


def test_without_keys_the_column_is_listed_and_kept_and_indexed_once_they_come(own_catalog):
    table = encrypted_table(own_catalog, "db.t")
    report = build(table, ["ssn", "id"], kinds=ALL)
    column = next(column for column in report.columns if column.name == "ssn")
    assert column.uncovered == {kind: {UnitState.ENCRYPTED: 4} for kind in ALL}
    table = own_catalog.load_table("db.t")
    assert plan(table, ASKED).files_kept == 4
    assert plan(table, "id = 250").files_kept == 1
    again = build(table, ["ssn", "id"], kinds=ALL, encryption_keys=bundle_keys())
    assert (again.files_carried, again.units) == (0, 4)
    assert plan(own_catalog.load_table("db.t"), ASKED, encryption_keys=bundle_keys()).files_kept == 1


@pytest.mark.parametrize("keyed", [True, False])
def test_bounds_of_encrypted_columns_stay_in_the_manifests(own_catalog, keyed):
    """Neither the bounds section nor the copied entries of manifests have them; pruning by the manifest goes on."""
    table = encrypted_table(own_catalog, "db.t", bounds=(1, 2))
    add_encrypted(table, range(4, 6), bounds=(1,))
    table = own_catalog.load_table("db.t")
    keys = bundle_keys() if keyed else None
    report = build(table, ["id", "ssn"], encryption_keys=keys)
    data = bytes_of(report.statistics_path)
    (segment,) = open_sidecar(own_catalog.load_table("db.t")).segments
    assert segment.units.bounded_fields == [1]
    assert [manifest.live_files for manifest in segment.listed_manifests] == [2]
    assert sorted(bool(file.entry) for file in segment.files(range(6)) if file) == [False] * 4 + [True] * 2
    low = min(rows(0)["ssn"].to_pylist()).encode()
    assert low not in data
    table = own_catalog.load_table("db.t")
    found = plan(table, ASKED, encryption_keys=keys)
    assert found.funnel.dropped_by_metadata > 0
    assert [task.file.file_path for task in found.tasks if "part-0002" in task.file.file_path]
    assert plan(table, "id = 550", encryption_keys=keys).files_kept == 1
    assert sidecar.verify(table, encryption_keys=keys).problems == []


def test_segments_are_carried_to_later_snapshots_and_older_plaintext_stays(own_catalog):
    table = encrypted_table(own_catalog, "db.t", 3)
    build(table, ["ssn"], encryption_keys=bundle_keys())
    add_encrypted(own_catalog.load_table("db.t"), range(3, 5))
    report = build(own_catalog.load_table("db.t"), ["ssn"], encryption_keys=bundle_keys())
    assert (report.files_carried, report.segments_carried, report.units) == (3, 1, 2)
    table = own_catalog.load_table("db.t")
    for number in (0, 150, 450):
        found = plan(table, f"ssn = '{SECRET.format(number)}'", encryption_keys=bundle_keys())
        assert (found.files_kept, found.warnings) == (1, ())
    assert len(plan(table, ASKED).warnings) == 1  # of two segments


def test_named_columns_are_encrypted_whatever_their_files_are(own_catalog):
    table = encrypted_table(own_catalog, "db.t", encrypted=False, bounds=(1, 2))
    report = build(table, ["ssn"], encryption_keys=bundle_keys())
    assert report.columns[0].ndv is None
    assert b"planted-secret" not in bytes_of(report.statistics_path)
    table = own_catalog.load_table("db.t")
    assert plan(table, ASKED).warnings
    assert plan(table, ASKED, encryption_keys=bundle_keys()).files_kept == 1


def test_a_changed_file_is_not_indexed_and_a_scan_without_keys_says_what_is_missing(own_catalog):
    table = encrypted_table(own_catalog, "db.t", 2)
    path = local(table.location()) / "data/part-0001.parquet"
    with closing(unlock(open_source(str(path)), file_keys())) as view:
        chunk = read_footer(view).row_groups[0].columns[1]
    data = bytearray(path.read_bytes())
    data[chunk.start + 40] ^= 1
    path.write_bytes(data)
    report = build(table, ["ssn"], encryption_keys=bundle_keys())
    assert list(report.files_failed) == [f"{table.location()}/data/part-0001.parquet"]
    table = own_catalog.load_table("db.t")
    assert plan(table, ASKED, encryption_keys=bundle_keys()).files_kept == 1  # the damaged one
    with pytest.raises(SidecarError, match="key was not given"):
        plan(table, ASKED).to_arrow()


def test_a_locked_leaf_without_a_field_id_may_be_any_column(own_catalog):
    """By the table's name mapping it may be one that is read, and Arrow may abort the process over it."""
    table = encrypted_table(own_catalog, "db.without_ids", 1)
    footer = read_footer(open_source(next(iter(table.scan().plan_files())).file.file_path))
    for group in footer.row_groups:
        for chunk in group.columns.locked:
            object.__setattr__(chunk.leaf, "field_id", None)
    with pytest.raises(SidecarError, match="key was not given"):
        _check_readable(footer, {1}, "part-0000.parquet")


def test_keys_travel_with_the_plan_and_show_in_no_text(own_catalog):
    made = BuildPlan((), None, None, None, Access(None, bundle_keys()))  # type: ignore[arg-type]
    assert "planted" not in repr(made)
    keys = EncryptionKeys(None, bundle_keys={"ssn": METADATA})
    again = pickle.loads(pickle.dumps(replace(made, access=Access(None, keys))))
    assert again.access.keys == keys


def test_the_command_line_takes_keys_and_permission(own_catalog, tmp_path, monkeypatch):
    encrypted_table(own_catalog, "db.t")
    monkeypatch.setattr("sidecar.iceberg.catalog.open_table", lambda *_: own_catalog.load_table("db.t"))
    monkeypatch.setattr("sidecar.open_table", lambda *_: own_catalog.load_table("db.t"), raising=False)
    run("build", "db.t", "-c", "ssn", "--json", code=0)  # without keys it is not indexed
    monkeypatch.setattr("sidecar.crypto.keys.encryption_keys_from", lambda place: file_keys())
    refused = run("build", "db.t", "-c", "ssn", "--encryption-keys", "k")
    assert (refused.exit_code, "would leak" in refused.output) == (2, True)
    run("build", "db.t", "-c", "ssn", "--encryption-keys", "k", "--allow-plaintext", code=0)
    monkeypatch.setattr("sidecar.crypto.keys.encryption_keys_from", lambda place: bundle_keys())
    run("build", "db.t", "-c", "ssn", "--encryption-keys", "k", "--full", code=0)
    for place, kept in ((["--encryption-keys", "k"], 1), ([], 4)):
        planned = json.loads(run("plan", "db.t", ASKED, "--json", *place).stdout)
        assert planned["files"]["kept"] == kept


@pytest.mark.jvm
def test_spark_seals_on_its_workers(own_catalog, spark):
    """The data key goes with the function; answers are those of the in-process engine."""
    encrypted_table(own_catalog, "db.t", 70, encrypted=False)
    keys = EncryptionKeys(ExplicitKeys({METADATA: MASTER}), bundle_keys={"ssn": METADATA})
    table = own_catalog.load_table("db.t")
    report = build(table, ["ssn"], kinds=ALL, engine="spark", spark=spark, encryption_keys=keys)
    assert (report.engine, report.files_failed) == ("spark", {})
    assert b"planted-secret" not in bytes_of(report.statistics_path)
    table = own_catalog.load_table("db.t")
    found = plan(table, f"ssn = '{SECRET.format(6950)}'", encryption_keys=keys)
    assert (found.files_kept, found.warnings) == (1, ())
    assert sidecar.verify(table, encryption_keys=keys).problems == []
    settings = dict(spark.sparkContext.getConf().getAll()) | dict(spark.conf.getAll)
    assert not [text for text in map(repr, settings.items()) if "planted" in text or MASTER.hex() in text]
