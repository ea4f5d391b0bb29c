"""Spares tests the waits until the disk has what they write: a wait takes 15 ms, and no test outlives the machine."""

from __future__ import annotations

import os
from typing import Any


def spare_disk() -> None:
    """Have neither ``os.fsync`` nor SQLite wait for the disk, in this process, from now on."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _do_not_wait):
        event.listen(Engine, "connect", _do_not_wait)
    os.fsync = _check_open


def _do_not_wait(connection: Any, record: Any) -> None:
    connection.execute("PRAGMA synchronous=OFF")


def _check_open(fd: Any) -> None:
    os.fstat(fd)
