"""Embeds filters and page indexes into a data file without touching its data, or removes all of them.

:mod:`sidecar.embedding.orc_file` does it for ORC; the rest of this module is about Parquet.

Threads decide what each row group gets (:mod:`sidecar.embedding.filters`, :mod:`sidecar.embedding.page_indexes`) while
another thread copies the pages. They work a limited number of bytes ahead. :func:`sidecar.parquet.embed.embed` writes
the result into the file.
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, NamedTuple

from sidecar.conversion.harvest import GOOD, HARVEST_RULES, HarvestRule
from sidecar.conversion.outcome import BLOOM, EXACT, NONE, PAGE_INDEX, Outcome, Way
from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.filters import FilterRules, ParquetFilterMaker
from sidecar.embedding.key_files import notes_on
from sidecar.embedding.orc_file import embed_orc, rules_for, strip_orc
from sidecar.embedding.page_indexes import PageIndexMaker
from sidecar.embedding.prefetch import Prefetch
from sidecar.embedding.report import EmbedReport, has_encrypted_filters
from sidecar.errors import UsageError, enough_memory, refuse_text
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.orc.tail import is_orc, read_tail
from sidecar.parquet.embed import PLACEMENTS, GroupIndexes, Placement, check_embeddable, embed
from sidecar.parquet.encrypted.plain_view import unlock
from sidecar.parquet.encrypted.sealing import NO_KEY
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.run import report_progress
from sidecar.run_log import logged
from sidecar.source import AnyPath, Source, local_path, open_source
from sidecar.target import Target, create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

log = logging.getLogger(__name__)

MOST_THREADS = 4
"""Threads that build indexes by default, at most. One more thread copies pages."""


@dataclass(frozen=True)
class EmbedOptions:
    """The indexes that a Parquet file gets, and where filters go; see :func:`embed_file`."""

    filters: FilterRules = field(default_factory=FilterRules)
    page_index: bool = False
    placement: Placement = "end"


def check_rules(harvest: str, placement: str) -> None:
    """Raise :class:`UsageError` for a rule of harvest or a placement that does not exist."""
    if harvest not in HARVEST_RULES or placement not in PLACEMENTS:
        raise UsageError(f"harvest is one of {HARVEST_RULES}, placement one of {PLACEMENTS}")


@logged(log, EmbedReport.log_line, EmbedReport.warnings)
@enough_memory()
def embed_file(
    source: AnyPath,
    target: AnyPath,
    *,
    bloom: Sequence[str] = (),
    page_index: bool = False,
    fpp: float = DEFAULT_FPP,
    placement: Placement = "end",
    harvest: HarvestRule = GOOD,
    threads: int | None = None,
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
) -> EmbedReport:
    """Write the Parquet or ORC file ``source`` with filters on ``bloom`` and page indexes to the new file ``target``.

    Pages are copied as bytes, and the footer keeps everything that is not about indexes. ``bloom`` names leaf columns
    by dotted paths. ``fpp`` is the target false-positive rate. ``placement`` puts filters at the ``end`` of the file or
    after each ``row-group``. ``harvest`` says which filters and page indexes of the file are reused: ``good`` (filters
    whose bits show at most about ``fpp``), ``always`` or ``never``; those of other columns stay in any case, unless
    they are known to lose rows. ``threads`` build indexes while another thread copies; by default one per core, at
    most four. ``io`` opens and writes files, by default as the paths say.

    An ORC file gets filters of the size that ORC writers choose: in every stripe, or in none if some stripe cannot have
    them. It always has its row index, and its filters have one place, so ``page_index`` and ``placement`` raise
    :class:`UsageError`.

    An encrypted Parquet file is read with ``encryption_keys`` and stays encrypted with the same keys: new indexes with
    the key of their column, the footer with its own. A column whose key is missing keeps its indexes and gets no new
    ones; then filters can only be at the end. DuckDB does not read encrypted files with filters.

    Damage costs only the column chunk (in ORC: the column) that it hits, and the report says so. After an error nothing
    is at ``target``. Raises :class:`UsageError` for unknown columns, options of the other format, and a target that
    exists; :class:`UnsupportedFeatureError` for encrypted files without keys, for files that refer to other files, and
    for ORC files in which no reader would use a filter; :class:`DamagedFileError` and :class:`StorageError`.
    """
    refuse_text(bloom=bloom)
    source, target = os.fspath(source), os.fspath(target)
    check_rules(harvest, placement)
    with _opened(source, target, io) as opened:
        if is_orc(opened):
            _check_orc_options(page_index, placement)
            tail = read_tail(opened)
            orc_rules = rules_for(tail, bloom, fpp, harvest)
            with create_target(target, io) as sink:
                return embed_orc(opened, tail, sink, orc_rules, threads or _threads())
        unlocked = unlock(opened, encryption_keys)
        footer = read_footer(unlocked)
        leaves = tuple(find_leaf(footer, name) for name in dict.fromkeys(bloom))
        rules = FilterRules(leaves, check_fpp(fpp), harvest)
        with create_target(target, io) as sink:
            wanted = EmbedOptions(rules, page_index, placement)
            report = embed_into(unlocked, footer, sink, wanted, threads)
            notes = notes_on(unlocked, footer, target, encryption_keys, io)
        return replace(report, notes=notes)


@logged(log, EmbedReport.log_line, EmbedReport.warnings)
@enough_memory()
def strip_file(
    source: AnyPath,
    target: AnyPath,
    *,
    encryption_keys: EncryptionKeys | None = None,
    io: FileIO | None = None,
) -> EmbedReport:
    """Write the Parquet or ORC file ``source`` without filters and page indexes to the new file ``target``.

    An ORC file keeps its row index. In a Parquet file, indexes between the pages and the footer, where most writers put
    them, are left out; indexes between row groups stay as dead bytes (``written.dead_bytes``), so that no page moves.
    An encrypted file is opened with ``encryption_keys``; columns whose key is missing keep their indexes. ``io`` opens
    and writes files, by default as the paths say. Raises the errors of :func:`embed_file`.
    """
    start = time.monotonic()
    source, target = os.fspath(source), os.fspath(target)
    with _opened(source, target, io) as opened:
        if is_orc(opened):
            with create_target(target, io) as sink:
                return strip_orc(opened, sink)
        unlocked = unlock(opened, encryption_keys)
        footer = read_footer(unlocked)
        check_embeddable(unlocked, footer)
        with create_target(target, io) as sink:
            written = embed(unlocked, footer, sink, _nothing(len(footer.row_groups)))
            notes = notes_on(unlocked, footer, target, encryption_keys, io)
    removed = list(_removed(footer))
    seconds = time.monotonic() - start
    return EmbedReport(source, target, "end", footer.size, written, removed, seconds, notes=notes)


def _nothing(count: int) -> Iterable[GroupIndexes]:
    """Return empty indexes for ``count`` row groups. Progress is first reported before any byte is copied."""
    report_progress("row groups", 0, count)

    def groups() -> Iterator[GroupIndexes]:
        for number in range(count):
            yield GroupIndexes()
            report_progress("row groups", number + 1, count)

    return groups()


def _check_orc_options(page_index: bool, placement: str) -> None:
    """Raise :class:`UsageError` for options that only Parquet files have: ignoring them would look like success."""
    for asked, what in (
        (page_index, "an ORC file always has its row index: there is no page index to build"),
        (placement != "end", "ORC filters are in the index of their stripe: there is no placement to choose"),
    ):
        if asked:
            raise UsageError(what)


def embed_into(
    source: Source,
    footer: Footer,
    target: Target,
    wanted: EmbedOptions,
    threads: int | None = None,
) -> EmbedReport:
    """Do the work of :func:`embed_file` from an open Parquet source to an empty target."""
    start = time.monotonic()
    check_embeddable(source, footer)
    outcomes: list[Outcome] = []
    makers = _Makers(source, footer, wanted)
    count = len(footer.row_groups)
    ahead = Prefetch(makers.make, count, threads or _threads(), _length)
    with closing(makers), closing(ahead):
        written = embed(source, footer, target, _in_turn(ahead, count, outcomes), placement=wanted.placement)
    return EmbedReport(
        source.name,
        target.name,
        wanted.placement,
        footer.size,
        written,
        outcomes,
        time.monotonic() - start,
        wanted.filters.fpp,
        encrypted_filters=has_encrypted_filters(footer, outcomes),
    )


def _threads() -> int:
    return min(os.cpu_count() or 1, MOST_THREADS)


class _Made(NamedTuple):
    """The indexes of a row group, and what became of each old or requested index."""

    indexes: GroupIndexes
    outcomes: list[Outcome]


class _Makers:
    """Makes the indexes of row groups, in any order. Each thread has its own readers."""

    def __init__(self, source: Source, footer: Footer, wanted: EmbedOptions) -> None:
        self._source = source
        self._footer = footer
        self._wanted = wanted
        self._local = threading.local()
        self._filters: list[ParquetFilterMaker] = []

    def make(self, ordinal: int) -> _Made:
        """Make the filters and page indexes of one row group."""
        if not hasattr(self._local, "filters"):
            self._local.filters = ParquetFilterMaker(self._source, self._footer, self._wanted.filters)
            self._filters.append(self._local.filters)
        filters: ParquetFilterMaker = self._local.filters
        rules = self._wanted.filters
        pages = PageIndexMaker(self._source, self._footer, build=self._wanted.page_index, harvest=rules.harvest)
        group = self._footer.row_groups[ordinal]
        work = filters.begin(group)
        # Building page indexes walks the pages anyway, so it also feeds the filters that wait for values.
        indexed, of_pages = pages.make(group, work.waiting)
        made, of_filters = filters.finish(work)
        return _Made(GroupIndexes(made, indexed.column_indexes, indexed.offset_indexes), of_filters + of_pages)

    def close(self) -> None:
        """Close the readers of all threads. Call it only after the threads have ended."""
        for filters in self._filters:
            filters.close()


def _length(made: _Made) -> int:
    indexes = made.indexes
    kinds = (indexes.filters, indexes.column_indexes, indexes.offset_indexes)
    return sum(len(piece) for kind in kinds for piece in kind.values() if isinstance(piece, bytes))


def _in_turn(made: Iterable[_Made], count: int, outcomes: list[Outcome]) -> Iterator[GroupIndexes]:
    """Yield the indexes of each row group, add what became of them to ``outcomes``, and report progress."""
    for number, group in enumerate(made):
        report_progress("row groups", number + 1, count)
        outcomes += group.outcomes
        yield group.indexes


def _removed(footer: Footer) -> Iterator[Outcome]:
    for group in footer.row_groups:
        for chunk in group.columns:
            place = (footer.name, group.ordinal, chunk.leaf.path)
            way: Way = EXACT if chunk.encrypted else NONE
            reason = NO_KEY if chunk.encrypted else "removed"
            if chunk.bloom_filter_offset:
                yield Outcome(*place, BLOOM, way, reason=reason)
            if chunk.column_index_offset or chunk.offset_index_offset:
                yield Outcome(*place, PAGE_INDEX, way, reason=reason)


@contextmanager
def _opened(source: str, target: str, io: FileIO | None) -> Iterator[Source]:
    if _same_file(source, target):
        raise UsageError("source and target are the same file", file=source, hint="Write to another path.")
    with closing(open_source(source, io)) as opened:
        yield opened


def _same_file(source: str, target: str) -> bool:
    paths = local_path(source), local_path(target)
    if paths[0] is not None and paths[1] is not None and os.path.exists(paths[1]):
        return os.path.exists(paths[0]) and os.path.samefile(paths[0], paths[1])
    return source == target
