"""Decides which columns the names of a request mean.

A snapshot can be read under two schemas: its own and the table's present one. Spark pins the snapshot and asks to use
its schema, but names columns as in the present schema unless the query travels in time. The request does not say
which. So the names are looked up in both schemas. If they mean different columns, the scan is planned for each meaning
and the files of both plans are returned.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.iceberg.refs import as_it_was, with_schema
from sidecar.serving.protocol.filters import ParsedFilter, parse_filter
from sidecar.serving.protocol.requests import PlanRequest


@dataclass(frozen=True)
class ScanBinding:
    """One meaning of a request: the table with the schema that the names are of, and the filter."""

    table: Table
    filter: ParsedFilter


def without_catalog(table: Table) -> Table:
    """Return a table whose scans are never planned by its catalog: that could be this server."""
    changed = copy.copy(table)
    changed.catalog = None  # type: ignore[assignment]
    return changed


def schemas_of(table: Table, snapshot: Snapshot) -> tuple[Schema, Schema]:
    """Return the snapshot's own schema and the table's present one, which can be the same."""
    present = table.schema()
    own = None if snapshot.schema_id is None else table.schemas().get(snapshot.schema_id)
    return own or present, present


def bindings_of(table: Table, snapshot: Snapshot, asked: PlanRequest) -> list[ScanBinding]:
    """Return the meanings of a request for a snapshot of ``table``: one mostly, at most two."""
    own_schema, present_schema = schemas_of(table, snapshot)
    own = parse_filter(asked.filter, own_schema, asked.case_sensitive)
    if own_schema.schema_id == present_schema.schema_id:
        return [ScanBinding(table, own)]
    present = parse_filter(asked.filter, present_schema, asked.case_sensitive)
    older = with_schema(table, own_schema.schema_id)
    if as_it_was(table, snapshot.snapshot_id) is not table:
        # The table was replaced, and column ids have other types now. Only names that mean the same are certain.
        return [ScanBinding(older, own if own.fields == present.fields else ParsedFilter(AlwaysTrue(), False))]
    if own.fields == present.fields:
        return [ScanBinding(table, present)]
    known = [binding for binding in (ScanBinding(older, own), ScanBinding(table, present)) if _is_complete(binding)]
    return known or [ScanBinding(older, own), ScanBinding(table, present)]


def _is_complete(binding: ScanBinding) -> bool:
    return all(field_id is not None for _, field_id in binding.filter.fields)
