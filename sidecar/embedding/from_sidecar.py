"""``embed --from``: puts the filters and page indexes that a sidecar has of a file back into it, byte for byte.

An index of a different file must never get in, because readers lose the rows that it denies. So the file needs a proof
that it is the one that was indexed, and its values are compared before it is published
(:mod:`sidecar.conversion.witness`).

Reading one filter of a bundle means reading its whole group. For a single file this can cost more than reading the
column's values; then the filter is built from the values, and the report says so. :func:`embed_all_from` handles all
files of a sidecar and reads each group once.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Literal

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.match import Finder
from sidecar.conversion.witness import Witness
from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.orc_file import PLACEMENT
from sidecar.embedding.orc_restorer import OrcRestorer, plan_orc_restore
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.restorer import RestoreChoice, Restorer, plan_restore
from sidecar.embedding.target_folder import check_inside, make_folder_of, targets_in
from sidecar.errors import UsageError, enough_memory
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.refs import one_version
from sidecar.orc.tail import is_orc, read_tail
from sidecar.parquet.embed import Placement, check_embeddable
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.footer import read_footer
from sidecar.run import ReportingThreads, one_step, report_progress
from sidecar.run_log import logged
from sidecar.source import AnyPath, Source, local_path, open_source
from sidecar.target import create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO
    from pyiceberg.table import Table

log = logging.getLogger(__name__)

WRITERS = 3
"""Threads that write files: while one waits for the disk and one for its proof, another copies."""
PROVERS = 2
"""Threads that prove files: a proof takes the digest of all pages, which costs more than their copy."""


@dataclass(repr=False)
class RestoreReport(EmbedReport):
    """The result for one file. The way ``exact`` means the bytes of the sidecar or of the file itself."""

    sidecar: str = ""
    """The path of the sidecar."""
    sidecar_bytes: int = 0
    """Bytes read from the sidecar for this file, or for all files of one call."""
    doubts: list[str] = field(default_factory=list)
    """Problems of the sidecar that were found while it was read."""
    witness: Witness = field(default_factory=Witness)
    """The values of the file that were compared before it was published."""

    def warnings(self) -> list[str]:
        """Return the warnings of embedding, and the problems of the sidecar."""
        return [*super().warnings(), *self.doubts]

    def to_dict(self) -> dict[str, Any]:
        """Return the plain data of :meth:`EmbedReport.to_dict` with ``sidecar``, ``sidecar_bytes`` and ``witness``."""
        own = {
            "sidecar": self.sidecar,
            "sidecar_bytes": self.sidecar_bytes,
            "witness": self.witness.to_dict(),
        }
        return {**super().to_dict(), **own}


@logged(log, RestoreReport.log_line, RestoreReport.warnings)
@enough_memory()
def embed_from(
    sidecar: AnyPath | SidecarFile,
    source: AnyPath,
    target: AnyPath,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    table: Table | None = None,
    placement: Placement = "end",
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
) -> RestoreReport:
    """Write the Parquet or ORC file ``source`` with the indexes that ``sidecar`` has of it to the new file ``target``.

    ``bloom`` and ``page_index`` name the leaf columns whose filters and page indexes are restored: ``None`` for all, an
    empty list for none. Pages are copied, not encoded anew. Filters come from the sidecar, or from the values of the
    column if that reads fewer bytes. For a plain file, which should come back byte for byte, up to 64 MiB of other
    files' filters are read. Indexes that only the file has stay. Indexes that are damaged in the sidecar are built from
    the file's values and listed in the report's ``doubts``.

    Indexes of a different file would deny rows. Three things prove that the file is the one that was indexed: the live
    entry of ``table``, the table that the sidecar belongs to; for a plain file the digest of its pages, recorded when
    its indexes were extracted; or the id of its encryption. With a proof, one data page of each column chunk that gets
    an index is also compared (in ORC: one row group), without a proof all of them. If the values deny an index, all
    indexes are built from the values instead. The report's ``witness`` says what was compared.

    An ORC file gets only filters (:mod:`sidecar.embedding.orc_restorer`). A filter that an ORC file cannot hold, such
    as a split-block filter, is built from its values. ``page_index`` and ``placement`` are not used.

    ``encryption_keys`` open encrypted bundles of the sidecar, and encrypted files, in which everything is encrypted as
    :func:`sidecar.embedding.file.embed_file` does. ``io`` opens and writes files, by default as the paths say.

    Raises :class:`UsageError` if the file is not the one that was indexed: its path may differ, but size, rows and row
    groups must agree, and for plain files also the footer's facts about the pages and the recorded digest. Also raises
    the errors of :func:`sidecar.embedding.file.embed_file`.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io, encryption_keys)
        pool = stack.enter_context(closing(FilterPool()))
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        choice = RestoreChoice(bloom, page_index, placement)
        finder = Finder(opened, _live_files(table))
        provers = stack.enter_context(_provers())
        storage = _Storage(io, encryption_keys, opened)
        file = _prepare(os.fspath(source), os.fspath(target), finder, choice, pool, provers, storage)
        load = partial(pool.load, file.parts)
        (report,) = _write_behind(opened, iter([file]), load, io)
        report.sidecar_bytes = opened.index_bytes - before
        return report


