"""The recorded state of a sidecar after a build: what it is complete for, and the columns that were left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.bundle.runs import LAYOUT, BuiltColumn, IndexOfField, SidecarState, intact_state_of
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.indexing.declaration import ColumnDeclaration

if TYPE_CHECKING:
    from sidecar.indexing.preparing import PreparedBuild


def mapping_digest(table: Table) -> str:
    """Return a digest of the table's name mapping, 16 hexadecimal digits; empty without one."""
    mapping = name_mapping_of(table)
    return "" if mapping is None else hashlib.sha256(mapping.model_dump_json().encode()).hexdigest()[:16]


def is_complete(table: Table, state: SidecarState, declared: Sequence[ColumnDeclaration]) -> bool:
    """Return whether a sidecar has all that is declared, in all files of the snapshot that it is registered for.

    It is not complete either if it has columns that the table has dropped, or blobs of another version.
    """
    schema = table.schema()
    if (state.mapping, state.layout) != (mapping_digest(table), LAYOUT) or not schema.field_ids >= state.columns.keys():
        return False
    return all(_is_built(state.columns.get(one.column.field_id), one) for one in declared)


def state_after(prepared: PreparedBuild, indexed: Collection[int]) -> tuple[SidecarState, dict[str, int]]:
    """Return the state after a build that has indexed the files with these ordinals.

    The dict has, by column, how many files lack indexes that the build was not asked for.
    """
    earlier, plan, schema = prepared.earlier, prepared.plan, prepared.table.schema()
    declared = {one.column.field_id: one for one in prepared.declared}
    types = {column.field_id: column.type for column in plan.columns}
    old = None if earlier.found is None else intact_state_of(earlier.found.sidecar.puffin.metadata.properties)
    columns: dict[int, BuiltColumn] = {}
    behind: dict[str, int] = {}
    files = [file.ordinal for file in prepared.listing.files if file.not_indexable is None]
    new = earlier.served | set(indexed)
    for field_id in sorted((prepared.built.keys() | declared.keys()) & schema.field_ids):
        one, built = declared.get(field_id), prepared.built.get(field_id)
        requested = () if one is None else one.kinds
        others = [kind for kind in (built.kinds if built else ()) if kind not in requested]
        without = {kind: earlier.without(files, field_id, kind) for kind in (*requested, *others)}
        if late := set[int]().union(*(without[kind] for kind in others)):
            behind[schema.find_column_name(field_id) or f"field {field_id}"] = len(late)
        for kind in requested:
            without[kind] -= new
        before = None if old is None else old.columns.get(field_id)
        columns[field_id] = BuiltColumn(
            type=types.get(field_id) or (before.type if before else str(schema.find_type(field_id))),
            kinds=(*requested, *others),
            fpp=one.fpp if one is not None else built.fpp if built is not None else "auto",
            left={kind: len(lacking) for kind, lacking in without.items() if lacking},
        )
    state = SidecarState(prepared.listing.snapshot_id, mapping_digest(prepared.table), columns, LAYOUT)
    return state, behind


def rates_apart(prepared: PreparedBuild, state: SidecarState) -> dict[int, float]:
    """Return the rates that filters are asked for, by field id, if others must not be merged with these.

    A refresh merges all rates of a column of which no file lacks a filter. ``state`` is that after the build.
    """
    rates = prepared.plan.fixed_rates()
    if prepared.request.merge_up_to is None:
        return rates
    return {i: rate for i, rate in rates.items() if i not in state.columns or state.columns[i].left.get(BLOOM)}


def joined_state(
    own: SidecarState, others: Iterable[SidecarState], live_fields: set[int], requested: Collection[IndexOfField] = ()
) -> SidecarState:
    """Return the state of a file that has the indexes of ``own``, and those of ``others`` for the same snapshot.

    ``live_fields`` are the columns that the table still has. The build of ``own`` has made the indexes in ``requested``
    itself; others are carried over from both files.
    """
    columns = dict(own.columns)
    for other in others:
        for field_id, column in other.columns.items():
            if field_id in live_fields:
                before = columns.get(field_id)
                made = {kind for i, kind in requested if i == field_id}
                columns[field_id] = column if before is None else _joined(before, column, made)
    return replace(own, columns=columns)


def _joined(own: BuiltColumn, other: BuiltColumn, made: Collection[str]) -> BuiltColumn:
    """Join the states of one column. The kinds in ``made`` are as ``own`` has them."""
    left = dict(own.left)
    for kind in set(other.kinds).difference(made):
        found = other.left.get(kind, 0)
        left[kind] = min(found, own.left.get(kind, 0)) if kind in own.kinds else found
    is_older = BLOOM not in own.kinds or other.left.get(BLOOM, 0) < own.left.get(BLOOM, 0)
    takes_rate = BLOOM in other.kinds and BLOOM not in made and is_older
    return replace(
        own,
        kinds=(*own.kinds, *(kind for kind in other.kinds if kind not in own.kinds)),
        fpp=other.fpp if takes_rate else own.fpp,
        left={kind: count for kind, count in left.items() if count},
    )


def _is_built(built: BuiltColumn | None, one: ColumnDeclaration) -> bool:
    if built is None or built.type != one.column.type or any(built.left.get(kind) for kind in one.kinds):
        return False
    return set(built.kinds) >= set(one.kinds) and one.fpp in ("auto", built.fpp)
