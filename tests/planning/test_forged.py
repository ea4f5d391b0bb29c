"""Plans with keys over sidecars that somebody without keys has written lose no file, and warn."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table.statistics import StatisticsFile

import sidecar
from sidecar.bundle.units.fingerprints import FINGERPRINT_BYTES
from sidecar.crypto.keys import EncryptionKeys
from sidecar.indexing.driver import build
from sidecar.planning.planner import plan
from tests.iceberg.cases import local
from tests.iceberg.encrypted_tables import (
    SECRET,
    Retriever,
    add_encrypted,
    bundle_keys,
    encrypted_table,
    file_keys,
    trusting,
)
from tests.iceberg.forging import Forgery, put_sections, sections_of

KINDS = ["bloom", "page-index"]
FILES = 70
"""More than are read without asking the sidecar's filters and bounds first."""
ASKED = [number * 100 + 50 for number in (0, 1, 2, 33, 68, 69)]


def stored(table: Any) -> tuple[StatisticsFile, Path]:
    entry = table.metadata.statistics[-1]
    return entry, local(entry.statistics_path)


def register(table: Any, data: bytes) -> Any:
    """Put these bytes in place of the sidecar; who can write the file can have its sizes registered."""
    entry, path = stored(table)
    path.write_bytes(data)
    footer = int.from_bytes(data[-12:-8], "little") + 16
    changed = entry.model_copy(update={"file_size_in_bytes": len(data), "file_footer_size_in_bytes": footer})
    with table.update_statistics() as update:
        update.set_statistics(changed)
    return table.catalog.load_table(table.name())


def forged(table: Any, change: Callable[[Forgery], None]) -> Any:
    forgery = Forgery.of(stored(table)[1].read_bytes())
    change(forgery)
    forgery.link()
    return register(table, forgery.stored())


def lost(table: Any, keys: EncryptionKeys) -> list[str]:
    """Values that a plan, a join's keys or a probe no longer finds in their file, or without a warning."""
    found = []
    for number in ASKED:
        value, file = SECRET.format(number), f"part-{number // 100:04}.parquet"
        asked = pa.array([value, "absent"])
        for predicate, join in (
            (f"ssn = '{value}'", None),
            (f"ssn >= '{value}' and ssn <= '{value}'", None),
            (f"ssn = '{value}' and id = {number}", None),
            (f"id = {number}", {"ssn": asked}),
        ):
            planned = plan(table, predicate, keys=join, encryption_keys=keys)
            if not any(file in task.file.file_path for task in planned.tasks):
                found.append(f"{predicate} {join}")
    return found


def swapped_files(forgery: Forgery) -> None:
    """Each file's fingerprint, record and bounds stand in the place of its neighbour's."""
    units = forgery.units()
    parts = sections_of(units)
    prints = parts["fingerprints", 0][0]
    parts["fingerprints", 0] = [prints[FINGERPRINT_BYTES:] + prints[:FINGERPRINT_BYTES]]
    put_sections(units, parts)


def doubled_record(forgery: Forgery) -> None:
    """The records of the first batch of files stand in the second place, too: some files are named nowhere."""
    units = forgery.units()
    parts = sections_of(units)
    first, *rest = parts["files", 0]
    table = pa.ipc.open_stream(first).read_all()
    order = [1, *range(1, table.num_rows)]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, table.schema, options=options) as writer:
        writer.write_table(table.take(order))
    parts["files", 0] = [sink.getvalue().to_pybytes(), *rest]
    put_sections(units, parts)


def shifted(forgery: Forgery) -> None:
    """Each position of the filters means the unit after its own; the last one means none."""
    for blob in forgery.blobs:
        for group in blob.toc.get("groups", ()) if blob.fields == (2,) else ():
            group["members"], group["units"] = FILES, {"runs": [[1, FILES]]}
    forgery.units().toc["units"] = FILES + 1


@pytest.mark.parametrize("change", [swapped_files, doubled_record, shifted], ids=lambda change: change.__name__)
def test_no_file_is_lost_to_who_has_the_keys(own_catalog, change):
    table = encrypted_table(own_catalog, "db.t", FILES)
    keys = bundle_keys()
    build(table, ["ssn"], kinds=KINDS, encryption_keys=keys)
    table = own_catalog.load_table("db.t")
    assert lost(table, keys) == []
    assert plan(table, f"ssn = '{SECRET.format(50)}'", encryption_keys=keys).files_kept == 1
    table = forged(table, change)
    for given in (keys, file_keys()):  # both have the key; only one names the column
        assert lost(table, given) == []
        assert plan(table, f"ssn = '{SECRET.format(50)}'", encryption_keys=given).warnings
    assert sidecar.verify(table, encryption_keys=keys).problems


