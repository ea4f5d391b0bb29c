"""The same rows in Spark through a served plan as by Spark's own planning, for tables with random pasts.

Spark has changed the tables last: they have position deletes, equality deletes or deletion vectors, Avro and ORC files.
``SIDECAR_CASES=2000`` runs eight hundred cases; see ``tests/test_equivalence.py``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from tests.life.pasts import Past, damaged
from tests.life.spark_changes import go_on_in_spark
from tests.life.tally import Tally
from tests.serving.served import Served, served
from tests.test_equivalence import (
    BATCH,
    CASES,
    _collected,
    _condition,
    _numbered,
    batches,
    besides_pruned,
    pasts,
    spark_tables,
)


@pytest.fixture(scope="module")
def past(catalog: Any) -> Any:
    """Tables of this module's own: others may change theirs."""
    return pasts(catalog)


@pytest.fixture(scope="module")
def server(spark: Any, catalog: Any) -> Iterator[Served]:
    """A server for tables of all versions and with or without sidecars, in pages of three files."""
    with served(catalog, page_files=3) as found, pytest.MonkeyPatch.context() as patch:
        patch.setattr(found.planner, "mode", lambda table, identifier: "server")
        settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": found.url}
        for key, value in {**settings, ".cache-enabled": "false"}.items():
            spark.conf.set(f"spark.sql.catalog.random{key}", value)
        yield found


@pytest.mark.jvm
@pytest.mark.parametrize(("seed", "flavour"), batches(CASES * 2 // 5 or BATCH, spark_tables))
def test_served_spark(
    spark: Any, server: Served, past: Callable[..., Past], seed: int, flavour: str, record_property: Any
) -> None:
    tally = Tally("served Spark")
    made = past(seed, flavour)
    go_on_in_spark(spark, made)
    place = made.name
    places = [place, *(f"{place}.branch_{branch}" for branch in made.branches()[1:2])]
    # filters are not pushed into these: Iceberg 1.12 binds those of a branch to the schema of the branch's snapshot
    whole = {place: spark.table(f"cat.{place}").localCheckpoint() for place in places}
    asked = [(places[n % 3 == 2 and len(places) > 1], made.predicate()) for n in range(BATCH)]
    before = len(server.facts)
    with damaged(made) as damage:
        conditions = [_condition(made, text) for _, text in asked]
        plain = [
            _numbered(whole[one].where(c), n) for n, ((one, _), c) in enumerate(zip(asked, conditions, strict=True))
        ]
        frames = [spark.table(f"random.{one}").where(c) for (one, _), c in zip(asked, conditions, strict=True)]
        wanted, found = (_collected(one) for one in (plain, [_numbered(f, n) for n, f in enumerate(frames)]))
    assert len(server.facts) > before
    for number, (one, text) in enumerate(asked):
        tally.cases += 1
        own, rows = found.get(number, []), wanted.get(number, [])
        if len(own) < len(rows):
            where = spark.table(f"cat.{one}").where(conditions[number])
            rows = besides_pruned(own, rows, _collected([_numbered(where, 0)]).get(0, []))
        tally.compare(own, rows, (seed, number, one, text, damage, made.log))
    tally.finish(record_property)
