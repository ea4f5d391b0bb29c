"""Random tables, whole, damaged and moved: plans are those of a slow twin, whichever way files are found.

``SIDECAR_THOROUGH=20 scripts/test tests/planning/test_slow_twin.py`` asks twenty times as many tables. The tables are
those of ``scripts/torture differential``, which compares the plans of two checkouts.
"""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

import sidecar
from scripts.torturing.differential_answers import WAYS, costs, load
from scripts.torturing.differential_tables import (
    WHOLE,
    Case,
    histories,
    tables_with_segments,
)
from sidecar.planning.files import cheapest
from sidecar.planning.funnel import KeptFilesBecause
from sidecar.planning.plan import Plan
from tests.case_counts import cases
from tests.iceberg.cases import matching_files
from tests.planning.slow_twin import SlowPlan, slow_plan

PREDICATES = 6
MAKERS = [
    *((tables_with_segments, number) for number in (0, 1, 3)),
    (histories, 1),
    (histories, 4),
    (histories, 2),
]
"""Tables with few and with more than 64 files, in one or several segments, moved, partitioned, with deletes."""


def made(catalog: Any, make: Any, number: int) -> list[Case]:
    return [case for case in make(catalog, number, PREDICATES) if not case.is_encrypted]


CASES = [(make, number + 100 * more) for more in cases(1) for make, number in MAKERS]


@pytest.mark.parametrize(("make", "number"), CASES, ids=[f"{make.__name__}-{number}" for make, number in CASES])
def test_plans_are_those_of_the_slow_twin(catalog: Any, make: Any, number: int) -> None:
    asked = 0
    for case in made(catalog, make, number):
        tables = {what: load(place) for what, place in case.metadata.items()}
        for at, (text, snapshot_id) in enumerate(case.asked):
            slow = slow_plan(tables[WHOLE], text, snapshot_id)
            for way in WAYS:
                with costs(way):
                    planned = sidecar.plan(tables[WHOLE], text, at=snapshot_id, allow_equality_deletes=True)
                check(tables[WHOLE], planned, slow, way)
                asked += 1
            way = [*WAYS][at % len(WAYS)]
            for what in tables.keys() - {WHOLE}:
                if not what.startswith("hostile"):  # these lie with good checksums
                    with costs(way):
                        found = sidecar.plan(tables[what], text, at=snapshot_id, allow_equality_deletes=True)
                    assert_keeps(found, slow, (what, text))
    assert asked >= PREDICATES * len(WAYS)


def check(table: Table, planned: Plan, slow: SlowPlan, way: str) -> None:
    """The files, and the counts of the funnel."""
    said, funnel = (planned.row_filter, planned.snapshot_id, way), planned.funnel
    assert planned.warnings == (), said
    wanted, by_pages = slow.paths(), funnel.dropped_by_page_index
    if by_pages:
        assert_keeps(planned, slow, said)
        assert len(planned.kept_files) + by_pages == len(wanted), said
    else:
        assert planned.kept_files == wanted, said
    if not slow.has_equality_deletes:
        assert matching_files(table, planned.row_filter, planned.snapshot_id) <= {*planned.kept_files}, said
    assert funnel.total == len(slow.files), said
    assert funnel.dropped_by_metadata + funnel.dropped_by_filter == len(slow.files) - len(wanted), said
    if not slow.asks_filters:
        assert funnel.dropped_by_filter == 0, said
        return
    least = slow.count(may_match=True, denied=True)
    if way == "usual" and len(slow.files) <= cheapest.FEW:
        assert least <= funnel.dropped_by_filter <= slow.count(passes=True, denied=True), said
    not_listed = slow.count(is_kept=True, is_listed=False)
    assert funnel.kept_because.get(KeptFilesBecause.NOT_LISTED.text, 0) == not_listed, said
    in_lists, others = slow.count(is_in_listed_manifest=True), {"is_in_listed_manifest": False, "may_match": True}
    assert funnel.listed == in_lists + slow.count(is_listed=True, **others), said
    indexed = slow.count(is_in_listed_manifest=True, is_indexed=True) + slow.count(is_indexed=True, **others)
    assert funnel.dropped_by_filter <= funnel.indexed, said
    assert funnel.indexed <= indexed or planned.row_groups, said


def assert_keeps(planned: Plan, slow: SlowPlan, said: Any) -> None:
    """What the twin keeps, but for files of which page indexes leave no row, and nothing that bounds rule out."""
    kept, wanted = {*planned.kept_files}, {*slow.paths()}
    assert len(wanted - kept) <= planned.funnel.dropped_by_page_index, said
    assert kept <= {file.path for file in slow.files if file.may_match}, said
