"""Whether ``sidecar serve`` should plan a table's scans, by what lookups would gain: the statement that says so."""

from __future__ import annotations

from collections.abc import Sequence

from pyiceberg.table import Table

from sidecar.iceberg.find_sidecar import find_sidecar
from sidecar.reports.advising_report import AdvisedColumn
from sidecar.reports.advising_verdicts import filters_help
from sidecar.reports.advising_writers import identifier

SERVE = "sidecar.serve"
"""The table property that says ``true`` or ``false``: whether the server should plan scans of the table."""


def serving_statement(table: Table, columns: Sequence[AdvisedColumn], *, are_all: bool) -> str | None:
    """Return the statement after which the server leaves or takes the planning of a table; ``None`` if all is well.

    The server takes a table that has a sidecar. If no column deserves an index, engines plan it faster by themselves.
    A table that says so gets the statement that takes it back when a column deserves an index. ``are_all`` says
    whether all columns of the table were asked for: others could gain. So could a column that deserves no index by
    its type: its owner may look it up all the same.
    """
    said = table.properties.get(SERVE, "").lower()
    name = ".".join(map(identifier, table.name()))
    if any(column.kinds for column in columns):
        return f"ALTER TABLE {name} UNSET TBLPROPERTIES ('{SERVE}')" if said == "false" else None
    may_gain = not are_all or any(column.filters not in ("yes", "no") or filters_help(column) for column in columns)
    if said or may_gain or not _has_sidecar(table):
        return None
    return f"ALTER TABLE {name} SET TBLPROPERTIES ('{SERVE}'='false')"


def _has_sidecar(table: Table) -> bool:
    found = find_sidecar(table)
    if found is None:
        return False
    found.sidecar.close()
    return True
