"""Reads and writes what a table declares, in its properties: columns, kinds and rates of its indexes.

    sidecar.columns             the columns, names with field ids: user_id:3,mail:7
    sidecar.kinds               bloom,theta
    sidecar.fpp                 auto, or a rate
    sidecar.column.<id>.kinds   the same for one column
    sidecar.column.<id>.fpp

A field id wins over the name before it. So it follows a renamed column, and a column that is added again under an
old name inherits nothing. A name without an id, as somebody may have typed it, is the column of that name; it does not
follow a rename. In a name, ``%``, ``,`` and ``:`` are written as ``%25``, ``%2C`` and ``%3A``.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, NoReturn, TypeAlias, cast

from pyiceberg.exceptions import CommitFailedException
from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.types import PrimitiveType

from sidecar.bundle.kinds.declared import BUILT_KINDS, THETA, USUAL_KINDS, BuildKind
from sidecar.bundle.runs import SidecarState, intact_state_of
from sidecar.errors import CommitConflictError, UsageError
from sidecar.failpoints import hit
from sidecar.filters.sizing import check_fpp
from sidecar.iceberg.catalog import command_for, reload_table, show_commit, storage_error
from sidecar.iceberg.resolve import TableColumn, decoded_name, encoded_name, resolve_columns
from sidecar.iceberg.statistics_files.registered_counts import reads_right
from sidecar.iceberg.table_names import name_of

if TYPE_CHECKING:
    from sidecar.bundle.sidecar_file import SidecarFile

Rate: TypeAlias = float | Literal["auto"]
"""A false-positive rate that is asked for."""

COLUMNS = "sidecar.columns"
KINDS_PROPERTY = "sidecar.kinds"
FPP = "sidecar.fpp"
OF_COLUMN = re.compile(r"sidecar\.column\.(\d{1,9})\.(kinds|fpp)", re.ASCII)
_ID = re.compile(r"\d{1,9}", re.ASCII)
ATTEMPTS = 6


class NothingDeclaredError(UsageError):
    """No column was named, the table declares none, and there is no sidecar to take them from."""


@dataclass(frozen=True)
class ColumnDeclaration:
    """A column of the table, and the indexes that it is to have."""

    column: TableColumn
    kinds: tuple[BuildKind, ...]
    fpp: Rate
    is_kind_named: bool | None = None
    """Whether somebody has named the kinds; ``None`` if columns are not named either, so that what was chosen earlier
    stays."""

    @property
    def is_count_registered(self) -> bool | None:
        """Whether the table's metadata is to name the distinct count; ``None``: as it does now."""
        if THETA not in self.kinds:
            return None
        return reads_right(self.column.type) or self.is_kind_named


@dataclass(frozen=True)
class BuiltIndexes:
    """The indexes that a sidecar has of a column, and the rate that was asked for."""

    kinds: tuple[BuildKind, ...]
    fpp: Rate


@dataclass(frozen=True)
class DeclaredColumn:
    """A column as ``sidecar.columns`` names it; without ``field_id`` the name counts."""

    name: str
    field_id: int | None = None


@dataclass(frozen=True)
class TableDeclaration:
    """The declaration of a table. ``None`` and an empty ``columns`` mean: not declared.

    ``own_kinds`` and ``own_fpp`` are those of single columns, by field id.
    """

    columns: tuple[DeclaredColumn, ...] = ()
    kinds: tuple[BuildKind, ...] | None = None
    fpp: Rate | None = None
    own_kinds: Mapping[int, tuple[BuildKind, ...]] | None = None
    own_fpp: Mapping[int, Rate] | None = None

    def kinds_of(self, field_id: int) -> tuple[BuildKind, ...] | None:
        """Return the declared kinds of a column, ``None`` if none are declared."""
        return (self.own_kinds or {}).get(field_id, self.kinds)

    def fpp_of(self, field_id: int) -> Rate | None:
        """Return the declared rate of a column, ``None`` if none is declared."""
        return (self.own_fpp or {}).get(field_id, self.fpp)

    def to_properties(self) -> dict[str, str]:
        """Return the properties of the table that hold the declaration."""
        found = {}
        if self.columns:
            found[COLUMNS] = ",".join(map(_entry_text, self.columns))
        if self.kinds is not None:
            found[KINDS_PROPERTY] = ",".join(self.kinds)
        if self.fpp is not None:
            found[FPP] = str(self.fpp)
        found |= {f"sidecar.column.{i}.kinds": ",".join(kinds) for i, kinds in (self.own_kinds or {}).items()}
        return found | {f"sidecar.column.{i}.fpp": str(fpp) for i, fpp in (self.own_fpp or {}).items()}


def declared_by(table: Table) -> TableDeclaration:
    """Return what a table declares. Raises :class:`UsageError` that names a property that makes no sense."""
    try:
        return declaration_of(table.properties)
    except UsageError as error:
        error.hint = f"Set it anew: {_saving(table)}"
        raise


