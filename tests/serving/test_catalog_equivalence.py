"""The same rows through a served plan as by pyiceberg's own planning, for tables with random pasts.

``SIDECAR_CASES=2000`` runs so many cases; see ``tests/test_equivalence.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any

import pytest
from pyiceberg.catalog.rest import RestCatalog

from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.iceberg.refs import schema_at
from tests.equivalence_cases import damaged
from tests.equivalence_history import History
from tests.equivalence_tally import Tally
from tests.equivalence_truth import live_rows, right_ids, truths_at
from tests.serving.served import Served, served
from tests.test_equivalence import (
    BATCH,
    CASES,
    batches,
    histories,
    ids_without,
    pyiceberg_tables,
)

PREDICATES = BATCH if CASES else 8


@pytest.fixture(scope="module")
def history(catalog: Any) -> Any:
    """Histories of this module's own: others may change theirs."""
    return histories(catalog, "served")


@pytest.fixture(scope="module")
def servers(catalog: Any) -> Iterator[list[Served]]:
    """One that answers in one piece, and one that answers in pages of three files."""
    with served(catalog) as whole, served(catalog, page_files=3) as paged:
        yield [whole, paged]


def same_columns(history: History, snapshot_id: int | None) -> list[str]:
    """Those that have the same names now and at a snapshot: pyiceberg binds a filter to the present names."""
    now, then = history.table.schema(), schema_at(history.table, snapshot_id)
    found = history.columns_at(snapshot_id)
    return [name for name in found if now.find_field(name).field_id == then.find_field(name).field_id]


@pytest.mark.parametrize(("seed", "flavour"), batches(CASES or 2 * BATCH, lambda n: pyiceberg_tables(n + 1)))
def test_served_pyiceberg(
    servers: list[Served], history: Callable[..., History], seed: int, flavour: str, record_property: Any
) -> None:
    tally = Tally("served pyiceberg")
    made = history(seed, flavour)
    with damaged(made) as damage:
        table = servers[seed % 2].catalog().load_table(made.table.name())
        assert isinstance(table.catalog, RestCatalog)
        assert table.catalog.supports_server_side_planning()
        for number in range(PREDICATES):
            snapshot_id = made.snapshot() or made.before_equality
            text = made.predicate(same_columns(made, snapshot_id))
            said = (seed, number, text, snapshot_id, damage, made.log)
            fields = ("*",) if number % 8 == 0 else ("id",)
            row_filter = parse_predicate(text, made.table.schema())
            scan = table.scan(row_filter, selected_fields=fields, snapshot_id=snapshot_id)
            rows = scan.to_arrow().to_pylist()
            assert scan.count() == len(rows), said
            tally.cases += 1
            by_engine = {*live_rows(made, ("id",), snapshot_id, row_filter)["id"].to_pylist()}
            truths = truths_at(made, snapshot_id)
            ids, without = {row["id"] for row in rows}, partial(ids_without, made, text, snapshot_id)
            right = right_ids(truths.of(text), ids, by_engine, without, reads=True)
            wanted = truths.rows_of(right, None if number % 8 == 0 else ["id"])
            tally.compare(rows, wanted.to_pylist(), said)
    tally.finish(record_property)