def _line_of_all(reports: list[RestoreReport]) -> str:
    seconds = sum(report.seconds for report in reports)
    return f"{len(reports):,} files written with indexes of a sidecar; {seconds:.3f} s"


def _warnings_of_all(reports: list[RestoreReport]) -> list[str]:
    return [text for report in reports for text in report.warnings()]


@logged(log, _line_of_all, _warnings_of_all)
@enough_memory()
def embed_all_from(
    sidecar: AnyPath | SidecarFile,
    folder: AnyPath,
    sources: Sequence[AnyPath] | None = None,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    table: Table | None = None,
    placement: Placement = "end",
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
) -> list[RestoreReport]:
    """Do :func:`embed_from` for many files into new files in ``folder``, and read each group of ``sidecar`` once.

    ``bloom``, ``page_index``, ``table``, ``placement``, ``encryption_keys`` and ``io`` are as in
    :func:`embed_from`. If an index is damaged or belongs to a different file,
    it is built from the file's values. ``sources`` are by default all files that the sidecar lists, at their listed
    paths. In ``folder`` the new files keep their paths below the deepest folder that all sources share. Raises
    :class:`UsageError`, before anything is made, for a path with ``..`` in it and for a folder in ``folder`` that is a
    symbolic link to a place outside.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io, encryption_keys)
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        finder = Finder(opened, _live_files(table))
        folder = os.fspath(folder)
        paths = (
            [os.fspath(source) for source in sources]
            if sources is not None
            else [file.path for file in finder.listed_files()]
        )
        targets = targets_in(folder, paths)
        check_inside(folder, targets)
        choice = RestoreChoice(bloom, page_index, placement, is_shared=True)
        pool = stack.enter_context(closing(FilterPool()))
        storage = _Storage(io, encryption_keys, opened)
        load = _loading(pool, opened, finder, paths, choice, storage)
        for target in targets:
            make_folder_of(target)
        provers = stack.enter_context(_provers())
        files = (
            _prepare(path, target, finder, choice, pool, provers, storage)
            for path, target in zip(paths, targets, strict=True)
        )
        reports: list[RestoreReport] = []
        for report in _write_behind(opened, files, load, io, is_one=False):
            reports.append(report)
            report_progress("files", len(reports), len(paths))
        for report in reports:
            report.sidecar_bytes = opened.index_bytes - before
        return reports


@dataclass(frozen=True)
class _Prepared:
    """A file that is ready to be written, with the restorer that finds its indexes.

    ``parts`` are the filters that are read out of bundles for it.
    """

    path: str
    source: Source
    target: str
    size: int
    placement: Placement | Literal["stripe"]
    parts: list[PooledFilters]
    restorer: Restorer | OrcRestorer
    start: float


@dataclass(frozen=True)
class _Storage:
    """Opens data files and tells the sidecar about their keys."""

    io: FileIO | None
    keys: EncryptionKeys | None
    sidecar: SidecarFile

    def name_fields(self, leaves: Iterable[tuple[str, int | None]]) -> None:
        """Tell the sidecar which fields ``bundle_keys`` name. ``leaves`` are paths and field ids of a file's leaves."""
        keys = {} if self.keys is None else self.keys.bundle_keys
        named = {field_id: keys[path] for path, field_id in leaves if field_id is not None and path in keys}
        if named:
            self.sidecar.name_fields(named)

    def open(self, path: str) -> Source:
        """Open a file; an encrypted one as its plaintext view."""
        source = open_source(path, self.io)
        try:
            return source if self.keys is None or is_orc(source) else unlock(source, self.keys)
        except BaseException:
            source.close()
            raise


