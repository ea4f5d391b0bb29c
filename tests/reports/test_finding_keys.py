"""Searches in encrypted tables: keys that are missing, and sidecars that somebody without keys has written."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.indexing.driver import build
from sidecar.reports.finding.find import find
from tests.iceberg.encrypted_tables import SECRET, bundle_keys, encrypted_table, file_keys, trusting
from tests.planning.test_forged import doubled_record, forged, swapped_files

KINDS = ["bloom", "page-index"]
ASKED = [SECRET.format(number) for number in (50, 150, 250, 350)]


def test_a_missing_key_is_never_absent(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.t", 2)
    report = find(table, {"ssn": ["nobody", ASKED[0]], "id": 50})
    answers = {one.value: one.answer for one in report.conditions}
    assert answers == {"nobody": "not proven", ASKED[0]: "not proven", "50": "found"}
    assert {(one.what, one.column) for one in report.not_asked} == {("data file", "ssn")}
    with_keys = find(table, {"ssn": ["nobody", ASKED[0]]}, encryption_keys=file_keys())
    assert [one.answer for one in with_keys.conditions] == ["absent", "found"]


@pytest.mark.parametrize("change", [swapped_files, doubled_record], ids=lambda change: change.__name__)
def test_a_forged_sidecar_hides_nothing_from_who_has_the_keys(own_catalog: Any, change: Any) -> None:
    keys = bundle_keys()
    table = encrypted_table(own_catalog, "db.t", 4)
    build(table, ["ssn"], kinds=KINDS, encryption_keys=keys)
    table = own_catalog.load_table("db.t")
    assert find(table, {"ssn": ASKED[1]}, encryption_keys=keys).ruled_out_by == {"filter of the sidecar": 3}
    table = forged(table, change)
    report = find(table, {"ssn": ASKED}, encryption_keys=keys)
    assert [one.rows for one in report.conditions] == [1] * 4
    assert report.ruled_out_by == {}
    assert report.warnings


def test_whoever_believes_a_forged_plaintext_sidecar_is_deceived_unless_every_file_is_read(own_catalog: Any) -> None:
    table = encrypted_table(own_catalog, "db.t", 4, bounds=(2,))
    build(table, ["ssn"], kinds=KINDS, encryption_keys=file_keys(), allow_plaintext=True)
    table = forged(own_catalog.load_table("db.t"), swapped_files)
    trusted = trusting(file_keys())
    assert [find(table, {"ssn": one}, encryption_keys=trusted).answer for one in ASKED] == ["absent"] * 4
    assert [find(table, {"ssn": one}, encryption_keys=file_keys()).answer for one in ASKED] == ["found"] * 4
    bound = find(table, {"ssn": SECRET.format(100)}, encryption_keys=trusted)
    assert bound.answer == "found"  # a bound in the manifest contradicts the filter, so the rows decide
    report = find(table, {"ssn": ASKED}, encryption_keys=trusted, read_all=True)
    assert [one.rows for one in report.conditions] == [1] * 4
