"""The evidence of a search for values: what was asked, what was ruled out and by what, and what was found."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, fields, replace
from enum import Enum
from typing import Any, TypeVar

from sidecar.errors import SidecarError
from sidecar.results.base import Result


class FindAnswer(Enum):
    """What a search proves."""

    ABSENT = "absent"
    """No asked file has a row with the value, and everything could be asked."""
    FOUND = "found"
    """Some data file or delete file has the value, in live or deleted rows."""
    NOT_PROVEN = "not proven"
    """Nothing was found, but something could not be asked."""


@dataclass(frozen=True, repr=False, slots=True)
class SnapshotAsked(Result):
    """A snapshot whose files were asked."""

    snapshot_id: int
    """The id of the snapshot."""
    committed_at: str
    """When it was committed, ISO 8601 in UTC."""
    branches: list[str]
    """Branches that reach it: their head is the snapshot or a descendant of it."""
    tags: list[str]
    """Tags that name it or a descendant of it."""
    staged: bool
    """Whether no branch and no tag reaches it, as with a staged write or after a rollback."""
    data_files: int
    """Its live data files."""
    rows_live: int
    """Rows with one of the values that a reader of the snapshot sees."""
    rows_deleted: int
    """Rows with one of the values that are in its data files, but are deleted by position."""
    rows_in_doubt: int
    """Rows with one of the values that equality deletes, or deletes that cannot be read, may have deleted."""


@dataclass(frozen=True, repr=False, slots=True)
class ConditionAnswer(Result):
    """The answer for one ``COLUMN=VALUE``."""

    omitted_if_none = ("impossible",)

    column: str
    """The name of the column as it was asked for."""
    value: str
    """The value as it was asked for."""
    field_ids: list[int]
    """The columns that have, or had, the name."""
    answer: str
    """``absent``, ``found`` or ``not proven``."""
    files: int
    """Data files with such a row."""
    rows: int
    """Rows with the value in data files, live or deleted. A file that several snapshots share counts once."""
    delete_files: int
    """Equality-delete files that have the value themselves."""
    traces: int
    """Bounds in manifests and page indexes that are the value, or that may be a part of it."""
    impossible: str | None = None
    """Why no row can have the value: the column's type has no such value."""


@dataclass(frozen=True, repr=False, slots=True)
class RowsInSnapshot(Result):
    """The rows of one data file that have the value, as one snapshot shows them."""

    snapshot_id: int
    """The snapshot."""
    live: int
    """Rows that its readers see."""
    deleted: int
    """Rows that position deletes or a deletion vector of the snapshot delete. The data file still has them."""
    in_doubt: int
    """Rows that an equality delete file applies to, or whose deletes cannot be read."""
    equality_deletes: list[str]
    """Equality-delete files that may delete rows of the file."""


@dataclass(frozen=True, repr=False, slots=True)
class FileWithValue(Result):
    """A data file with rows that have one of the values."""

    file: str
    """The path of the data file."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    value: str
    """The value as it was asked for."""
    rows: int
    """The rows of the file that have the value, deleted ones included."""
    snapshots: list[RowsInSnapshot]
    """The asked snapshots that have the file, newest first; none for a file that no retained snapshot names."""


@dataclass(frozen=True, repr=False, slots=True)
class FileRead(Result):
    """A data file whose rows were read, because nothing proves that it has none of the values."""

    file: str
    """The path of the data file."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    because: str
    """Why the file was not ruled out."""
    rows: int
    """The rows with one of the values."""


@dataclass(frozen=True, repr=False, slots=True)
class FileRuledOut(Result):
    """A data file, or all files of a manifest, that have no row with any of the values."""

    omitted_if_none = ("index",)

    file: str
    """The path of the data file or of the manifest."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    by: str
    """What proves it."""
    files: int = 1
    """The number of data files: those of a manifest are counted together."""
    index: str | None = None
    """The path of the sidecar whose filter proves it."""


@dataclass(frozen=True, repr=False, slots=True)
class DeleteFileAsked(Result):
    """An equality-delete file of an asked snapshot. It has values of the rows that it deletes."""

    file: str
    """The path of the delete file."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    snapshots: list[int]
    """The asked snapshots that have it."""
    rows: dict[str, int]
    """Rows of the delete file by the value that they have, as it was asked for."""