def _prepare(
    path: str,
    target: str,
    finder: Finder,
    choice: RestoreChoice,
    pool: FilterPool,
    provers: Executor,
    storage: _Storage,
) -> _Prepared:
    start = time.monotonic()
    source = storage.open(path)
    try:
        restorer: Restorer | OrcRestorer
        if is_orc(source):
            tail = read_tail(source)
            storage.name_fields((column.path, column.field_id) for column in tail.columns)
            orc_plan = plan_orc_restore(finder, source, tail, choice)
            restorer, parts = OrcRestorer(source, orc_plan, choice, pool, provers), orc_plan.exact_parts
            return _Prepared(path, source, target, tail.size, PLACEMENT, parts, restorer, start)
        footer = read_footer(source)
        storage.name_fields((leaf.path, leaf.field_id) for leaf in footer.columns)
        check_embeddable(source, footer)
        plan = plan_restore(finder, source, footer, choice)
        restorer, parts = Restorer(source, plan, choice, pool, provers, storage.keys), plan.exact_parts
        return _Prepared(path, source, target, footer.size, choice.placement, parts, restorer, start)
    except BaseException:
        source.close()
        raise


def _provers() -> ReportingThreads:
    return ReportingThreads(PROVERS, thread_name_prefix="sidecar-prove")


def _write(sidecar: SidecarFile, file: _Prepared, io: FileIO | None) -> RestoreReport:
    if local_path(file.target) is None:  # some stores publish what they have when a file is given up
        file.restorer.proven.result()
    with create_target(file.target, io) as sink:
        written, outcomes = file.restorer.write(sink)
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
    *,
    is_one: bool = True,
) -> Iterator[RestoreReport]:
    """Copy the pages of files in other threads while this thread reads their indexes.

    ``load_filters`` is called once, after the first copies have begun. At most four files are open.
    """

    def write(file: _Prepared) -> RestoreReport:
        with closing(file.source), closing(file.restorer), nullcontext() if is_one else one_step():
            return _write(sidecar, file, io)

    with ReportingThreads(WRITERS, thread_name_prefix="sidecar-embed") as pool:
        writing: deque[Future[RestoreReport]] = deque()
        copying: deque[_Prepared] = deque()
        try:
            for file in files:
                writing.append(pool.submit(write, file))
                copying.append(file)
                # Loading starts only when WRITERS files are being copied, so that reading and copying overlap.
                if len(copying) == WRITERS:
                    copying.popleft().restorer.load(load_filters)
                    load_filters = _nothing
                    if len(writing) > WRITERS:
                        yield writing.popleft().result()
            while copying:
                copying.popleft().restorer.load(load_filters)
                load_filters = _nothing
        except BaseException as error:
            # The writers of these files wait for their indexes, which will not come any more.
            for file in copying:
                file.restorer.give_up(error)
            wait(writing)
            for failed in (future.exception() for future in writing):
                if failed is not None and failed is not error:  # it closed its file, which made reading fail here
                    raise failed from error
            raise
        while writing:
            yield writing.popleft().result()


def _nothing() -> None:
    """Do nothing: filters are loaded only once."""


def _loading(
    pool: FilterPool,
    sidecar: SidecarFile,
    finder: Finder,
    paths: Sequence[str],
    choice: RestoreChoice,
    storage: _Storage,
) -> Callable[[], None]:
    """Return the function that loads the filters of all files: whole groups if most listed files are wanted."""
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
    """Return the live files of a table's current snapshot by path, without paths that occur twice."""
    if table is None:
        return {}
    table = one_version(table)
    if table.current_snapshot() is None:
        return {}
    files = list_snapshot(table).files
    counted = Counter(file.path for file in files)
    return {file.path: file.known_as for file in files if counted[file.path] == 1}


def _open_sidecar(
    stack: ExitStack, sidecar: AnyPath | SidecarFile, io: FileIO | None, keys: EncryptionKeys | None
) -> SidecarFile:
    if isinstance(sidecar, SidecarFile):
        if keys is not None:
            sidecar.use_keys(keys)
        return sidecar
    opened = SidecarFile.open(stack.enter_context(closing(open_source(sidecar, io))), encryption_keys=keys)
    if not opened.segments:
        raise UsageError(
            "the Puffin file is not a sidecar", file=os.fspath(sidecar), found="; ".join(opened.warnings[:1])
        )
    return opened
