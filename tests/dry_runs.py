"""Dry runs change nothing on the disk."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

Tree = dict[str, tuple[int, bytes | None]]


def tree(folder: Path) -> Tree:
    """Every file and folder below ``folder``: its modification time, and the bytes of a file."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [folder, *folder.rglob("*")]
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Assert that nothing below ``folder`` is changed, also after an error."""
    before = tree(folder)
    try:
        yield
    finally:
        assert tree(folder) == before