def _saving(table: Table) -> str:
    """Return the command that declares columns of a table."""
    return command_for(table, "build", "--columns", "A,B", "--save")


def declaration_of(properties: Mapping[str, str]) -> TableDeclaration:
    """Return what properties of a table declare. Raises :class:`UsageError` that names one that makes no sense."""
    own = {(int(match[1]), match[2]): name for name in properties if (match := OF_COLUMN.fullmatch(name))}
    kinds = {i: _kinds(name, properties[name]) for (i, what), name in own.items() if what == "kinds"}
    rates = {i: _rate(name, properties[name]) for (i, what), name in own.items() if what == "fpp"}
    return TableDeclaration(
        columns=_columns(properties[COLUMNS]) if COLUMNS in properties else (),
        kinds=_kinds(KINDS_PROPERTY, properties[KINDS_PROPERTY]) if KINDS_PROPERTY in properties else None,
        fpp=_rate(FPP, properties[FPP]) if FPP in properties else None,
        own_kinds=kinds or None,
        own_fpp=rates or None,
    )


def declarations_of(
    table: Table,
    schema: Schema,
    columns: Sequence[str] | None,
    kinds: Sequence[BuildKind] | None,
    fpp: Rate | None,
    built: Mapping[int, BuiltIndexes],
) -> tuple[list[ColumnDeclaration], list[str]]:
    """Return the indexes that a build is to make, and notes for people.

    What the caller gives wins over what the table declares. Without ``columns`` these are the declared ones, else
    those that were ``built`` by now; columns that ``schema`` no longer has are left out. Raises :class:`UsageError` for
    unknown columns and for a damaged property, and :class:`NothingDeclaredError` if there is no column at all. A name
    that is declared without an id and is unknown is a note, and an error only if no declared column is left.
    """
    declared, notes = declared_by(table), list[str]()
    kept: Mapping[int, BuiltIndexes] = {}
    if columns is not None:
        found = resolve_columns(schema, columns)
    elif declared.columns:
        found = _declared_columns(declared.columns, table, schema, notes)
    else:
        found, kept = [column for i in sorted(built) if (column := _live_column(i, schema)) is not None], built
    if not found:
        raise NothingDeclaredError(
            f"no column of the table '{name_of(table)}' is to be indexed",
            found=notes[0] if notes else None,
            hint=f"Name columns, and declare them for later: {_saving(table)}",
        )
    own = list[ColumnDeclaration]()
    for column in found:
        before = kept.get(column.field_id, BuiltIndexes(USUAL_KINDS, "auto"))
        rate = fpp if fpp is not None else declared.fpp_of(column.field_id) or before.fpp
        named = kinds or declared.kinds_of(column.field_id)
        is_named = True if named else None if columns is None else False
        own.append(ColumnDeclaration(column, tuple(named or before.kinds), rate, is_named))
    return own, notes


def built_indexes(sidecar: SidecarFile) -> dict[int, BuiltIndexes]:
    """Return what a sidecar has of each column, by field id: as its state says, else by its coverage."""
    state = intact_state_of(sidecar.puffin.metadata.properties)
    if state is not None:
        return indexes_in(state)
    found: dict[int, set[str]] = {}
    for field_id, kind in sidecar.recorded:
        found.setdefault(field_id, set()).add(kind)
    return {i: BuiltIndexes(tuple(kind for kind in BUILT_KINDS if kind in kinds), "auto") for i, kinds in found.items()}


def indexes_in(state: SidecarState) -> dict[int, BuiltIndexes]:
    """Return what a sidecar has of each column, by field id, as its state says."""
    return {
        i: BuiltIndexes(tuple(kind for kind in BUILT_KINDS if kind in built.kinds), cast("Rate", built.fpp))
        for i, built in state.columns.items()
    }


def declared_as(declared: Sequence[ColumnDeclaration]) -> TableDeclaration:
    """Return these declarations as that of a table: what most columns share, and what single columns have of their own.

    Kinds that nobody has named are not declared: of these, not all distinct counts are registered.
    """
    first = declared[0]
    kinds, fpp = first.kinds, first.fpp
    is_usual = all(one.kinds == USUAL_KINDS and not one.is_kind_named for one in declared)
    return TableDeclaration(
        columns=tuple(DeclaredColumn(one.column.path, one.column.field_id) for one in declared),
        kinds=None if is_usual else kinds,
        fpp=fpp,
        own_kinds={one.column.field_id: one.kinds for one in declared if one.kinds != kinds},
        own_fpp={one.column.field_id: one.fpp for one in declared if one.fpp != fpp},
    )


