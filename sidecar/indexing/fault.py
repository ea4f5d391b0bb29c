"""What went wrong with a file or a column chunk, as one line of the report and by whose move is next."""

from __future__ import annotations

from sidecar.errors import SidecarError, StorageError, foreign_reason

DAMAGE = "damage"
STORAGE = "storage"


def fault_of(error: BaseException) -> str:
    """:data:`STORAGE` if bytes could not be read, else :data:`DAMAGE`."""
    return STORAGE if isinstance(error, StorageError | OSError) else DAMAGE


def reason_of(error: BaseException) -> str:
    """One line for the report: our own errors without the file that the record names, others by type."""
    if isinstance(error, SidecarError):
        return error.what if error.offset is None else f"{error.what} (offset {error.offset})"
    return foreign_reason(error)
