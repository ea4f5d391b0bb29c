"""Looks for data files that a snapshot names and the storage does not have: a scan that needs one fails.

Folders are listed, which costs a request for each thousand files, and no file is opened. Files in many folders are not
looked for.
"""

from __future__ import annotations

import os
from collections.abc import Sequence

from pyiceberg.table import Table

from sidecar.errors import SidecarError
from sidecar.iceberg.catalog import command_for
from sidecar.many_files.stored_files import list_stored_files
from sidecar.reports.status.results import NextStep
from sidecar.run_log import quantity
from sidecar.storage.locations import local_path
from sidecar.storage.remote import is_stored

MOST_FILES, MOST_FOLDERS = 10_000, 100
"""With more data files, or more folders of them, nothing is looked for."""
NAMED = 3
"""Files that the reason of a step names."""


def lost_files(table: Table, paths: Sequence[str]) -> list[str] | None:
    """Return those of a snapshot's data files that are not stored; ``None`` if nobody knows, or it would cost much."""
    folders: dict[str, list[str]] = {}
    for path in paths:
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    if len(paths) > MOST_FILES or len(folders) > MOST_FOLDERS:
        return None
    lost: list[str] = []
    try:
        for folder, own in folders.items():
            names = {file.name for file in list_stored_files(folder, table.io)}
            lost += [path for path in own if path[len(folder) + 1 :] not in names and not _is_there(path, table)]
    except SidecarError:
        return None
    except Exception:  # the storage answers nothing for one file
        return None
    return sorted(lost)


def _is_there(path: str, table: Table) -> bool:
    """Ask again for a file that a listing lacks: listings leave out files of some kinds."""
    local = local_path(path)
    return is_stored(path, table.io) if local is None else os.path.exists(local)


def steps_for_lost(table: Table, lost: Sequence[str] | None) -> list[NextStep]:
    """Return what to do about lost files, whose names it says."""
    if not lost:
        return []
    named = ", ".join(lost[:NAMED]) + (f" and {len(lost) - NAMED:,} more" if len(lost) > NAMED else "")
    verb = "is" if len(lost) == 1 else "are"
    why = f"{quantity(len(lost), 'data file')} {verb} lost: restore, or remove from the table, {named}"
    return [NextStep(why, command_for(table, "verify", "--data"))]
