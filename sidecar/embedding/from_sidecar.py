"""``embed --from``: puts the filters and page indexes that a sidecar has of a file back into it, byte for byte.

An index of a different file must never get in, because readers lose the rows that it denies. So the file needs a proof
that it is the one that was indexed, and its values are compared before it is published
(:mod:`sidecar.conversion.matching.witness`).

Reading one filter of a bundle means reading its whole group. For a single file this can cost more than reading the
column's values; then the filter is built from the values, and the report says so. For many files each group is read
once.
"""

from __future__ import annotations

import logging
import os
import time
from collections import Counter, deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Executor, Future, wait
from contextlib import ExitStack, closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial

from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.match import Finder
from sidecar.conversion.reuse import GOOD
from sidecar.data_files.formats import open_file, opened_file
from sidecar.data_files.open_file import DataLeaf
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.embedding.file import NewIndexes
from sidecar.embedding.many import NewFiles, WrittenFiles, targets_of_listed
from sidecar.embedding.orc_restorer import OrcRestorer
from sidecar.embedding.report import EmbedReport
from sidecar.embedding.restore_plan import RestoreChoice, plan_restore
from sidecar.embedding.restorer import Restorer
from sidecar.embedding.target_folder import make_folder_of
from sidecar.errors import SidecarError, UsageError, enough_memory
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.refs import one_version
from sidecar.iceberg.statistics_files.find_sidecar import open_sidecar
from sidecar.many_files.each import sorted_out
from sidecar.many_files.find import FoundFiles, Paths
from sidecar.run import ReportingThreads, one_step, report_progress
from sidecar.run_log import log_run
from sidecar.storage.locations import local_path
from sidecar.storage.source import AnyPath

log = logging.getLogger(__name__)

WRITERS = 4
"""Threads that write files: while two wait for the disk and one for its proof, another copies."""
PROVERS = 2
"""Threads that prove files: a proof takes the digest of all pages, which costs more than their copy."""
ONE_SIDECAR = "one sidecar is read for all files"
"""The reason for the engine."""


@enough_memory()
def embed_from(
    access: Access,
    origin: AnyPath | SidecarFile | Table,
    source: Paths | None,
    into: AnyPath,
    indexes: NewIndexes,
) -> WrittenFiles:
    """Do :func:`sidecar.embed` with the indexes of ``origin``.

    Raises :class:`UsageError` for one file that is not the one that was indexed: its path may differ, but size, rows
    and row groups must agree, for plain files also what the footer says of the pages, and the recorded digest.
    """
    if indexes.fpp != DEFAULT_FPP or indexes.reuse != GOOD:
        raise UsageError("fpp and reuse are for new indexes, not for those of a sidecar")
    start = time.monotonic()
    if access.io is None and isinstance(origin, Table):
        access = Access(origin.io, access.keys)
    with ExitStack() as stack:
        opened = _open_sidecar(stack, access, origin)
        before = opened.index_bytes if isinstance(origin, SidecarFile) else 0
        finder = Finder(opened, _live_files(origin if isinstance(origin, Table) else None))
        new = _listed(access, finder, into) if source is None else NewFiles.of(access, source, into)
        everything = not indexes.bloom and not indexes.page_index
        choice = RestoreChoice(
            bloom=None if everything else indexes.bloom,
            page_index=None if everything or indexes.page_index else (),
            placement=indexes.placement,
            is_shared=not new.is_one,
        )
        restoring = stack.enter_context(_Restoring(opened, finder, choice, new))
        return WrittenFiles(
            *sorted_out(new.found, restoring.run()),
            into=new.into,
            seconds=time.monotonic() - start,
            engine="local",
            engine_reason=ONE_SIDECAR,
            sidecar_bytes=opened.index_bytes - before,
        )


