"""``embed --from``: a file's filters and page indexes out of a sidecar, put back byte for byte.

No index of another file may get in, because readers lose the rows that it denies. So a proof is asked for that the file
is the one that was indexed, and its values are looked at before it is published: see :mod:`sidecar.convert.witness`.

One filter of a bundle costs reading its whole group. For a single file out of many that can be more than reading
the column's values, and then the filter is built from those; the report names the way and why. All files of a
sidecar together (:func:`embed_all_from`) read each group once.
"""

from __future__ import annotations

import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, closing
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.filter_pool import FilterPool, PooledFilters
from sidecar.convert.match import Finder
from sidecar.convert.outcome import Progress
from sidecar.convert.witness import NONE, PAGE, Witness
from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.orc_file import PLACEMENT
from sidecar.embedding.orc_restorer import OrcRestorer, plan_orc_restore
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.restorer import RestoreChoice, Restorer, plan_restore
from sidecar.errors import StorageError, UsageError, enough_memory
from sidecar.iceberg.listing import list_snapshot
from sidecar.orc.tail import is_orc, read_tail
from sidecar.parquet.embed import check_embeddable
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import read_footer
from sidecar.source import Source, local_path, open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

WRITERS = 2
"""Threads that write files: while one waits for the disk, another copies."""
WAYS = ("auto", "exact", "values")


@dataclass
class RestoreReport(EmbedReport):
    """As for embedding; ``exact`` means the bytes that the sidecar has, or those of the file itself."""

    sidecar: str = ""
    sidecar_bytes: int = 0
    """Bytes read from the sidecar for this file, or for all files of one call."""
    doubts: list[str] = field(default_factory=list)
    """What is wrong with the sidecar, as far as it was read."""
    witness: Witness = field(default_factory=lambda: Witness("", NONE))
    """What was looked at of the file's values before it was published."""

    def warnings(self) -> list[str]:
        """Those of embedding, and what is wrong with the sidecar."""
        return [*super().warnings(), *self.doubts]

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as :meth:`EmbedReport.to_dict`, with ``sidecar``, ``sidecar_bytes`` and ``witness``."""
        own = {
            "sidecar": self.sidecar,
            "sidecar_bytes": self.sidecar_bytes,
            "witness": self.witness.to_dict(),
        }
        return {**super().to_dict(), **own}


@enough_memory()
def embed_from(
    sidecar: str | SidecarFile,
    source: str,
    target: str,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    way: str = "auto",
    witness: str = PAGE,
    table: Table | None = None,
    placement: str = "end",
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Write the Parquet or ORC file ``source`` with what a ``sidecar`` has of it to the new file ``target``.

    ``bloom`` and ``page_index`` name the leaf columns whose filters and page indexes are wanted, ``None`` all, an
    empty list none. Pages are copied, not encoded anew. ``way``: ``exact`` takes the filters out of the sidecar
    whatever that costs; ``values`` builds them from the columns; ``auto`` compares the bytes to be read: for a file of
    a table strictly, for a plain file, which should come back to the byte, beyond 64 MiB of other files' filters.
    Indexes that the file has and the sidecar has not stay. What is damaged in the sidecar is built from the file's
    values instead, unless ``exact`` was asked for; ``doubts`` of the report says so.

    Indexes of another file would deny rows. What proves that this is not another one: the live entry of ``table``, the
    table that the sidecar belongs to; of a plain file the digest of its pages that was recorded when its indexes were
    extracted, which is read and compared; or the id of its encryption. With a proof, ``witness`` says what is looked
    at on top: ``page`` decodes one data page of each column chunk that gets an index (of ORC: one row group), ``full``
    all of them, ``none`` nothing. Without a proof everything is looked at, whatever ``witness`` says. Where the values
    deny an index, all indexes are built from the values instead, or it is an error if ``exact`` was asked for.
    ``witness`` of the report tells what was looked at.

    An ORC file gets filters alone, see :mod:`sidecar.embedding.orc_restorer`: what cannot stand in it, as split-block
    filters, is built from its values. ``page_index`` and ``placement`` are not for it.

    ``encryption_keys`` open encrypted files, in which everything is sealed as :func:`sidecar.embedding.file.embed_file`
    does it, and encrypted bundles of the sidecar.

    Raises :class:`UsageError` if the file is not the one that was indexed (its path may differ; size, rows and row
    groups, and for plain files what the footer says of the pages and the recorded digest, must agree), and as
    :func:`sidecar.embedding.file.embed_file`.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io, encryption_keys)
        pool = stack.enter_context(closing(FilterPool()))
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        choice = RestoreChoice(bloom, page_index, _checked_way(way), placement, way != "exact", witness)
        finder = Finder(opened, _live_files(table))
        file = _prepare(source, target, finder, choice, pool, _Storage(io, encryption_keys, opened))
        load = partial(pool.load, file.parts)
        (report,) = _write_behind(opened, iter([file]), load, io, progress)
        report.sidecar_bytes = opened.index_bytes - before
        return report


@enough_memory()
def embed_all_from(
    sidecar: str | SidecarFile,
    folder: str,
    sources: Sequence[str] | None = None,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    witness: str = PAGE,
    table: Table | None = None,
    placement: str = "end",
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> list[RestoreReport]:
    """As :func:`embed_from` for many files, each group of the sidecar read once: into new files in ``folder``.

    What is damaged in the sidecar, or is of another file, is built from the values of each file. ``sources``: all
    files that the sidecar speaks of by default, at the paths that it has for them. The new files lie in ``folder`` as
    they lay below the deepest folder that they have in common. Raises :class:`UsageError`, before anything is made,
    for a path with ``..`` in it and for a folder in ``folder`` that is a symbolic link to a place outside.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io, encryption_keys)
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        finder = Finder(opened, _live_files(table))
        paths = list(sources) if sources is not None else [file.path for file in finder.listed_files()]
        targets = targets_in(folder, paths)
        _check_inside(folder, targets)
        choice = RestoreChoice(bloom, page_index, "exact", placement, witness=witness)
        pool = stack.enter_context(closing(FilterPool()))
        storage = _Storage(io, encryption_keys, opened)
        load = _loading(pool, opened, finder, paths, choice, storage)
        for target in targets:
            _make_folder(target)
        files = (
            _prepare(path, target, finder, choice, pool, storage)
            for path, target in zip(paths, targets, strict=True)
        )
        reports: list[RestoreReport] = []
        for report in _write_behind(opened, files, load, io):
            reports.append(report)
            if progress is not None:
                progress("files", len(reports), len(paths))
        for report in reports:
            report.sidecar_bytes = opened.index_bytes - before
        return reports


