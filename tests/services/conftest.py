"""The catalogs of ``scripts/services``, as a user has them: by name, out of pyiceberg's configuration."""

from __future__ import annotations

import uuid
from collections.abc import Iterator

import pytest
from pyiceberg.utils.config import Config

from scripts.servers.services import FOLDER, Service, running


@pytest.fixture(scope="session")
def services() -> dict[str, Service]:
    """The servers that run."""
    return running()


@pytest.fixture(scope="module", autouse=True)
def _configured() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PYICEBERG_HOME", str(FOLDER))
        patch.setattr("pyiceberg.catalog._ENV_CONFIG", Config())  # read once, when pyiceberg is imported
        yield


@pytest.fixture
def namespace() -> str:
    """A namespace that no earlier run of the tests has made: servers outlive them."""
    return f"n{uuid.uuid4().hex[:10]}"
