"""Sidecars that are damaged, foreign or of no use: a warning, and no row is lost."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest
from pyiceberg.table import Table

from sidecar import errors
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning import opened_sidecar, planner
from sidecar.planning.files import choose
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF
from sidecar.storage.source import BytesSource
from tests.iceberg.cases import (
    local,
    matching_files,
    replaced,
)
from tests.planning.plan_cases import assert_right, create_longs, key


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Five files, indexed."""
    return create_longs(catalog, "db.plan_damage")


def statistics_file(table: Table) -> Path:
    return local(table.metadata.statistics[-1].statistics_path)


@pytest.mark.parametrize("what", ["missing", "empty", "truncated", "garbage", "other puffin"])
def test_a_sidecar_that_is_no_use_keeps_everything_and_says_why(table: Table, what: str, tmp_path: Path) -> None:
    path = statistics_file(table)
    whole = path.read_bytes()
    data = {"missing": None, "empty": b"", "truncated": whole[:-9], "garbage": bytes(len(whole))}.get(
        what, b"PFA1" + whole[4:-4] + b"PFA2"
    )
    with replaced(path, data):
        planned = plan(table, f"k = {key(3)}")
        assert planned.files_kept == planned.files_total == 5
        assert str(path) in planned.warnings[0]
        assert planned.funnel.kept_because == {"index unreadable": 5}
        assert "warning: " in planned.explain()
        assert_right(table, planned)


def test_damaged_bytes_never_lose_a_row(table: Table) -> None:
    """Flipped bits anywhere in the file: the right file stays, and what is kept for it comes with a warning."""
    path = statistics_file(table)
    whole = path.read_bytes()
    wanted = {n: matching_files(table, parse_predicate(f"k = {key(n)}", table.schema())) for n in range(5)}
    rng = random.Random(23)
    warned = 0
    for position in sorted(rng.sample(range(len(whole)), 160)) + list(range(len(whole) - 40, len(whole))):
        data = bytearray(whole)
        data[position] ^= 1 << rng.randrange(8)
        with replaced(path, bytes(data)):
            number = rng.randrange(5)
            planned = plan(table, f"k = {key(number)}")
        assert wanted[number] <= set(planned.kept_files), position
        assert planned.files_kept == 1 or planned.warnings, position
        warned += bool(planned.warnings)
    assert warned > 20


def test_a_damaged_filter_keeps_its_units_and_is_named_in_the_funnel(table: Table) -> None:
    path = statistics_file(table)
    whole = path.read_bytes()
    [bundle] = [b for b in PuffinReader(BytesSource(whole)).metadata.blobs if b.type == SBBF]
    data = bytearray(whole)
    for position in range(bundle.offset + 32, bundle.offset + bundle.length - 600, 64):
        data[position] ^= 1
    with replaced(path, bytes(data)):
        planned = plan(table, f"k = {key(3)}")
    assert planned.funnel.kept_because == {KeptFilesBecause.DAMAGED.text: 5}
    assert "checksum" in planned.warnings[0]
    assert planned.files_covered == 5


def test_nothing_an_index_does_fails_a_query(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any, **__: Any) -> None:
        raise ZeroDivisionError("a fault of ours")

    monkeypatch.setattr(errors, "reraise_foreign", False)
    for place in (choose, "by_filters"), (planner, "count_listed"):
        with monkeypatch.context() as patch:
            patch.setattr(*place, fail)
            planned = plan(table, f"k = {key(3)}")
            assert "ZeroDivisionError" in planned.warnings[0]
            assert_right(table, planned)
    with monkeypatch.context() as patch:
        patch.setattr(opened_sidecar, "search_sidecar", fail)
        assert plan(table, f"k = {key(3)}").files_kept == 5


def test_a_statistics_entry_of_another_engine_is_passed_over(catalog: Any) -> None:
    table = create_longs(catalog, "db.plan_none", files=2, build=False)
    planned = plan(table, f"k = {key(1)}")
    assert (planned.files_kept, planned.sidecar, planned.warnings) == (2, None, ())
    assert planned.funnel.kept_because == {"no sidecar": 2}
