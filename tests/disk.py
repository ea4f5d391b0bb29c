"""Spares tests the waits until the disk has what they write: a wait takes 15 ms, and no test outlives the machine."""

from __future__ import annotations

import os
import sqlite3
from pathlib import Path
from typing import Any


def spare_disk() -> None:
    """Have neither ``os.fsync`` nor SQLite wait for the disk, in this process, from now on."""
    from sqlalchemy import event
    from sqlalchemy.engine import Engine

    if not event.contains(Engine, "connect", _do_not_wait):
        event.listen(Engine, "connect", _do_not_wait)
    os.fsync = _check_open


def overwrite(path: Path, data: bytes) -> None:
    """Write all bytes of a file that is there, or a new one.

    ``path.write_bytes`` empties the file first; ext4 then has the new bytes on the disk before the file is closed.
    """
    with path.open("r+b" if path.exists() else "wb") as file:
        file.write(data)
        file.truncate()


def _do_not_wait(connection: Any, record: Any) -> None:
    if isinstance(connection, sqlite3.Connection):
        connection.execute("PRAGMA synchronous=OFF")


def _check_open(fd: Any) -> None:
    os.fstat(fd)
