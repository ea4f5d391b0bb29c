"""A search finds exactly the rows that a full read of all data files finds, and tells live rows from deleted ones."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.manifest import ManifestFile

import sidecar
from sidecar.reports.finding.find import find
from tests.iceberg.cases import local, replaced
from tests.life import changes
from tests.life.pasts import make_past
from tests.reports.find_cases import (
    as_text,
    asked_once,
    found_by,
    leaves,
    name_of,
    random_value,
    slow_search,
)

SEEDS = (11, 15, 19)
"""Pasts with rows deleted by position, columns added and swapped, files compacted, snapshots rolled back."""


def searched_table(catalog: Any, seed: int) -> Any:
    """A table whose columns were promoted and renamed last; not all of its files have the new types."""
    life = make_past(catalog, seed, "mixed", ())
    for change in (changes.promote_column, changes.promote_column, changes.rename_column, changes.append):
        life.do(change)
    return life.table


def assert_right(table: Any, rng: random.Random, asked: int = 8, **options: Any) -> int:
    """Search for some values of each column in all snapshots; return how many files were ruled out."""
    snapshots = [snapshot.snapshot_id for snapshot in table.metadata.snapshots]
    ruled_out, columns = 0, leaves(table)
    for field_id in rng.sample(sorted(columns), asked):
        leaf = columns[field_id]
        values = [random_value(rng, leaf, 300) for _ in range(3)]
        texts = [as_text(leaf, value) for value in values]
        report = find(table, {name_of(table, field_id): texts}, all_snapshots=True, **options)
        assert all("time zone" in one.reason for one in report.not_asked)  # readers disagree about some in ORC files
        assert leaf in ("ts", "tz") or not report.not_asked
        assert asked_once(report)
        ruled_out += sum(report.ruled_out_by.values())
        for value, text in zip(values, texts, strict=True) if not report.not_asked else ():
            expected = slow_search(table, field_id, value, snapshots)
            assert found_by(report, field_id, text) == expected, (leaf, text)
            (condition,) = [one for one in report.conditions if one.value == text]
            assert condition.answer == ("found" if found_any(report, text) else "absent")
            assert condition.answer == "found" or not expected
    return ruled_out


def found_any(report: Any, text: str) -> bool:
    return any(file.value == text for file in report.files)


@pytest.mark.parametrize("seed", SEEDS)
def test_it_finds_what_a_full_read_finds(catalog: Any, seed: int) -> None:
    table = searched_table(catalog, seed)
    assert assert_right(table, random.Random(seed)) > 0
    assert assert_right(table, random.Random(seed), asked=2, read_all=True) == 0


def test_a_damaged_sidecar_costs_reads_and_no_row(catalog: Any) -> None:
    table = searched_table(catalog, 15)
    paths = {local(entry.statistics_path) for entry in table.metadata.statistics}
    assert paths
    rng = random.Random(7)
    for path in sorted(paths):
        data = bytearray(path.read_bytes())
        for at in rng.sample(range(len(data)), len(data) // 200):
            data[at] ^= 1 << rng.randrange(8)
        with replaced(Path(path), bytes(data)):
            assert_right(table, rng, asked=5)
        with replaced(Path(path), None):
            assert_right(table, rng, asked=2)


def test_a_manifest_list_may_have_fewer_summaries_than_the_spec_has_fields(
    catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Dremio writes such lists: what they leave out rules nothing out."""
    rows = pa.table({"k": [1, 2], "s": ["a", "b"]})
    table = catalog.create_table("db.few_summaries", rows.schema)
    with table.update_spec() as update:
        update.add_identity("k")
        update.add_identity("s")
    table.append(rows)
    real = ManifestFile.partitions.fget
    monkeypatch.setattr(ManifestFile, "partitions", property(lambda line: real(line)[:1]))  # type: ignore[misc]
    for options in ({}, {"all_snapshots": True}):
        assert sidecar.find(table, {"s": ["b"]}, **options).answer == "found"
    assert sidecar.find(table, {"s": ["c"]}).answer == "absent"
    assert sidecar.plan(table, "s = 'b'").files_kept == 1
