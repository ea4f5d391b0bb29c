"""Embedding into a table: its data files written again with filters and page indexes, and swapped in one commit.

Each file gets a successor with the same pages (:func:`sidecar.build.embed.embed_into`), and one commit of the
operation ``replace`` puts all of them in place (:mod:`sidecar.iceberg.replace`). Until then nothing of the table
changes; after an error the new files are deleted, unless the commit may have happened.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Generator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import closing
from dataclasses import dataclass, field
from threading import Lock

from pyiceberg.schema import Schema
from pyiceberg.table import Table
from pyiceberg.table.name_mapping import NameMapping

from sidecar.build.embed import Progress, Wanted, embed_into
from sidecar.build.embed_filters import HARVEST_RULES, FilterRules, Outcome
from sidecar.build.embed_table_report import EmbedTableReport, LeftAlone, ReplacedFile
from sidecar.errors import DamagedFileError, StorageError, UnsupportedFeatureError, UsageError
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.iceberg.listing import ListedFile, Listing
from sidecar.iceberg.replace import CommitUnknownError, commit_replace, find_replaceable, new_path
from sidecar.iceberg.resolve import Column, Found, resolve_columns, resolve_in_file
from sidecar.iceberg.snapshot_producer import NewFile
from sidecar.iceberg.statistics import find_sidecar
from sidecar.parquet.embed import PLACEMENTS
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.inspect import reason_of
from sidecar.parquet.schema import Leaf
from sidecar.source import Source, local_path, open_source
from sidecar.target import create_target

THREADS = 4
"""Files written at the same time, at most."""
NOTHING_NEW = "it has all that was asked for, or cannot have it"


def embed_table(
    table: Table,
    *,
    bloom: Sequence[str] = (),
    page_index: bool = False,
    fpp: float = DEFAULT_FPP,
    ndv: Mapping[str, int] | None = None,
    placement: str = "end",
    harvest: str = "good",
    even_if_dictionary: bool = False,
    dry_run: bool = False,
    threads: int | None = None,
    progress: Progress | None = None,
) -> EmbedTableReport:
    """Give the data files of a table's current snapshot filters on ``bloom`` and page indexes.

    ``bloom`` and ``ndv`` name primitive columns of the table (``a``, ``struct.field``, ``list.element``); the
    other options are those of :func:`sidecar.build.embed.embed_file`. Every file is written anew under a new
    path, pages copied as bytes, and one ``replace`` commit exchanges them. Left alone, with the reason: files that
    deletes apply to, files that are not Parquet, encrypted or broken, and files for which nothing new was built.
    ``dry_run`` only tells which files would be written. ``table`` is refreshed after the commit.

    Raises :class:`UsageError` for unknown columns, wrong options and a table without a snapshot,
    :class:`UnsupportedFeatureError` for format versions other than 2, :class:`StorageError`, and
    :class:`CommitConflictError` if another commit changed one of the files meanwhile. The new files are deleted
    then; only where it is not known whether the commit happened are they left, and the error says so.
    """
    start = time.monotonic()
    fields = _fields(table, bloom, page_index, ndv or {})
    if harvest not in HARVEST_RULES or placement not in PLACEMENTS:
        raise UsageError(f"harvest is one of {HARVEST_RULES}, placement one of {PLACEMENTS}")
    rules = FilterRules((), check_fpp(fpp), {}, harvest, even_if_dictionary)
    replaceable = find_replaceable(table)
    report = EmbedTableReport(".".join(table.name()), dry_run, replaceable.listing.snapshot_id, fpp)
    report.left_alone += [LeftAlone(file.path, reason) for file, reason in replaceable.left_alone]
    if dry_run:
        report.replaced += [ReplacedFile(file.path, file.file_size) for file in replaceable.files]
    else:
        work = _Work(table, fields, Wanted(rules, page_index, placement))
        _run(work, replaceable.listing, replaceable.files, report, threads, progress)
    report.seconds = time.monotonic() - start
    return report


@dataclass(frozen=True)
class _Fields:
    """The columns that get filters, and how many distinct values a row group has of some of them."""

    columns: tuple[Column, ...]
    ndv: Mapping[int, int]
    schema: Schema
    name_mapping: NameMapping | None


def _fields(table: Table, bloom: Sequence[str], page_index: bool, ndv: Mapping[str, int]) -> _Fields:
    if not bloom and not page_index:
        raise UsageError("nothing to embed", hint="Name columns for filters, or ask for page indexes.")
    schema = table.schema()
    for name, number in ndv.items():
        if number < 1:
            raise UsageError(f"the number of distinct values of '{name}' is at least 1", found=number)
    counts = {resolve_columns(schema, [name])[0].field_id: number for name, number in ndv.items()}
    columns = tuple(resolve_columns(schema, bloom)) if bloom else ()
    return _Fields(columns, counts, schema, table.name_mapping())


def _run(
    work: _Work,
    listing: Listing,
    files: Sequence[ListedFile],
    report: EmbedTableReport,
    threads: int | None,
    progress: Progress | None,
) -> None:
    """Write the successors and commit them; those of a commit that did not happen are deleted."""
    new_files: dict[str, NewFile] = {}
    try:
        with closing(work.write_all(files, threads)) as successors:
            for done, (file, written) in enumerate(successors, 1):
                if progress is not None:
                    progress("files", done, len(files))
                _take(file, written, new_files, report)
        report.replaced.sort(key=lambda replaced: replaced.old_path)
        if not new_files:
            return
        stale = _sidecar_path(work.table)
        committed = commit_replace(work.table, listing, new_files)
    except CommitUnknownError:
        raise
    except BaseException:
        work.delete_written()
        raise
    report.snapshot_id, report.parent_snapshot_id = committed.snapshot_id, committed.parent_snapshot_id
    report.attempts = committed.attempts
    report.stale_sidecar = stale
    with contextlib.suppress(Exception):  # it is committed, whatever the caller's handle shows
        work.table.refresh()


def _take(
    file: ListedFile, written: _Written | LeftAlone, new_files: dict[str, NewFile], report: EmbedTableReport
) -> None:
    if isinstance(written, LeftAlone):
        report.left_alone.append(written)
        return
    new_files[file.path] = written.file
    report.count(written.outcomes)
    report.replaced.append(ReplacedFile(file.path, file.file_size, written.file.path, written.file.size))


def _sidecar_path(table: Table) -> str | None:
    found = find_sidecar(table)
    if found is None:
        return None
    found.sidecar.close()
    return found.statistics.statistics_path


@dataclass(frozen=True)
class _Written:
    """A successor that storage has, and what became of each index in it."""

    file: NewFile
    outcomes: tuple[Outcome, ...]


class _NothingNewError(Exception):
    """Leaves the block of a target, so that nothing is published."""


@dataclass
class _Work:
    """The files of one table, and the successors that were written so far."""

    table: Table
    fields: _Fields
    wanted: Wanted
    _paths: list[str] = field(default_factory=list)
    _lock: Lock = field(default_factory=Lock)
    _stopped: bool = False

    def write_all(
        self, files: Sequence[ListedFile], threads: int | None
    ) -> Generator[tuple[ListedFile, _Written | LeftAlone]]:
        """Write the successors of ``files``, a few at a time; yields them as they are done."""
        threads = threads or min(os.cpu_count() or 1, THREADS)
        with ThreadPoolExecutor(threads, thread_name_prefix="sidecar-embed") as pool:
            waiting = iter(files)
            running: dict[Future[_Written | LeftAlone], ListedFile] = {}
            try:
                while True:
                    for file in waiting:
                        running[pool.submit(self._write, file)] = file
                        if len(running) > threads:
                            break
                    if not running:
                        return
                    for done in wait(running, return_when=FIRST_COMPLETED).done:
                        yield running.pop(done), done.result()
            finally:
                self._stopped = True
                pool.shutdown(cancel_futures=True)

    def delete_written(self) -> None:
        """Delete every successor; :class:`StorageError` names what could not be deleted."""
        left = []
        for path in self._paths:
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

    def _write(self, file: ListedFile) -> _Written | LeftAlone:
        """The successor of a file; its damage leaves it alone, storage that fails ends everything."""
        if self._stopped:
            return LeftAlone(file.path, NOTHING_NEW)
        try:
            with closing(open_source(file.path, self.table.io, file.file_size)) as source:
                return self._write_from(source, file)
        except (DamagedFileError, UnsupportedFeatureError) as error:
            return LeftAlone(file.path, reason_of(error), failed=True)
        except _NothingNewError:
            return LeftAlone(file.path, NOTHING_NEW)

    def _write_from(self, source: Source, file: ListedFile) -> _Written:
        footer = read_footer(source)
        _check(source, footer, file)
        leaves, absent = self._resolve(footer, file)
        rules = self.wanted.filters
        counts = {leaf.index: self.fields.ndv[i] for i, leaf in leaves.items() if i in self.fields.ndv}
        rules = FilterRules(
            tuple(leaves.values()), rules.fpp, counts, rules.harvest, rules.even_if_dictionary
        )
        wanted = Wanted(rules, self.wanted.page_index, self.wanted.placement)
        path = new_path(self.table, file.path)
        with create_target(self._begin(path), self.table.io) as target:
            report = embed_into(source, footer, target, wanted)
            if not any(_is_new(outcome) for outcome in report.outcomes):
                raise _NothingNewError
        written = self._read_back(path, report.written.size, footer, file)
        return _Written(written, (*report.outcomes, *absent))

    def _begin(self, path: str) -> str:
        with self._lock:
            self._paths.append(path)
        local = local_path(path)
        if local is not None:
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        return path

    def _resolve(self, footer: Footer, file: ListedFile) -> tuple[dict[int, Leaf], list[Outcome]]:
        """The leaves that get filters by field id, and why columns have none in this file."""
        leaves: dict[int, Leaf] = {}
        absent: list[Outcome] = []
        for column in self.fields.columns:
            found = resolve_in_file(
                footer.columns, column.field_id, self.fields.schema, self.fields.name_mapping, file.identity
            )
            if isinstance(found, Found):
                leaves[column.field_id] = found.leaf
            else:
                absent += [
                    Outcome(group.ordinal, column.path, "bloom", "none", reason=found.reason)
                    for group in footer.row_groups
                ]
        return leaves, absent

    def _read_back(self, path: str, size: int, before: Footer, file: ListedFile) -> NewFile:
        """What is committed must be what storage has."""
        with closing(open_source(path, self.table.io)) as source:
            if source.size != size:
                raise StorageError(
                    "the new file was not stored whole", file=path, expected=size, found=source.size
                )
            after = read_footer(source)
        rows = [group.num_rows for group in before.row_groups]
        if [group.num_rows for group in after.row_groups] != rows:
            raise StorageError("the new file was not stored as it was written", file=path)
        return NewFile(path, size, _split_offsets(file, before, after))


def _check(source: Source, footer: Footer, file: ListedFile) -> None:
    """The file must be the one that the table means."""
    for what, expected, found in (
        ("length", file.file_size, source.size),
        ("number of rows", file.record_count, footer.num_rows),
    ):
        if expected != found:
            raise DamagedFileError(
                f"the file has another {what} than its manifest says",
                file=file.path,
                expected=expected,
                found=found,
            )


def _is_new(outcome: Outcome) -> bool:
    """Whether an index was built, or one that loses rows was taken out."""
    return outcome.way in ("dictionary", "values") or "dropped: " in outcome.reason


def _split_offsets(file: ListedFile, before: Footer, after: Footer) -> tuple[int, ...] | None:
    """Where readers may split the new file: where they might split the old one, its row groups."""
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
