"""The table that the tests of registering and finding sidecars share."""

from __future__ import annotations

from typing import Any

import pytest
from pyiceberg.table import Table

from sidecar.iceberg.statistics_files import entry_commits
from tests.iceberg.registering_cases import create


@pytest.fixture
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """A commit that failed is tried again at once."""
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)


@pytest.fixture
def table(catalog: Any) -> Table:
    """A table of one file that has no statistics."""
    return create(catalog)
