"""The prepared store, once for each worker, and no pauses."""

from __future__ import annotations

from pathlib import Path

import pytest

from sidecar.iceberg.statistics_files import entry_commits
from tests.faults.harness import prepare


@pytest.fixture(scope="session")
def prepared(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store that no test changes."""
    folder = tmp_path_factory.mktemp("prepared")
    prepare(folder)
    return folder


@pytest.fixture(autouse=True)
def _no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(entry_commits, "FIRST_PAUSE", 0.0)
