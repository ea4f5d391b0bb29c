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
from tests.life.pasts import Past, damaged
from tests.life.tally import Tally
from tests.life.truth import live_rows, right_ids, shown, shown_rows, truth_at
from tests.serving.served import Served, served
from tests.test_equivalence import (
    BATCH,
    CASES,
    batches,
    ids_without,
    pasts,
    pyiceberg_tables,
)

PREDICATES = BATCH if CASES else 8


@pytest.fixture(scope="module")
def past(catalog: Any) -> Any:
    """Tables of this module's own: others may change theirs."""
    return pasts(catalog)


@pytest.fixture(scope="module")
def servers(catalog: Any) -> Iterator[list[Served]]:
    """One that answers in one piece, and one that answers in pages of three files."""
    with served(catalog) as whole, served(catalog, page_files=3) as paged:
        yield [whole, paged]


def same_columns(made: Past, snapshot_id: int | None) -> list[str]:
    """Those that have the same names now and at a snapshot: pyiceberg binds a filter to the present names."""
    now, then = made.table.schema(), schema_at(made.table, snapshot_id)
    found = made.columns_at(snapshot_id)
    return [name for name in found if now.find_field(name).field_id == then.find_field(name).field_id]


@pytest.mark.parametrize(("seed", "flavour"), batches(CASES or 2 * BATCH, lambda n: pyiceberg_tables(n + 1)))
def test_served_pyiceberg(
    servers: list[Served], past: Callable[..., Past], seed: int, flavour: str, record_property: Any
) -> None:
    tally = Tally("served pyiceberg")
    made = past(seed, flavour)
    with damaged(made) as damage:
        table = servers[seed % 2].catalog().load_table(made.name)
        assert isinstance(table.catalog, RestCatalog)
        assert table.catalog.supports_server_side_planning()
        for number in range(PREDICATES):
            snapshot_id = made.snapshot() or made.before_equality()
            text = made.predicate(same_columns(made, snapshot_id))
            said = (seed, number, text, snapshot_id, damage, made.log)
            fields = ("*",) if number % 8 == 0 else ("id",)
            row_filter = parse_predicate(text, made.table.schema())
            scan = table.scan(row_filter, selected_fields=fields, snapshot_id=snapshot_id)
            rows = scan.to_arrow()
            assert scan.count() == len(rows), said
            tally.cases += 1
            by_engine = {*live_rows(made, ("id",), snapshot_id, row_filter)["id"].to_pylist()}
            ids, without = rows["id"].to_pylist(), partial(ids_without, made, text, snapshot_id)
            right = right_ids(truth_at(made, text, snapshot_id), ids, by_engine, without, reads=True)
            wanted = shown_rows(made, right, None if number % 8 == 0 else ["id"], snapshot_id)
            tally.compare(shown(made, rows, snapshot_id), wanted, said)
    tally.finish(record_property)
