"""Sorts errors of a file or column chunk into damage and storage faults, with one line for the report."""

from __future__ import annotations

from sidecar.errors import SidecarError, StorageError, foreign_reason

DAMAGE = "damage"
STORAGE = "storage"


def fault_of(error: BaseException) -> str:
    """Return :data:`STORAGE` if bytes could not be read, else :data:`DAMAGE`."""
    return STORAGE if isinstance(error, StorageError | OSError) else DAMAGE


def reason_of(error: BaseException) -> str:
    """Return one line for the report: a SidecarError without its file, which the record names; others by type."""
    if isinstance(error, SidecarError):
        return error.what if error.offset is None else f"{error.what} (offset {error.offset})"
    return foreign_reason(error)