@dataclass(frozen=True, repr=False, slots=True)
class ValueTrace(Result):
    """A bound or partition value that is the value, or may be the value cut short."""

    file: str
    """The file that has it: a manifest, a manifest list, a data file or a sidecar."""
    of: str
    """The data file or delete file that it describes; for a partition summary, the manifest."""
    kind: str
    """``manifest``, ``removed entry of a manifest``, ``partition``, ``partition summary``, ``row group statistics``,
    ``page index``, in ORC ``file statistics``, ``stripe statistics`` and ``row index``, ``file bounds in a sidecar`` or
    ``page index in a sidecar``."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    value: str
    """The value as it was asked for."""
    bound: str
    """``lower``, ``upper`` or ``both``."""
    cut: bool
    """Whether the bound is only the beginning of the value, as writers shorten long strings. It can come from another
    value with the same beginning."""


@dataclass(frozen=True, repr=False, slots=True)
class SidecarAsked(Result):
    """The answer of one sidecar file about the values of one column."""

    omitted_if_none = ("problem",)

    file: str
    """The path of the file."""
    registered_for: list[int]
    """The snapshots whose statistics file it is; empty for a file that is left over."""
    column: str
    """The name of the column as it was asked for."""
    field_id: int
    """The column."""
    files: int
    """The data files that it lists, also those that left the table."""
    admits: list[str]
    """Data files whose filter admits one of the values. A filter admits about one absent value in a hundred, so
    admitting proves nothing; excluding a value does."""
    sketch_has: list[str]
    """Values, as they were asked for, whose hash is in the column's sketch of distinct values."""
    problem: str | None = None
    """Why the file, or a part of it, could not be asked."""


@dataclass(frozen=True, repr=False, slots=True)
class NotAsked(Result):
    """Something that could not be asked and may have the value."""

    omitted_if_none = ("column",)

    what: str
    """``data file``, ``delete file``, ``manifest``, ``manifest list`` or ``column``."""
    file: str
    """Its path."""
    reason: str
    """Why it could not be asked."""
    column: str | None = None
    """The name of the column as it was asked for; ``None`` if it is about all columns."""


E = TypeVar("E", FileWithValue, FileRead, FileRuledOut, DeleteFileAsked, SidecarAsked)


def each_once(evidence: Iterable[E]) -> list[E]:
    """Return one piece of evidence for each file, column and value.

    A column that was promoted is asked for in each of its types, so that a file of several snapshots has several.
    """
    found: dict[tuple[object, ...], E] = {}
    for one in evidence:
        key = one.file, one.column, one.field_id, getattr(one, "value", None)
        found[key] = _joined(found[key], one) if key in found else one
    return list(found.values())


def _joined(one: E, other: E) -> E:
    """Return the parts of both: the greater counts, all items of lists, and texts of the first."""
    changes: dict[str, Any] = {}
    for part in fields(one):
        mine, its = getattr(one, part.name), getattr(other, part.name)
        if isinstance(mine, list):
            changes[part.name] = mine + [item for item in its if item not in mine]
        elif isinstance(mine, dict):
            changes[part.name] = its | mine
        elif isinstance(mine, int):
            changes[part.name] = max(mine, its)
        else:
            changes[part.name] = its if mine is None else mine
    return replace(one, **changes)


