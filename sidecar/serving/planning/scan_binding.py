"""Decides which columns the names of a request mean.

A snapshot can be read under two schemas: its own and the table's present one. Spark pins the snapshot and asks to use
its schema, but names columns as in the present schema unless the query travels in time. A client that keeps tables for
a while, or asks for a later page of a plan, can have a schema between these two. The request does not say which. So the
names are looked up in all schemas. If they mean different columns, the scan is planned for each meaning and the files
of all plans are returned.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot

from sidecar.iceberg.refs import schema_at, unreadable_field, with_schema
from sidecar.serving.protocol.filters import FieldsOfNames, ParsedFilter, fields_of, parse_filter
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
    return schema_at(table, snapshot.snapshot_id), present


def bindings_of(table: Table, snapshot: Snapshot, asked: PlanRequest) -> list[ScanBinding]:
    """Return the meanings of a request for a snapshot of ``table``: one mostly."""
    own_schema, present_schema = schemas_of(table, snapshot)
    present = parse_filter(asked.filter, present_schema, asked.case_sensitive)
    if own_schema.schema_id == present_schema.schema_id:
        return [ScanBinding(table, present)]
    names = [name for name, _ in present.fields]
    meanings = {present.fields: ScanBinding(table, present)}
    for schema in (own_schema, *table.schemas().values()):
        fields = fields_of(names, schema, asked.case_sensitive)
        if fields not in meanings and (schema is own_schema or _are_complete(fields)):
            parsed = parse_filter(asked.filter, schema, asked.case_sensitive)
            meanings[fields] = ScanBinding(with_schema(table, schema.schema_id), parsed)
    if unreadable_field(present_schema, own_schema) is not None:
        # The table was replaced, and column ids have other types now. Only names that mean the same are certain.
        is_certain = len(meanings) == 1
        own = parse_filter(asked.filter, own_schema, asked.case_sensitive)
        older = with_schema(table, own_schema.schema_id)
        return [ScanBinding(older, own if is_certain else ParsedFilter(AlwaysTrue(), False))]
    return [meanings[fields] for fields in meanings if _are_complete(fields)] or [*meanings.values()]


def _are_complete(fields: FieldsOfNames) -> bool:
    return all(field_id is not None for _, field_id in fields)
