"""Operations on one prepared table, and what must be true of the table whatever became of an operation.

A new operation is a line in :data:`OPERATIONS`. The table of :func:`prepare` has something to do for each of them.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg.statistics_files.registering import unregister
from tests.maintenance.cases import (
    append_and_build,
    entries,
    make,
    metadata_folder,
    others_file,
    pass_days,
    register_others,
    rows,
    stored,
)
from tests.object_store import FolderIO, open_store

NOW = timedelta(0)


class Operation(NamedTuple):
    """What is done to the table, and whether nothing of it is left to do."""

    run: Callable[[Table], object]
    is_done: Callable[[Table], bool]


OPERATIONS = {
    "build": Operation(
        lambda t: sidecar.build(t, ["k"], engine="local", save=True),
        lambda t: is_covered(t) and t.properties.get("sidecar.columns") == "k:1",
    ),
    "refresh": Operation(lambda t: sidecar.refresh(t, engine="local"), lambda t: is_covered(t)),
    "embed": Operation(lambda t: embed(t), lambda t: has_filters(t) and is_covered(t)),
    "expire": Operation(lambda t: sidecar.expire(t, older_than=NOW), lambda t: not to_expire(t)),
    "gc": Operation(lambda t: sidecar.gc(t), lambda t: not garbage(t)),
}


def embed(table: Table) -> Any:
    """One thread, so that the steps have one order."""
    return sidecar.embed(table, bloom=["k"], threads=1)


def has_filters(table: Table) -> bool:
    """Whether every data file is one that embedding has written."""
    return all("-sidecar-" in task.file.file_path for task in table.refresh().scan().plan_files())


def is_covered(table: Table) -> bool:
    return "not listed in the sidecar" not in sidecar.plan(table.refresh(), "k = 2").funnel.kept_because


def to_expire(table: Table) -> list[Any]:
    return list(sidecar.expire(table.refresh(), older_than=NOW, dry_run=True).expired)


def garbage(table: Table) -> list[Any]:
    return list(sidecar.gc(table, dry_run=True).files)


def prepare(folder: Path, location: str | None = None) -> None:
    """A table that each operation has work in: four days old but for its head, which no sidecar lists.

    An old file of ours is not named any more, one entry is superseded, another one is of another writer. The table is
    in the store if no ``location`` is given.
    """
    table = make(folder, location=location)
    unregister(table, table.refresh().metadata.statistics)
    for n in (1, 2):
        append_and_build(table, n)
    table.append(rows(30))
    register_others(table)
    others_file(table, "1-of-others.stats")
    pass_days(table, 4)
    table.refresh().append(rows())


def copied(prepared: Path, folder: Path) -> Table:
    """The table in a copy of the store."""
    shutil.copytree(prepared, folder)
    return open_store(folder).load_table("db.t")


def check(folder: Path, name: str) -> None:
    """The table reads right, all its entries name files, others lost nothing, and the next run ends well."""
    table = open_store(folder).load_table("db.t")
    check_table(table)
    OPERATIONS[name].run(table)
    table.refresh()
    assert OPERATIONS[name].is_done(table), "the next run leaves nothing to do"
    check_files(table)


def check_table(table: Table) -> None:
    check_files(table)
    found = sidecar.scan(table, "k in (2, 7)").sort_by("k")
    assert found.equals(table.scan("k in (2, 7)").to_arrow().sort_by("k"))


def check_files(table: Table) -> None:
    named = set(entries(table).values())
    assert named <= stored(table), "an entry names a file that is gone"
    assert [path for path in named if path.endswith("theirs.stats")], "the entry of another writer is lost"
    assert (metadata_folder(table) / "1-of-others.stats").exists()


@contextmanager
def requests(answer: Callable[[str, str], object]) -> Iterator[None]:
    """The store and the catalog answer each request as ``answer`` does."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(FolderIO, "on_request", answer)
        yield
