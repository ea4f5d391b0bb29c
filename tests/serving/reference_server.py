"""Iceberg's own REST server, for the time of a test."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from scripts.servers.iceberg_rest import start_server
from scripts.servers.processes import ServerError


@contextmanager
def reference_server(folder: Path) -> Iterator[str]:
    """Run a server whose tables are in ``folder``; yield its address. Skip the test where it cannot be had."""
    try:
        process, address = start_server(folder, lambda *_: None)
    except ServerError as error:
        pytest.skip(str(error))
    try:
        yield address
    finally:
        process.stop()