def save_declaration(table: Table, declaration: TableDeclaration) -> None:
    """Make this the declaration of ``table``: a commit of properties only, after which ``table`` is refreshed.

    Other properties stay, and nothing is committed if the table declares the same already. Raises
    :class:`CommitConflictError` if other commits interfere each time, and :class:`sidecar.errors.StorageError` if the
    catalog fails.
    """
    wanted = declaration.to_properties()
    for _ in range(ATTEMPTS):
        now = reload_table(table)
        present = {name: text for name, text in now.properties.items() if _is_declaration(name)}
        if present == wanted:
            break
        hit("declare: commit")
        try:
            with now.transaction() as transaction:
                transaction.set_properties(wanted)
                if gone := sorted(present.keys() - wanted):
                    transaction.remove_properties(*gone)
        except CommitFailedException:
            continue
        except Exception as error:
            raise storage_error("the properties of the table could not be set", error, now, None) from error
        break
    else:
        raise CommitConflictError(f"other commits interfered with all {ATTEMPTS} attempts", hint="Try again.")
    show_commit(table, now)


def _is_declaration(name: str) -> bool:
    return name in (COLUMNS, KINDS_PROPERTY, FPP) or OF_COLUMN.fullmatch(name) is not None


def _declared_columns(
    declared: Iterable[DeclaredColumn], table: Table, schema: Schema, notes: list[str]
) -> list[TableColumn]:
    """Return the declared columns that the schema has, each once. The others become notes.

    Raises :class:`UsageError` if no column is left, and some of the declared names are unknown.
    """
    found: dict[int, TableColumn] = {}
    unknown: list[UsageError] = []
    for one in declared:
        if one.field_id is None:
            try:
                (live,) = resolve_columns(schema, [one.name])
            except UsageError as error:
                unknown.append(_unknown_name(one.name, table, schema, error))
                continue
        elif (column := _live_column(one.field_id, schema)) is not None:
            live = column
            if one.name != live.path and one.name not in _names_of(one.field_id, table):
                notes.append(
                    f"the table property {COLUMNS} names field {one.field_id} '{one.name}', and it is '{live.path}': "
                    "the field id counts"
                )
        else:
            notes.append(f"the declared column '{one.name}' (field {one.field_id}) is gone: nothing is indexed for it")
            continue
        found.setdefault(live.field_id, live)
    if unknown and not found:
        raise unknown[0]
    notes += [f"{error.what}: nothing is indexed for it. {error.hint}" for error in unknown]
    return list(found.values())


def _unknown_name(name: str, table: Table, schema: Schema, error: UsageError) -> UsageError:
    """Return the error for a declared name without a field id that ``schema`` does not have as a primitive column."""
    earlier = (old.find_field(name).field_id for old in table.schemas().values() if name in old.column_names)
    live = next((column for i in earlier if (column := _live_column(i, schema)) is not None), None)
    how = error.hint or ""
    if live is not None:
        written = _entry_text(DeclaredColumn(live.path, live.field_id))
        how = f"It is '{live.path}' now, and only a field id follows a rename: write {written} instead."
    what = f"the table property {COLUMNS} is wrong: {error.what}"
    return UsageError(what, hint=f"{how} Or declare all columns anew: {_saving(table)}".strip())


def _names_of(field_id: int, table: Table) -> set[str | None]:
    """Return the names that a column has, or had before a rename."""
    return {old.find_column_name(field_id) for old in table.schemas().values()}


def _live_column(field_id: int, schema: Schema) -> TableColumn | None:
    """Return the primitive column of a schema with this id, ``None`` if there is none."""
    if field_id not in schema.field_ids:
        return None
    kind, name = schema.find_type(field_id), schema.find_column_name(field_id)
    return TableColumn(field_id, str(kind), name) if isinstance(kind, PrimitiveType) and name else None


def _entry_text(column: DeclaredColumn) -> str:
    name = encoded_name(column.name)
    return name if column.field_id is None else f"{name}:{column.field_id}"


def _columns(text: str) -> tuple[DeclaredColumn, ...]:
    found = []
    for part in map(str.strip, text.split(",")):
        name, colon, field_id = part.partition(":")
        if not name or (colon and not _ID.fullmatch(field_id)):
            _refuse(COLUMNS, part or text, "names with field ids, such as user_id:3,mail:7")
        found.append(DeclaredColumn(decoded_name(name), int(field_id) if colon else None))
    with_ids = {one for one in found if one.field_id is not None}
    if len({one.field_id for one in with_ids}) < len(with_ids):
        _refuse(COLUMNS, text, "one name for each field id")
    return tuple(found)


def _kinds(name: str, text: str) -> tuple[BuildKind, ...]:
    found = dict.fromkeys(filter(None, map(str.strip, text.split(","))))
    if not found or not found.keys() <= set(BUILT_KINDS):
        _refuse(name, text, f"some of {', '.join(BUILT_KINDS)}")
    return tuple(cast("BuildKind", kind) for kind in found)


def _rate(name: str, text: str) -> Rate:
    if text.strip() == "auto":
        return "auto"
    try:
        return check_fpp(float(text))
    except (ValueError, UsageError):
        _refuse(name, text, "auto, or a rate between 0 and 1 such as 0.01")


def _refuse(name: str, text: str, expected: str) -> NoReturn:
    raise UsageError(
        f"the table property {name} makes no sense",
        expected=expected,
        found=repr(text[:80]),
    )
