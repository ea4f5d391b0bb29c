"""The same rows with a sidecar as without, through every door, for tables with random pasts and random predicates.

``SIDECAR_CASES=5000 scripts/test tests/test_equivalence.py`` runs so many cases through each door; by default some
hundreds.
"""

from __future__ import annotations

import os
import random
from functools import cache
from typing import Any

import pytest
from equivalence_cases import History, damaged, make_history
from iceberg_cases import comparable

import sidecar
from sidecar.errors import UnsupportedFeatureError
from sidecar.iceberg import table_files
from sidecar.iceberg.predicate import parse_predicate
from sidecar.iceberg.scanning import read

CASES = int(os.environ.get("SIDECAR_CASES", "0"))
BATCH = 30
"""Predicates that one table is asked."""


def batches(default: int) -> range:
    return range(-(-(CASES or default) // BATCH))


@pytest.fixture(scope="session")
def history(catalog: Any) -> Any:
    """The history of a batch, made once for all doors."""

    @cache
    def of(seed: int, flavour: str) -> History:
        return make_history(catalog, f"db.equivalence_{flavour}_{seed}", seed, flavour)

    return of


@pytest.mark.parametrize("batch", batches(240))
def test_pyiceberg(history: Any, batch: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(table_files, "SMALL", 0)
    made = history(batch, "mixed" if batch % 3 == 2 else "parquet")
    rng = random.Random(batch)
    raised = 0
    with damaged(made) as damage:
        for number in range(BATCH):
            text, snapshot_id = made.predicate(), made.snapshot()
            said = (batch, number, text, snapshot_id, damage, made.log)
            try:
                planned = sidecar.plan(made.table, text, snapshot_id=snapshot_id)
            except UnsupportedFeatureError as error:
                assert made.equality_deletes and "equality deletes" in str(error), said
                raised += 1
                continue
            if made.equality_deletes:
                continue
            columns = None if number % 8 == 0 else ["id", rng.choice(made.columns)]
            row_filter = parse_predicate(text, made.table.schema())
            scan = made.table.scan(
                row_filter, selected_fields=tuple(columns or ["*"]), snapshot_id=snapshot_id
            )
            if columns is not None and snapshot_id is not None:
                columns = ["id"]
                scan = scan.select("id")
            found, wanted = read(planned, columns), scan.to_arrow()
            assert comparable(found) == comparable(wanted), said
            assert found.schema.equals(wanted.schema), said