@dataclass(frozen=True)
class _Prepared:
    """A file that is to be written, and what finds its indexes.

    ``parts`` are what is read out of bundles for it.
    """

    path: str
    source: Source
    target: str
    size: int
    placement: str
    parts: list[PooledFilters]
    restorer: Restorer | OrcRestorer
    start: float


@dataclass(frozen=True)
class _Storage:
    """How data files are opened."""

    io: FileIO | None
    keys: EncryptionKeys | None
    sidecar: SidecarFile

    def name_fields(self, leaves: Iterable[tuple[str, int | None]]) -> None:
        """Tell the sidecar which fields ``bundle_keys`` name, by path and field id of a file's leaves."""
        keys = {} if self.keys is None else self.keys.bundle_keys
        named = {field_id: keys[path] for path, field_id in leaves if field_id is not None and path in keys}
        if named:
            self.sidecar.name_fields(named)

    def open(self, path: str) -> Source:
        """The file, of an encrypted one its plaintext view."""
        source = open_source(path, self.io)
        try:
            return source if self.keys is None or is_orc(source) else unlock(source, self.keys)
        except BaseException:
            source.close()
            raise


def _prepare(
    path: str, target: str, finder: Finder, choice: RestoreChoice, pool: FilterPool, storage: _Storage
) -> _Prepared:
    start = time.monotonic()
    source = storage.open(path)
    try:
        restorer: Restorer | OrcRestorer
        if is_orc(source):
            tail = read_tail(source)
            storage.name_fields((column.path, column.field_id) for column in tail.columns)
            orc_plan = plan_orc_restore(finder, source, tail, choice)
            restorer, parts = OrcRestorer(source, orc_plan, choice, pool), orc_plan.exact_parts
            return _Prepared(path, source, target, tail.size, PLACEMENT, parts, restorer, start)
        footer = read_footer(source)
        storage.name_fields((leaf.path, leaf.field_id) for leaf in footer.columns)
        check_embeddable(source, footer)
        plan = plan_restore(finder, source, footer, choice)
        restorer, parts = Restorer(source, plan, choice, pool, storage.keys), plan.exact_parts
        return _Prepared(path, source, target, footer.size, choice.placement, parts, restorer, start)
    except BaseException:
        source.close()
        raise


def _write(
    sidecar: SidecarFile, file: _Prepared, io: FileIO | None, progress: Progress | None
) -> RestoreReport:
    with create_target(file.target, io) as sink:
        written, outcomes = file.restorer.write(sink, progress)
        notes = file.restorer.notes(file.target, io) if isinstance(file.restorer, Restorer) else []
    return RestoreReport(
        source=file.path,
        target=file.target,
        placement=file.placement,
        size_before=file.size,
        written=written,
        outcomes=outcomes,
        seconds=time.monotonic() - file.start,
        fpp=file.restorer.fpp,
        sidecar=sidecar.source.name,
        encrypted_filters=isinstance(file.restorer, Restorer) and file.restorer.encrypted_filters,
        notes=notes,
        doubts=[*sidecar.warnings, *file.restorer.doubts],
        witness=file.restorer.witness,
    )