@dataclass(frozen=True, repr=False)
class FindReport(Result):
    """Which data files hold some values, with the evidence."""

    records_in = "files"

    table: str
    """The name of the table, or the paths of plain files as they were named."""
    table_uuid: str
    """The identity of the table; empty for plain files."""
    metadata_file: str
    """The version of the table's metadata that was asked; empty for plain files."""
    answer: str
    """``absent``, ``found`` or ``not proven``, for all conditions together: the first that holds of ``found``, ``not
    proven`` and ``absent``."""
    all_snapshots: bool
    """Whether every retained snapshot was asked."""
    read_all: bool
    """Whether every data file was read, whatever partitions, bounds and filters say."""
    orphans: int | None
    """The data files in the table's folders that no retained snapshot names; ``None`` if they were not looked for."""
    conditions: list[ConditionAnswer]
    """The answer for each ``COLUMN=VALUE``."""
    snapshots: list[SnapshotAsked]
    """The snapshots that were asked, newest first."""
    files: list[FileWithValue]
    """The data files with such rows."""
    files_ruled_out: list[FileRuledOut]
    """Data files that were not read, and why not."""
    files_read: list[FileRead]
    """Data files that were read, each once for a column."""
    equality_deletes: list[DeleteFileAsked]
    """The equality-delete files of the asked snapshots."""
    traces: list[ValueTrace]
    """Bounds and partition values that still name a value."""
    sidecars: list[SidecarAsked]
    """The sidecar files of the table, registered or left over in its metadata folder."""
    not_asked: list[NotAsked]
    """What could not be asked. If nothing was found, it makes the answer ``not proven``."""
    warnings: list[str]
    """What is wrong with sidecars, in words. It does not weaken the answer: files were read instead."""
    beyond: list[str]
    """What the answer does not cover, in words."""
    seconds: float
    """The time of the search in seconds."""

    @property
    def found(self) -> bool:
        """Whether some data file or delete file has one of the values."""
        return self.answer == FindAnswer.FOUND.value

    @property
    def proven_absent(self) -> bool:
        """Whether no asked file has any of the values, and everything could be asked."""
        return self.answer == FindAnswer.ABSENT.value

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the exit code of ``sidecar find``: 0 for ``absent``, 1 for ``found``, 3 for ``not proven``.

        With ``strict``, a trace counts as found, and a sidecar that could not be asked makes the answer unproven.
        """
        if self.found or (strict and self.traces):
            return 1
        unread = strict and any(one.problem for one in self.sidecars)
        return 0 if self.proven_absent and not unread else 3

    @property
    def ruled_out_by(self) -> Mapping[str, int]:
        """The number of data files that each kind of evidence ruled out, for all columns together."""
        counts: Counter[str] = Counter()
        for one in self.files_ruled_out:
            counts[one.by] += one.files
        return dict(counts)

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {
            "answer": self.answer,
            "files": self.files,
            "files_read": self.files_read,
            "snapshots": self.snapshots,
            "not_asked": self.not_asked,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return the attributes as plain data for JSON, with ``ruled_out_by``."""
        return {**Result.to_dict(self), "ruled_out_by": dict(self.ruled_out_by)}


@dataclass(frozen=True, repr=False)
class FoundInTables(Result):
    """What a search in many tables found: one document for all."""

    answer: str
    """``absent``, ``found`` or ``not proven``, for all tables together; a table with an error proves nothing."""
    tables: list[FindReport]
    """The tables that were asked."""
    failed: dict[str, SidecarError]
    """The others by name, with the error."""

    @classmethod
    def of(cls, tables: list[FindReport], failed: dict[str, SidecarError]) -> FoundInTables:
        """Put the answers together."""
        answers = {one.answer for one in tables} | ({FindAnswer.NOT_PROVEN.value} if failed else set())
        order = (FindAnswer.FOUND, FindAnswer.NOT_PROVEN, FindAnswer.ABSENT)
        return cls(next(one.value for one in order if one.value in answers), tables, failed)

    def exit_code(self, *, strict: bool = False) -> int:
        """Return the exit code of ``sidecar find``: that of a table with a value, else that of what is not proven."""
        codes = {one.exit_code(strict=strict) for one in self.tables} | ({3} if self.failed else set())
        return next(code for code in (1, 3, 0) if code in codes)
