"""Plans of one table by every way to find its files, compared with pyiceberg's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from pyiceberg.manifest import DATA_FILE_TYPE, DataFile
from pyiceberg.table import FileScanTask, Table

import sidecar
from sidecar.planning.files import cheapest
from sidecar.planning.files.choose import FileChooser
from sidecar.planning.plan import Plan
from sidecar.planning.planner import plan


def build(table: Table, columns: list[str]) -> Table:
    sidecar.build(table, columns, kinds=["bloom"], engine="local")
    return table.refresh()


def file_values(file: DataFile) -> Any:
    """A file field by field, without those of version 3: pyiceberg compares paths alone, and reads version 2."""
    fields = file._data[: len(DATA_FILE_TYPE[2].fields)]
    parts = (dict(part) if hasattr(part, "items") else repr(part) for part in fields)
    return (*parts, file.spec_id)


def task_values(task: FileScanTask) -> Any:
    deletes = sorted((file_values(file) for file in task.delete_files), key=repr)
    return file_values(task.file), deletes, repr(task.residual)


@contextmanager
def way(**settings: Any) -> Iterator[None]:
    """Other costs, so that small tables are planned as large ones are."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in settings.items():
            patch.setattr(cheapest, name, value)
        if settings:
            patch.setattr(cheapest, "columns_are_cheaper", lambda *_: True)
        yield


WAYS: list[dict[str, Any]] = [
    {},
    {"FEW": 0, "BROAD": 0},
    {"FEW": 0, "BROAD": 0, "OPENING": 0.0},
    {"FEW": 0, "BROAD": 0, "WALKED": 0},
]
"""Records first; filters, then bounds; then manifests of which much is left are opened, or all records are walked."""


def assert_same_tasks(table: Table, text: str, snapshot_id: int | None = None) -> list[Plan]:
    """All ways keep the same files, and their tasks are pyiceberg's, in its order."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FileChooser, "_listed", lambda self, index, lines, manifests: [])
        usual = plan(table, text, at=snapshot_id)
    theirs = list(table.scan(row_filter=usual.row_filter, snapshot_id=snapshot_id).plan_files())
    found = []
    for settings in WAYS:
        with way(**settings):
            planned = plan(table, text, at=snapshot_id)
        assert planned.warnings == ()
        assert planned.kept_files == usual.kept_files, text
        assert planned.funnel.kept == len(planned.tasks)
        assert planned.files_total == usual.files_total
        kept = set(planned.kept_files)
        expected = [task_values(task) for task in theirs if task.file.file_path in kept]
        assert [task_values(task) for task in planned.tasks] == expected, text
        found.append(planned)
    return found
