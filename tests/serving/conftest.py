"""The catalog that servers of these tests are before."""

from __future__ import annotations

from pathlib import Path

import pytest
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.utils.config import Config


@pytest.fixture
def configured_catalog(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> SqlCatalog:
    """The catalog ``served`` of pyiceberg's configuration, with the empty namespace ``db``."""
    properties = {"uri": f"sqlite:///{tmp_path}/cat.db", "warehouse": f"file:{tmp_path}/wh", "type": "sql"}
    for name, value in properties.items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__SERVED__{name.upper()}", value)
    monkeypatch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when pyiceberg is imported
    catalog = SqlCatalog("served", **properties)
    catalog.create_namespace("db")
    return catalog
