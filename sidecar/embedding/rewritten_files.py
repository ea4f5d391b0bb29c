"""Writes the successors of a table's data files: the same pages, other filters and page indexes, a new path."""

from __future__ import annotations

import os
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping

from sidecar.convert.outcome import BLOOM, DICTIONARY, VALUES, Outcome
from sidecar.crypto.key_material import material_path
from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.file import EmbedOptions, embed_into
from sidecar.embedding.filters import FilterRules
from sidecar.embedding.key_files import copy_material, has_moved_prefix, material_of
from sidecar.embedding.table_report import LeftAlone
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.filters.leaf import Leaf
from sidecar.iceberg.listing import ListedFile
from sidecar.iceberg.replace import new_path
from sidecar.iceberg.resolve import FoundColumn, TableColumn, resolve_in_file
from sidecar.iceberg.snapshot_producer import NewFile
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.inspect import reason_of
from sidecar.source import Source, local_path, open_source
from sidecar.target import create_target

THREADS = 4
"""Threads that build indexes by default, at most. They are spread over several files, or work on one file."""
NOTHING_NEW = "it already has all requested indexes, or cannot have them"


@dataclass(frozen=True)
class EmbeddedFields:
    """The table columns that get filters. ``ndv`` has distinct values in a row group, by field id."""

    columns: tuple[TableColumn, ...]
    ndv: Mapping[int, int]
    schema: Schema
    name_mapping: NameMapping | None


@dataclass(frozen=True)
class RewrittenFile:
    """A successor that is stored, and what became of each index in it."""

    file: NewFile
    outcomes: tuple[Outcome, ...]
    encrypted_filters: bool = False
    """Whether an encrypted column has a filter."""


class _LeftAloneError(Exception):
    """Raised with the reason why a file stays. It leaves the block of a target, so that nothing is published."""