def _write_behind(
    sidecar: SidecarFile,
    files: Iterator[_Prepared],
    load_filters: Callable[[], None],
    io: FileIO | None,
    progress: Progress | None = None,
) -> Iterator[RestoreReport]:
    """Copy the pages of files in other threads while their indexes are read in this one; at most three are open.

    ``load_filters`` is called once, when the first copies have begun.
    """

    def write(file: _Prepared) -> RestoreReport:
        with closing(file.source), closing(file.restorer):
            return _write(sidecar, file, io, progress)

    with ThreadPoolExecutor(WRITERS, thread_name_prefix="sidecar-embed") as pool:
        writing: deque[Future[RestoreReport]] = deque()
        copying: deque[_Prepared] = deque()
        try:
            for file in files:
                writing.append(pool.submit(write, file))
                copying.append(file)
                if len(copying) == WRITERS:
                    copying.popleft().restorer.load(load_filters)
                    load_filters = _nothing
                    if len(writing) > WRITERS:
                        yield writing.popleft().result()
            while copying:
                copying.popleft().restorer.load(load_filters)
                load_filters = _nothing
        except BaseException as error:
            for file in copying:
                file.restorer.give_up(error)
            failed = _first_failure(writing)
            if failed is not None and failed is not error:  # its thread has closed the file that is read here
                raise failed from error
            raise
        while writing:
            yield writing.popleft().result()


def _first_failure(writing: Iterable[Future[RestoreReport]]) -> BaseException | None:
    """The error of the first file whose writing has failed already."""
    failures = (future.exception() for future in writing if future.done() and not future.cancelled())
    return next((error for error in failures if error is not None), None)


def _nothing() -> None:
    """Filters are loaded once."""


def targets_in(folder: str, paths: Sequence[str]) -> list[str]:
    """Where files go in ``folder``: as they lie below the deepest folder that all have in common."""
    split = [path.split("/") for path in paths]
    if len({tuple(parts) for parts in split}) < len(paths):
        raise UsageError("a file is named twice")
    common = 0
    while len({parts[common] if common < len(parts) - 1 else None for parts in split}) == 1:
        if common >= len(split[0]) - 1:
            break
        common += 1
    for path, parts in zip(paths, split, strict=True):
        if ".." in parts[common:] or "\0" in path:
            raise UsageError(
                "the path of a file has '..' or a zero byte in it, and could lead out of the folder",
                file=path,
                hint="Embed the files one by one, each to a target of its own.",
            )
    return ["/".join([folder.rstrip("/"), *parts[common:]]) for parts in split]


def _check_inside(folder: str, targets: Sequence[str]) -> None:
    """Raise :class:`UsageError` if a target would lie outside ``folder`` because a folder in it is a symbolic link."""
    root = local_path(folder)
    if root is None:
        return
    inside = os.path.realpath(root)
    for target in targets:
        parent = os.path.realpath(os.path.dirname(local_path(target) or target))
        if os.path.commonpath([inside, parent]) != inside:
            raise UsageError(
                "a symbolic link leads out of the folder that files are to be written to",
                file=target,
                expected=f"a folder in {inside}",
                found=parent,
            )


def _loading(
    pool: FilterPool,
    sidecar: SidecarFile,
    finder: Finder,
    paths: Sequence[str],
    choice: RestoreChoice,
    storage: _Storage,
) -> Callable[[], None]:
    """What loads the filters of all these files: whole groups where most of their files are meant, else some."""
    listed = sum(segment.num_files for segment in sidecar.segments)
    if choice.bloom is None and 2 * len(paths) >= listed:
        return partial(pool.load_all, sidecar.segments)
    parts: list[PooledFilters] = []
    for path in paths:
        with closing(storage.open(path)) as data:
            if is_orc(data):
                parts += plan_orc_restore(finder, data, read_tail(data), choice).exact_parts
            else:
                parts += plan_restore(finder, data, read_footer(data), choice).exact_parts
    return partial(pool.load, parts)


def _live_files(table: Table | None) -> dict[str, DataFileIdentity]:
    """The live files of a table's current snapshot by path; a path that occurs twice is left out."""
    if table is None or table.current_snapshot() is None:
        return {}
    files = list_snapshot(table).files
    counted = Counter(file.path for file in files)
    return {file.path: file.known_as for file in files if counted[file.path] == 1}


def _make_folder(target: str) -> None:
    """The folder of a local target; stores have none."""
    local = local_path(target)
    if local is not None:
        try:
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder: {error.strerror}", file=target) from error


def _open_sidecar(
    stack: ExitStack, sidecar: str | SidecarFile, io: FileIO | None, keys: EncryptionKeys | None
) -> SidecarFile:
    if isinstance(sidecar, SidecarFile):
        if keys is not None:
            sidecar.use_keys(keys)
        return sidecar
    opened = SidecarFile.open(stack.enter_context(closing(open_source(sidecar, io))), encryption_keys=keys)
    if not opened.segments:
        raise UsageError("the Puffin file is no sidecar", file=sidecar, found="; ".join(opened.warnings[:1]))
    return opened


def _checked_way(way: str) -> str:
    if way not in WAYS:
        raise UsageError("unknown way", expected=" or ".join(WAYS), found=way)
    return way
