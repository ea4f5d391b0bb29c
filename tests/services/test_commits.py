"""A share of ``scripts/torture commits``: processes commit to one table at once, on each catalog."""

from __future__ import annotations

import pytest

from scripts.servers.services import Service
from scripts.torturing.commits import lines_of, run

pytestmark = pytest.mark.services

COMMITS = 20
MINUTES = 0.75


@pytest.mark.parametrize("catalog", ["rest", "postgres"])
def test_nothing_is_lost_and_no_plan_is_wrong(catalog: str, services: dict[str, Service]) -> None:
    outcome = run(services[catalog].catalogs[catalog], COMMITS, MINUTES, seed=3)
    assert outcome.is_good, "\n".join(lines_of(catalog, outcome))
    assert outcome.commits > 0
    assert outcome.findings.acknowledged > 0
    assert outcome.counts["checks"] > 0
    assert outcome.counts["files dropped"] > 0
