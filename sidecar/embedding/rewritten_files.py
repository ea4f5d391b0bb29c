"""Writes the successors of a table's data files: the same pages, other filters and page indexes, a new path."""

from __future__ import annotations

import os
from collections.abc import Generator, Iterable, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from typing import NamedTuple

from pyiceberg.io import FileIO
from pyiceberg.schema import Schema
from pyiceberg.table.name_mapping import NameMapping

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.outcome import DICTIONARY, VALUES, IndexPlace, Outcome
from sidecar.conversion.reuse import FilterRules
from sidecar.crypto.key_material import material_path
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.embedding.file import NewIndexes, embed_parquet
from sidecar.embedding.key_files import copy_material, has_moved_prefix, material_of
from sidecar.embedding.table_report import LeftAlone
from sidecar.engines.work import WorkEngine
from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError, UsageError, reason_of
from sidecar.filters.leaf import Leaf
from sidecar.iceberg.listing import SnapshotFile
from sidecar.iceberg.replace import NewPaths
from sidecar.iceberg.resolve import ColumnsInFile, FoundColumn, TableColumn
from sidecar.iceberg.snapshot_producer import NewFile
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import Footer, read_footer
from sidecar.storage.locations import local_path
from sidecar.storage.remote import is_stored
from sidecar.storage.source import Source

NOTHING_NEW = "it already has all requested indexes, or cannot have them"


@dataclass(frozen=True)
class EmbeddedFields:
    """The table columns that get filters."""

    columns: tuple[TableColumn, ...]
    schema: Schema
    name_mapping: NameMapping | None


@dataclass(frozen=True)
class RewrittenFile:
    """A successor that is stored, and what became of each index in it."""

    file: NewFile
    outcomes: tuple[Outcome, ...]
    encrypted_filters: bool
    """Whether an encrypted column has a filter."""
    stored: tuple[str, ...]
    """The paths of the successor and of the key material next to it."""


class _LeftAloneError(Exception):
    """Raised with the reason why a file stays. It leaves the block of a target, so that nothing is published."""


class FileToRewrite(NamedTuple):
    """The facts of a manifest entry about a file that gets a successor."""

    path: str
    size: int
    """Length in bytes."""
    rows: int
    identity: Mapping[int, bool]
    """See :attr:`sidecar.iceberg.listing.SnapshotFile.identity`."""
    split_offsets: tuple[int, ...] | None


@dataclass(frozen=True)
class SuccessorWriter:
    """The work for one file: write its successor, under a path that no other try has."""

    access: Access
    new_paths: NewPaths
    fields: EmbeddedFields
    indexes: NewIndexes
    begun: list[str] = field(default_factory=list)
    """Paths of all files whose writing began in this process."""

    def __call__(self, file: FileToRewrite) -> RewrittenFile | LeftAlone:
        """Write the successor. Damage leaves only this file alone. Raises :class:`StorageError`."""
        stored: list[str] = []
        try:
            return self._write(file, stored)
        except BaseException:  # in another process the caller does not know the paths
            delete_files(self.access, stored)
            raise

    def _write(self, file: FileToRewrite, stored: list[str]) -> RewrittenFile | LeftAlone:
        try:
            with closing(self.access.open(file.path, file.size)) as source:
                return self._write_from(source, file, stored)
        except (
            DamagedFileError,
            UnsupportedFeatureError,
            UsageError,
        ) as error:  # usage: of keys that are missing
            return LeftAlone(file.path, reason_of(error), failed=True)
        except _LeftAloneError as error:
            return LeftAlone(file.path, str(error))

    def _write_from(self, source: Source, file: FileToRewrite, stored: list[str]) -> RewrittenFile:
        source = unlock(source, self.access.keys)
        footer = read_footer(source)
        _check(source, footer, file)
        leaves, absent = self._resolve(footer, file)
        rules = FilterRules(tuple(leaf.index for leaf in leaves), self.indexes.fpp, self.indexes.reuse)
        path = self.new_paths.path_for(file.path)
        self._check_prefix(footer, path)
        with self.access.create(self._begin(path, stored)) as target:
            report = embed_parquet(OpenParquet(source, footer), target, rules, self.indexes)
            if not any(_is_new(outcome) for outcome in report.outcomes):
                raise _LeftAloneError(NOTHING_NEW)
            self._copy_material(source, footer, path, stored)
        written = self._read_back(path, report.written.size, footer, file)
        return RewrittenFile(written, (*report.outcomes, *absent), report.encrypted_filters, tuple(stored))

    def _check_prefix(self, footer: Footer, path: str) -> None:
        """Leave a file alone if its AAD prefix, which a successor keeps, does not fit the new path."""
        if has_moved_prefix(footer, path, self.access.keys):
            raise _LeftAloneError("it keeps its AAD prefix, which does not match the new path")

    def _copy_material(self, source: Source, footer: Footer, path: str, stored: list[str]) -> None:
        """Copy the key material file, without which the successor could not be read."""
        if material_of(source, footer) is None:
            return
        self._begin(material_path(path), stored)
        try:
            copy_material(self.access, source, footer, path)
        except StorageError as error:
            raise _LeftAloneError(f"the key material next to it cannot be copied: {error.what}") from error

    def _begin(self, path: str, stored: list[str]) -> str:
        stored.append(path)
        self.begun.append(path)
        local = local_path(path)
        if local is not None:
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        return path

    def _resolve(self, footer: Footer, file: FileToRewrite) -> tuple[list[Leaf], list[Outcome]]:
        """Return the leaves that get filters, and an outcome for each column that the file lacks."""
        leaves: list[Leaf] = []
        absent: list[Outcome] = []
        columns = ColumnsInFile(footer.columns, self.fields.schema, self.fields.name_mapping, file.identity)
        for column in self.fields.columns:
            found = columns.find(column.field_id)
            if isinstance(found, FoundColumn):
                leaves.append(found.leaf)
            else:
                absent += [
                    IndexPlace(footer.name, group.ordinal, column.path, BLOOM).without_index(found.reason)
                    for group in footer.row_groups
                ]
        return leaves, absent

    def _read_back(self, path: str, size: int, before: Footer, file: FileToRewrite) -> NewFile:
        """Read the stored file again and return its entry for the commit. Raises StorageError if it differs."""
        with closing(self.access.open(path)) as stored:
            source = unlock(stored, self.access.keys)
            if source.size != size:
                raise StorageError("the new file was not stored whole", file=path, expected=size, found=source.size)
            after = read_footer(source)
        rows = [group.num_rows for group in before.row_groups]
        if [group.num_rows for group in after.row_groups] != rows:
            raise StorageError("the new file was not stored as it was written", file=path)
        return NewFile(path, size, _split_offsets(file, before, after))


