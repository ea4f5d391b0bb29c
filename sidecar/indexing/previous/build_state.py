"""What a sidecar is complete for after a build: its recorded state, and the columns that were left behind."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyiceberg.table import Table

from sidecar.bundle.runs import BuiltColumn, SidecarState, intact_state_of
from sidecar.indexing.declaration import ColumnWish

if TYPE_CHECKING:
    from sidecar.indexing.preparing import PreparedBuild


@dataclass(frozen=True)
class BuildOutcome:
    """The state after a build, and by column how many files lack indexes that the build was not asked for."""

    state: SidecarState
    behind: dict[str, int]


def mapping_digest(table: Table) -> str:
    """Return a digest of the table's name mapping, 16 hexadecimal digits; empty without one."""
    mapping = table.name_mapping()
    return "" if mapping is None else hashlib.sha256(mapping.model_dump_json().encode()).hexdigest()[:16]


def is_complete(table: Table, state: SidecarState, wishes: Sequence[ColumnWish]) -> bool:
    """Return whether a sidecar has all that is wished for, in all files of the snapshot that it is registered for.

    It is not complete either if it has columns that the table has dropped.
    """
    schema = table.schema()
    if state.mapping != mapping_digest(table) or not schema.field_ids >= state.columns.keys():
        return False
    return all(_has(state.columns.get(wish.column.field_id), wish) for wish in wishes)


def outcome_of(prepared: PreparedBuild, indexed: Collection[int]) -> BuildOutcome:
    """Return the outcome of a build that has indexed the files with these ordinals."""
    earlier, plan, schema = prepared.earlier, prepared.plan, prepared.table.schema()
    wishes = {wish.column.field_id: wish for wish in prepared.wishes}
    types = {column.field_id: column.type for column in plan.columns}
    old = None if earlier.found is None else intact_state_of(earlier.found.sidecar.puffin.metadata.properties)
    columns: dict[int, BuiltColumn] = {}
    behind: dict[str, int] = {}
    files = [file.ordinal for file in prepared.listing.files if file.not_indexable is None]
    new = earlier.served | set(indexed)
    for field_id in sorted((prepared.built.keys() | wishes.keys()) & schema.field_ids):
        wish, built = wishes.get(field_id), prepared.built.get(field_id)
        asked = () if wish is None else wish.kinds
        others = [kind for kind in (built.kinds if built else ()) if kind not in asked]
        wanted = {(field_id, kind) for kind in others}
        without = {ordinal for ordinal in files if not wanted <= earlier.having.get(ordinal, set())}
        if without:
            behind[schema.find_column_name(field_id) or f"field {field_id}"] = len(without)
        if wish is not None:
            without |= {ordinal for ordinal in files if ordinal not in new}
        before = None if old is None else old.columns.get(field_id)
        columns[field_id] = BuiltColumn(
            type=types.get(field_id) or (before.type if before else str(schema.find_type(field_id))),
            kinds=(*asked, *others),
            fpp=wish.fpp if wish is not None else built.fpp if built is not None else "auto",
            left=len(without),
        )
    state = SidecarState(prepared.listing.snapshot_id, mapping_digest(prepared.table), columns)
    return BuildOutcome(state, behind)


def _has(built: BuiltColumn | None, wish: ColumnWish) -> bool:
    if built is None or built.left or built.type != wish.column.type:
        return False
    return set(built.kinds) >= set(wish.kinds) and wish.fpp in ("auto", built.fpp)