def restore_file(access: Access, sidecar: str, source: str, target: str, columns: Sequence[str] | None) -> EmbedReport:
    """Write one file with the indexes that a Puffin file has of it, on ``columns`` or all. Raises its error."""
    with ExitStack() as stack:
        opened = _open_sidecar(stack, access, sidecar)
        new = NewFiles.of(access, source, target)
        restoring = stack.enter_context(_Restoring(opened, Finder(opened), RestoreChoice(columns, columns), new))
        (report,), *_ = sorted_out(new.found, restoring.run())
        return report


@dataclass(frozen=True)
class _Prepared:
    """A file that is ready to be written, with the restorer that finds its indexes."""

    path: str
    target: str
    restorer: Restorer | OrcRestorer
    start: float


class _Restoring:
    """Writes files with the indexes that a sidecar has of them. A context manager: it frees what it holds.

    This thread reads the indexes of files while others copy their pages. Filters of all files are loaded once, after
    the first copies have begun. At most five files are open.
    """

    def __init__(self, sidecar: SidecarFile, finder: Finder, choice: RestoreChoice, new: NewFiles) -> None:
        self._sidecar = sidecar
        self._finder = finder
        self._choice = choice
        self._new = new
        self._pool = FilterPool()
        self._provers = ReportingThreads(PROVERS, thread_name_prefix="sidecar-prove")
        self._is_loaded = False

    def __enter__(self) -> _Restoring:
        return self

    def __exit__(self, *_: object) -> None:
        self._provers.shutdown()
        self._pool.close()

    def run(self) -> Iterator[EmbedReport | SidecarError]:
        """Yield the report of each file in order, or the error that it alone had."""
        paths = self._new.found.files
        with ReportingThreads(WRITERS, thread_name_prefix="sidecar-embed") as pool:
            writing: deque[Future[EmbedReport]] = deque()
            copying: deque[tuple[_Prepared, Future[EmbedReport]]] = deque()
            try:
                for path in paths:
                    writing.append(self._begin(path, pool, copying))
                    # Loading starts only when WRITERS files are being copied, so that reading and copying overlap.
                    if len(copying) == WRITERS:
                        self._load(*copying.popleft())
                    if len(writing) > WRITERS:
                        yield self._answer(writing.popleft(), len(paths) - len(writing), len(paths))
                while copying:
                    self._load(*copying.popleft())
            except BaseException as error:
                # The writers of these files wait for their indexes, which will not come any more.
                for file, _ in copying:
                    file.restorer.give_up(error)
                wait(writing)
                raise
            while writing:
                yield self._answer(writing.popleft(), len(paths) - len(writing), len(paths))

    def _begin(
        self, path: str, pool: Executor, copying: deque[tuple[_Prepared, Future[EmbedReport]]]
    ) -> Future[EmbedReport]:
        """Open a file and have it written."""
        written: Future[EmbedReport] = Future()
        try:
            file = self._prepare(path)
        except SidecarError as error:
            written.set_exception(error)
            return written
        written = pool.submit(self._write, file)
        copying.append((file, written))
        return written

    def _load(self, file: _Prepared, written: Future[EmbedReport]) -> None:
        """Read the indexes of a file. An error ends the writing of this file, which raises it."""
        try:
            file.restorer.load(partial(self._load_filters, file))
        except SidecarError:
            pass
        except Exception:
            # After an error of its own, the writer closes the file, so that reading it fails here too.
            if not isinstance(written.exception(), SidecarError):
                raise

    def _answer(self, written: Future[EmbedReport], done: int, total: int) -> EmbedReport | SidecarError:
        try:
            answer: EmbedReport | SidecarError = written.result()
        except SidecarError as error:
            answer = error
        if not self._new.is_one:
            report_progress("files", done, total)
        return answer

    def _prepare(self, path: str) -> _Prepared:
        start, target = time.monotonic(), self._new.targets[path]
        file = self._open(path)
        try:
            if not self._new.is_one:
                make_folder_of(target)
            self._name_fields(file.leaves)
            return _Prepared(path, target, self._restorer(file), start)
        except BaseException:
            file.source.close()
            raise

    def _restorer(self, file: OpenParquet | OpenOrc) -> Restorer | OrcRestorer:
        """Return what gives a file its indexes: each format has its own writer."""
        if isinstance(file, OpenOrc):
            return OrcRestorer(plan_restore(self._finder, file, self._choice), self._choice, self._pool, self._provers)
        return Restorer(plan_restore(self._finder, file, self._choice), self._choice, self._pool, self._provers)

    def _write(self, file: _Prepared) -> EmbedReport:
        restorer = file.restorer
        with (
            enough_memory(),
            closing(restorer.plan.file.source),
            closing(restorer),
            nullcontext() if self._new.is_one else one_step(),
        ):
            if local_path(file.target) is None:  # some stores publish what they have when a file is given up
                restorer.proven.result()
            with self._new.access.create(file.target) as sink:
                written = restorer.write(self._new.access, sink, file.start)
        damage = [*self._sidecar.warnings, *restorer.damage]
        report = replace(
            written,
            source=file.path,
            target=file.target,
            sidecar=self._sidecar.source.name,
            damage=damage,
            witness=restorer.witness,
        )
        log_run(log, report.log_line, report.warnings())
        return report

    def _load_filters(self, first: _Prepared) -> None:
        """Read the filters of all files with the ``first`` one: whole groups if most listed files are wanted."""
        if self._is_loaded:
            return
        paths, listed = self._new.found.files, self._sidecar.num_files
        if self._new.is_one:
            self._pool.load(first.restorer.plan.exact_parts)
        elif self._choice.bloom is None and 2 * len(paths) >= listed:
            self._pool.load_all(self._sidecar)
        else:
            self._pool.load([part for path in paths for part in self._parts(path)])
        self._is_loaded = True

    def _parts(self, path: str) -> list[PooledFilters]:
        """Return the filters that are read for a file; none for a file that cannot be read."""
        try:
            with opened_file(self._new.access, path) as file:
                return plan_restore(self._finder, file, self._choice).exact_parts
        except SidecarError:  # it is reported where the file is opened to be written
            return []

    def _name_fields(self, leaves: Iterable[DataLeaf]) -> None:
        """Tell the sidecar which fields ``bundle_keys`` name."""
        keys = self._new.access.keys
        by_path = {} if keys is None else keys.bundle_keys
        named = {leaf.field_id: by_path[leaf.own_path] for leaf in leaves if leaf.field_id and leaf.own_path in by_path}
        if named:
            self._sidecar.name_fields(named)

    def _open(self, path: str) -> OpenParquet | OpenOrc:
        source = self._new.access.open(path)
        try:
            return open_file(source, self._new.access.keys)
        except BaseException:
            source.close()
            raise


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


def _listed(access: Access, finder: Finder, into: AnyPath) -> NewFiles:
    """Return all files that the sidecar lists, at their listed paths, to be written into a folder."""
    files, folder = tuple(file.path for file in finder.listed_files()), os.fspath(into)
    if not files:
        raise UsageError("the sidecar lists no file")
    return NewFiles(access, FoundFiles(files, (), {}), folder, targets_of_listed(files, folder))


def _open_sidecar(stack: ExitStack, access: Access, origin: AnyPath | SidecarFile | Table) -> SidecarFile:
    keys = access.keys
    if isinstance(origin, SidecarFile):
        if keys is not None:
            origin.use_keys(keys)
        return origin
    if isinstance(origin, Table):
        return stack.enter_context(closing(open_sidecar(origin, encryption_keys=keys)))
    opened = SidecarFile.open(stack.enter_context(closing(access.open(origin))), encryption_keys=keys)
    if not opened.is_sidecar:
        raise UsageError(
            "the Puffin file is not a sidecar", file=os.fspath(origin), found="; ".join(opened.warnings[:1])
        )
    return opened
