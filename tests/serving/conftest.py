"""The catalog that servers of these tests are before."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog

from tests.tables import configure, new_catalog


@pytest.fixture
def configured_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """The catalog ``served`` of pyiceberg's configuration, with the empty namespace ``db``."""
    catalog = new_catalog(tmp_path, "served")
    configure(monkeypatch, catalog)
    return catalog