@dataclass
class RewrittenFiles:
    """Writes successors for the files of one table, and remembers their paths."""

    table: Table
    fields: EmbeddedFields
    wanted: EmbedOptions
    keys: EncryptionKeys | None = None
    paths: list[str] = field(default_factory=list)
    """Paths of all files whose writing began; :meth:`delete_written` deletes them."""
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def write_all(
        self, files: Sequence[ListedFile], threads: int | None
    ) -> Generator[tuple[ListedFile, RewrittenFile | LeftAlone]]:
        """Write the successors of ``files``, a few at a time, and yield each when it is done."""
        threads = threads or min(os.cpu_count() or 1, THREADS)
        at_once = max(min(threads, len(files)), 1)
        each = threads // at_once
        with ThreadPoolExecutor(at_once, thread_name_prefix="sidecar-embed") as pool:
            waiting = iter(files)
            running: dict[Future[RewrittenFile | LeftAlone], ListedFile] = {}
            try:
                while True:
                    for file in waiting:
                        running[pool.submit(self._write, file, each)] = file
                        if len(running) > at_once:
                            break
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(done), done.result()
            finally:
                self._stopped = True
                pool.shutdown(cancel_futures=True)

    def delete_written(self) -> None:
        """Delete every successor. Raises :class:`StorageError` if some could not be deleted."""
        left = []
        for path in self.paths:
            try:
                self.table.io.delete(path)
            except FileNotFoundError:
                continue
            except Exception:
                left.append(path)
        if left:
            raise StorageError(
                f"nothing was replaced, but {len(left)} new files could not be deleted",
                file=left[0],
                hint="Remove them with the table's orphan files.",
            )

    def _write(self, file: ListedFile, threads: int) -> RewrittenFile | LeftAlone:
        """Write the successor of a file. Damage leaves only this file alone; a storage error ends everything."""
        if self._stopped:
            return LeftAlone(file.path, NOTHING_NEW)
        try:
            with closing(open_source(file.path, self.table.io, file.file_size)) as source:
                return self._write_from(source, file, threads)
        except (
            DamagedFileError,
            UnsupportedFeatureError,
            UsageError,
        ) as error:  # usage: of keys that are missing
            return LeftAlone(file.path, reason_of(error), failed=True)
        except _LeftAloneError as error:
            return LeftAlone(file.path, str(error))

    def _write_from(self, source: Source, file: ListedFile, threads: int) -> RewrittenFile:
        source = unlock(source, self.keys)
        footer = read_footer(source)
        _check(source, footer, file)
        leaves, absent = self._resolve(footer, file)
        rules = self.wanted.filters
        counts = {leaf.index: self.fields.ndv[i] for i, leaf in leaves.items() if i in self.fields.ndv}
        rules = FilterRules(tuple(leaves.values()), rules.fpp, counts, rules.harvest, rules.even_if_dictionary)
        wanted = EmbedOptions(rules, self.wanted.page_index, self.wanted.placement)
        path = new_path(self.table, file.path)
        self._check_prefix(footer, path)
        with create_target(self._begin(path), self.table.io) as target:
            report = embed_into(source, footer, target, wanted, threads=threads)
            if not any(_is_new(outcome) for outcome in report.outcomes):
                raise _LeftAloneError(NOTHING_NEW)
            self._copy_material(source, footer, path)
        written = self._read_back(path, report.written.size, footer, file)
        return RewrittenFile(written, (*report.outcomes, *absent), report.encrypted_filters)

    def _check_prefix(self, footer: Footer, path: str) -> None:
        """Leave a file alone if its AAD prefix, which a successor keeps, does not fit the new path."""
        if has_moved_prefix(footer, path, self.keys):
            raise _LeftAloneError("it keeps its AAD prefix, which does not match the new path")

    def _copy_material(self, source: Source, footer: Footer, path: str) -> None:
        """Copy the key material file, without which the successor could not be read."""
        if material_of(source, footer) is None:
            return
        self._begin(material_path(path))
        try:
            copy_material(source, footer, path, self.table.io)
        except StorageError as error:
            raise _LeftAloneError(f"the key material next to it cannot be copied: {error.what}") from error

    def _begin(self, path: str) -> str:
        with self._lock:
            self.paths.append(path)
        local = local_path(path)
        if local is not None:
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        return path

    def _resolve(self, footer: Footer, file: ListedFile) -> tuple[dict[int, Leaf], list[Outcome]]:
        """Return the leaves that get filters by field id, and an outcome for each column that the file lacks."""
        leaves: dict[int, Leaf] = {}
        absent: list[Outcome] = []
        for column in self.fields.columns:
            found = resolve_in_file(
                footer.columns, column.field_id, self.fields.schema, self.fields.name_mapping, file.identity
            )
            if isinstance(found, FoundColumn):
                leaves[column.field_id] = found.leaf
            else:
                absent += [
                    Outcome(footer.name, group.ordinal, column.path, BLOOM, reason=found.reason)
                    for group in footer.row_groups
                ]
        return leaves, absent

    def _read_back(self, path: str, size: int, before: Footer, file: ListedFile) -> NewFile:
        """Read the stored file again and return its entry for the commit. Raises StorageError if it differs."""
        with closing(open_source(path, self.table.io)) as stored:
            source = unlock(stored, self.keys)
            if source.size != size:
                raise StorageError("the new file was not stored whole", file=path, expected=size, found=source.size)
            after = read_footer(source)
        rows = [group.num_rows for group in before.row_groups]
        if [group.num_rows for group in after.row_groups] != rows:
            raise StorageError("the new file was not stored as it was written", file=path)
        return NewFile(path, size, _split_offsets(file, before, after))


def _check(source: Source, footer: Footer, file: ListedFile) -> None:
    """Raise :class:`DamagedFileError` unless the file has the length and rows that its manifest entry says."""
    for what, expected, found in (
        ("length", file.file_size, source.size),
        ("number of rows", file.record_count, footer.num_rows),
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


def _split_offsets(file: ListedFile, before: Footer, after: Footer) -> tuple[int, ...] | None:
    """Return the split offsets of the new file: the row groups at which the old file's manifest entry splits.

    ``None`` if the old entry has none, or has an offset that is not the start of a column chunk.
    """
    offsets = file.data_file.split_offsets
    if offsets is None:
        return None
    moved = {
        old.start: new.start
        for group, successor in zip(before.row_groups, after.row_groups, strict=True)
        for old, new in zip(group.columns, successor.columns, strict=True)
    }
    if not moved.keys() >= set(offsets):
        return None
    return tuple(moved[offset] for offset in offsets)