class RewrittenFiles:
    """Has the successors of a table's files written, and remembers their paths."""

    def __init__(self, writer: SuccessorWriter, engine: WorkEngine) -> None:
        self._writer = writer
        self._engine = engine
        self._stored: list[str] = []

    def write_all(self, files: Sequence[SnapshotFile]) -> Generator[tuple[SnapshotFile, RewrittenFile | LeftAlone]]:
        """Write the successors of ``files``, and yield each in order. Raises the first :class:`StorageError`."""
        to_rewrite = [
            FileToRewrite(file.path, file.file_size, file.record_count, file.identity, _offsets(file)) for file in files
        ]
        answers = self._engine.run(self._writer, to_rewrite)
        try:
            for file, answer in zip(files, answers, strict=True):
                self._note(answer)
                if isinstance(answer, SidecarError):
                    raise answer
                yield file, answer
        finally:
            if self._engine.name == "spark":  # then all files were written before the first answer came
                for answer in answers:
                    self._note(answer)
            answers.close()

    def _note(self, answer: RewrittenFile | LeftAlone | SidecarError) -> None:
        if isinstance(answer, RewrittenFile):
            self._stored += answer.stored

    def delete_written(self) -> str | None:
        """Delete every successor. Return a sentence if some could not be deleted."""
        left = delete_files(self._writer.access, dict.fromkeys([*self._writer.begun, *self._stored]))
        if not left:
            return None
        return f"Nothing was replaced, but {len(left)} new files could not be deleted, such as {left[0]}: remove them."


def delete_files(access: Access, paths: Iterable[str]) -> list[str]:
    """Delete the files that exist, and return those that could not be deleted. ``access`` is that of a table."""
    left, io = [], access.io
    assert io is not None
    for path in paths:
        try:
            io.delete(path)
        except FileNotFoundError:
            continue
        except Exception:
            if _may_exist(io, path):
                left.append(path)
    return left


def _may_exist(io: FileIO, path: str) -> bool:
    """Return whether a file may exist. A store that refuses writes and deletes usually still answers this question."""
    try:
        return is_stored(path, io)
    except Exception:
        return True


def _offsets(file: SnapshotFile) -> tuple[int, ...] | None:
    offsets = file.data_file.split_offsets
    return None if offsets is None else tuple(offsets)


def _check(source: Source, footer: Footer, file: FileToRewrite) -> None:
    """Raise :class:`DamagedFileError` unless the file has the length and rows that its manifest entry says."""
    for what, expected, found in (
        ("length", file.size, source.size),
        ("number of rows", file.rows, footer.num_rows),
    ):
        if expected != found:
            raise DamagedFileError(
                f"the file's {what} differs from its manifest",
                file=file.path,
                expected=expected,
                found=found,
            )


def _is_new(outcome: Outcome) -> bool:
    """Return whether an index was built, or an unsound one was dropped."""
    return outcome.way in (DICTIONARY, VALUES) or outcome.dropped


def _split_offsets(file: FileToRewrite, before: Footer, after: Footer) -> tuple[int, ...] | None:
    """Return the split offsets of the new file: the row groups at which the old file's manifest entry splits.

    ``None`` if the old entry has none, or has an offset that is not the start of a column chunk.
    """
    offsets = file.split_offsets
    if offsets is None:
        return None
    moved = {
        old.start: new.start
        for group, successor in zip(before.row_groups, after.row_groups, strict=True)
        for old, new in zip(group.columns.stored, successor.columns.stored, strict=True)
    }
    if not moved.keys() >= set(offsets):
        return None
    return tuple(moved[offset] for offset in offsets)
