"""Decides which columns the names of a request mean.

A snapshot can be read under two schemas: its own and the table's present one. Spark pins the snapshot and asks to use
its schema, but names columns as in the present schema unless the query travels in time. A client that keeps tables for
a while, or asks for a later page of a plan, can have any other schema: pyiceberg names no snapshot, so it gets files
that are younger than what it knows of the table. The request does not say which schema it is. So the names are looked
up in all schemas. If they mean different columns, the scan is planned for each meaning and the files of all plans are
returned.
"""

from __future__ import annotations

import copy
from dataclasses import dataclass

from pyiceberg.expressions import AlwaysTrue
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.types import NestedField

from sidecar.iceberg.refs import schema_at, unreadable_field, with_schema
from sidecar.serving.protocol.filters import FieldsOfNames, ParsedFilter, fields_of, forms_of, parse_filter
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


def bindings_of(
    table: Table, snapshot: Snapshot, question: PlanRequest, *, only_hex: bool = False
) -> list[ScanBinding]:
    """Return the ways to read a request for a snapshot of ``table``; nearly always one.

    ``only_hex`` is that of :func:`sidecar.serving.protocol.filters.parse_filter`.
    """
    own_schema, present_schema = schemas_of(table, snapshot)

    def parsed(schema: Schema) -> ParsedFilter:
        return parse_filter(question.filter, schema, question.case_sensitive, only_hex=only_hex)

    present = parsed(present_schema)
    names = [name for name, _ in present.fields]
    lowered = [name.lower() for name in names]
    roots = {name[:end] for name in lowered for end, mark in enumerate(f"{name}.") if mark == "."}
    fields_now = _top_fields(present_schema, roots)
    meanings = {present.fields: ScanBinding(table, present)}
    for schema in (own_schema, *table.schemas().values()):
        if _top_fields(schema, roots) == fields_now:
            continue
        fields = fields_of(names, schema, question.case_sensitive)
        if fields not in meanings and (schema is own_schema or _are_complete(fields)):
            meanings[fields] = ScanBinding(with_schema(table, schema.schema_id), parsed(schema))
    if unreadable_field(present_schema, own_schema) is not None:
        # The table was replaced, and column ids have other types now. Only names that mean the same are certain.
        is_certain = len(meanings) == 1
        older = with_schema(table, own_schema.schema_id)
        uncertain = ParsedFilter(AlwaysTrue(), forms_of(question.filter))
        return [ScanBinding(older, parsed(own_schema) if is_certain else uncertain)]
    return [meanings[fields] for fields in meanings if _are_complete(fields)] or [*meanings.values()]


def _top_fields(schema: Schema, names: set[str]) -> list[NestedField]:
    """Return the top fields that have one of ``names`` in small letters. Where these are equal, all below is."""
    return [field for field in schema.fields if field.name.lower() in names]


def _are_complete(fields: FieldsOfNames) -> bool:
    return all(field_id is not None for _, field_id in fields)
