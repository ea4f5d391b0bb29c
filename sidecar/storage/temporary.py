"""Names temporary files of local targets, and deletes those that killed runs left.

A temporary name is the file's name, 32 random hex digits and ``.sidecar-tmp``. It does not begin with a dot, because
tools that remove a table's orphan files skip such names. A killed run leaves its temporary file behind; the next file
created in that folder deletes temporary files that were not written to for a day, and so does ``gc`` in the folders of
a table.
"""

from __future__ import annotations

import contextlib
import math
import os
import re
import stat
import threading
import time
import uuid

ABANDONED_AFTER = 86_400.0
"""A temporary file that was not written to for this many seconds counts as left by a killed run."""

_CLEAR_AGAIN_AFTER = 3600.0
_FOOTER_LENGTH_TAG = 0x08
_LONGEST_NAME = 255
_TEMPORARY = re.compile(r".\.[0-9a-f]{32}\.sidecar-tmp\Z", re.DOTALL)


def is_temporary(path: str) -> bool:
    """Return whether a local file has a temporary name: a run writes it at this moment, or was killed."""
    return _TEMPORARY.search(path) is not None


def old_temporary(path: str, latest: float) -> os.stat_result | None:
    """Return the state of a regular file with a temporary name that was not written to since ``latest``, else ``None``.

    A killed run left it. Raises :class:`OSError`.
    """
    if not is_temporary(path):
        return None
    state = os.stat(path, follow_symlinks=False)
    return state if stat.S_ISREG(state.st_mode) and state.st_mtime < latest else None


def may_be_data_file(path: str) -> bool:
    """Return whether a local file ends as whole Parquet or ORC files do. Raises :class:`OSError`.

    A table may name such a file, whatever its name is. The postscript of an ORC file begins with its first field, and
    that of the oldest writers has no magic.
    """
    with open(path, "rb") as file:
        head = file.read(3)
        file.seek(-min(256, os.fstat(file.fileno()).st_size), os.SEEK_END)
        end = file.read()
    if end.endswith((b"PAR1", b"PARE")) or end[-4:-1] == b"ORC":
        return True
    return head == b"ORC" and 0 < end[-1] < len(end) and end[-1 - end[-1]] == _FOOTER_LENGTH_TAG


def temporary_name(path: str) -> str:
    """Return a temporary name beside a path: a file system allows 255 bytes, which a name of letters may fill alone."""
    folder, slash, name = path.rpartition("/")
    end = f".{uuid.uuid4().hex}.sidecar-tmp"
    room = _LONGEST_NAME - len(end)
    if len(os.fsencode(name)) > room:
        name = os.fsencode(name)[:room].decode(errors="ignore")  # no half letter, which some file systems refuse
    return folder + slash + name + end


class _Cleared:
    """Remembers when each folder was cleared, so that a command that writes many files lists a folder once."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._at: dict[str, float] = {}

    def is_due(self, folder: str) -> bool:
        """Return whether the last clearing is at least an hour ago; if so, record the folder as cleared now."""
        now, key = time.monotonic(), os.path.abspath(folder)
        with self._lock:
            is_due = now - self._at.get(key, -math.inf) >= _CLEAR_AGAIN_AFTER
            if is_due:
                self._at[key] = now
        return is_due


_cleared = _Cleared()


def clear_abandoned(folder: str) -> None:
    """Delete temporary files that killed runs left half written in a folder. Files that cannot be deleted stay."""
    if not _cleared.is_due(folder):
        return
    latest = time.time() - ABANDONED_AFTER
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            with contextlib.suppress(OSError):
                if old_temporary(entry.path, latest) and not may_be_data_file(entry.path):
                    os.unlink(entry.path)