def test_plaintext_in_the_place_of_what_is_encrypted_deceives_nobody_who_has_keys(own_catalog):
    table = encrypted_table(own_catalog, "db.t", FILES)
    build(table, ["ssn"], kinds=KINDS, encryption_keys=file_keys(), allow_plaintext=True)
    table = forged(own_catalog.load_table("db.t"), swapped_files)
    assert lost(table, trusting(file_keys())), "the forgery denies nothing to anybody"
    for keys, why in ((bundle_keys(), "its key was given"), (file_keys(), "keys of encrypted files were given")):
        assert lost(table, keys) == []
        for kept in (keys, trusting(keys)) if keys.bundle_keys else (keys,):  # what is named must be encrypted
            planned = plan(table, f"ssn = '{SECRET.format(50)}'", encryption_keys=kept)
            assert planned.files_kept == FILES
            (warning,) = planned.warnings
            assert f"in plaintext although {why}" in warning
            assert "column ssn" in warning
            assert "bundle_keys" in warning
        problems = sidecar.verify(table, encryption_keys=keys).problems
        assert any(f"in plaintext although {why}" in problem.problem for problem in problems)


def test_what_is_not_believed_is_built_anew(own_catalog):
    """Plaintext of a column that is named since, and bundles under its former key."""
    table = encrypted_table(own_catalog, "db.t", 4)
    build(table, ["ssn", "id"], kinds=KINDS, encryption_keys=file_keys(), allow_plaintext=True)
    report = build(own_catalog.load_table("db.t"), ["ssn"], kinds=KINDS, encryption_keys=bundle_keys())
    assert (report.files_carried, report.units) == (0, 4)
    entry, path = stored(own_catalog.load_table("db.t"))
    assert SECRET.format(0).encode() not in path.read_bytes()
    table = own_catalog.load_table("db.t")
    asked = f"ssn = '{SECRET.format(250)}'"
    assert plan(table, asked, encryption_keys=bundle_keys()).files_kept == 1
    assert plan(table, "id = 250").files_kept == 1
    former = EncryptionKeys(Retriever(other=b"another master k"), bundle_keys={"ssn": b"other"})
    planned = plan(table, asked, encryption_keys=former)
    assert planned.files_kept == 4
    assert ["with another key than bundle_keys name" in warning for warning in planned.warnings] == [True]
    report = build(table, ["ssn"], kinds=KINDS, encryption_keys=former)
    assert (report.files_carried, report.units) == (0, 4)
    table = own_catalog.load_table("db.t")
    assert plan(table, asked, encryption_keys=former).files_kept == 1
    add_encrypted(table, range(4, 6))
    report = build(own_catalog.load_table("db.t"), ["ssn"], kinds=KINDS, encryption_keys=former)
    assert (report.files_carried, report.units) == (4, 2)
    assert entry.statistics_path


def test_a_new_key_for_one_column_leaves_the_indexes_of_the_others(own_catalog):
    """Blobs under the former key are built anew; all else of the earlier sidecar is carried."""
    table = encrypted_table(own_catalog, "db.t", 4)
    build(table, ["ssn", "id"], kinds=KINDS, encryption_keys=bundle_keys())
    new = EncryptionKeys(Retriever(new=b"another master k"), bundle_keys={"ssn": b"new"})
    report = build(own_catalog.load_table("db.t"), ["ssn"], kinds=KINDS, encryption_keys=new)
    assert (report.files_carried, report.segments_carried, report.units) == (0, 1, 4)
    assert report.warnings == []
    table = own_catalog.load_table("db.t")
    planned = plan(table, "id = 250")
    assert (planned.files_kept, planned.funnel.dropped_by_filter, planned.warnings) == (1, 3, ())
    planned = plan(table, f"ssn = '{SECRET.format(250)}'", encryption_keys=new)
    assert (planned.files_kept, planned.warnings) == (1, ())


def test_a_forged_sidecar_is_not_built_upon(own_catalog):
    table = encrypted_table(own_catalog, "db.t", 4)
    build(table, ["ssn"], kinds=KINDS, encryption_keys=bundle_keys())
    table = forged(own_catalog.load_table("db.t"), swapped_files)
    add_encrypted(table, range(4, 6))
    report = build(own_catalog.load_table("db.t"), ["ssn"], kinds=KINDS, encryption_keys=bundle_keys())
    assert (report.files_carried, report.units) == (0, 6)
    table = own_catalog.load_table("db.t")
    assert sidecar.verify(table, encryption_keys=bundle_keys()).problems == []
    assert plan(table, f"ssn = '{SECRET.format(250)}'", encryption_keys=bundle_keys()).files_kept == 1


def test_names_of_keys_follow_a_renamed_column(own_catalog):
    """The key is named for the column by the name that it had: its field is still the same."""
    table = encrypted_table(own_catalog, "db.t", 4)
    build(table, ["ssn"], kinds=KINDS, encryption_keys=file_keys(), allow_plaintext=True)
    table = own_catalog.load_table("db.t")
    with table.update_schema() as update:
        update.rename_column("ssn", "social")
    table = own_catalog.load_table("db.t")
    asked = f"social = '{SECRET.format(250)}'"
    assert plan(table, asked, encryption_keys=trusting(file_keys())).files_kept == 1
    for name in ("ssn", "social"):
        assert plan(table, asked, encryption_keys=bundle_keys(name)).files_kept == 4
