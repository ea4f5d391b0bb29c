"""Embeds filters and page indexes into a data file without touching its data, or removes all of them.

:mod:`sidecar.embedding.orc_file` does it for ORC; the rest of this module is about Parquet.

Threads decide what each row group gets (:mod:`sidecar.embedding.filters`, :mod:`sidecar.embedding.page_indexes`) while
another thread copies the pages. They work a limited number of bytes ahead. :func:`sidecar.parquet.embed.embed` writes
the result into the file.
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from typing import NamedTuple

from sidecar.access import Access
from sidecar.bundle.kinds.declared import BLOOM, PAGE_INDEX
from sidecar.conversion.outcome import IndexPlace, Outcome
from sidecar.conversion.reuse import GOOD, REUSE_RULES, FilterRules
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.embedding.filters import ParquetFilterMaker, locked_indexes
from sidecar.embedding.key_files import notes_on
from sidecar.embedding.orc_file import WAITING_BYTES, embed_orc, strip_orc
from sidecar.embedding.page_indexes import PageIndexMaker
from sidecar.embedding.report import EmbedReport, has_encrypted_filters
from sidecar.errors import StorageError, UsageError, enough_memory
from sidecar.files import ORC
from sidecar.filters.sizing import DEFAULT_FPP, check_fpp
from sidecar.many_files.each import known_format
from sidecar.parquet.embed import PLACEMENTS, GroupIndexes, embed
from sidecar.parquet.footer import Footer
from sidecar.results.choices import Placement, ReuseRule
from sidecar.run import in_turn, report_progress, threads_of
from sidecar.storage.locations import local_path
from sidecar.storage.source import Source
from sidecar.storage.target import Target

MOST_THREADS = 4
"""Threads that build indexes by default, at most: of one file, or spread over several. One more thread copies pages."""


@dataclass(frozen=True)
class NewIndexes:
    """The indexes that files get, as :func:`sidecar.embed` takes them.

    ``threads`` build the indexes of one file while another thread copies.
    """

    bloom: Sequence[str]
    page_index: bool
    fpp: float = DEFAULT_FPP
    placement: Placement = "end"
    reuse: ReuseRule = GOOD
    threads: int | None = None

    def check(self) -> None:
        """Raise :class:`UsageError` if nothing is asked for, and for a rule, a placement or a rate that cannot be."""
        if not self.bloom and not self.page_index:
            raise UsageError(
                "nothing to embed",
                hint="Name columns for filters (--bloom A,B), or ask for page indexes (--page-index).",
            )
        if self.reuse not in REUSE_RULES or self.placement not in PLACEMENTS:
            raise UsageError(f"reuse is one of {REUSE_RULES}, placement one of {PLACEMENTS}")
        check_fpp(self.fpp)


@dataclass(frozen=True)
class IndexedFileWriter:
    """The work for one file: write it with new indexes."""

    indexes: NewIndexes

    def __call__(self, access: Access, source: str, target: str) -> EmbedReport:
        """Write the new file ``target``. Damage costs the column chunk (in ORC: the column) that it hits.

        Raises :class:`UsageError` for unknown columns, options of the other format, and a target that exists;
        :class:`UnsupportedFeatureError` for encrypted files without keys, for files that refer to other files, and for
        ORC files in which no reader would use a filter; :class:`DamagedFileError` and :class:`StorageError`.
        """
        wanted = self.indexes
        with enough_memory(), _opened(access, source, target) as file:
            rules = FilterRules(tuple(map(file.number_of, dict.fromkeys(wanted.bloom))), wanted.fpp, wanted.reuse)
            return write_anew(access, file, target, rules, wanted)


def strip_file(access: Access, source: str, target: str) -> EmbedReport:
    """Write the new file ``target`` without filters and page indexes. Raises as :class:`IndexedFileWriter`."""
    with enough_memory(), _opened(access, source, target) as file:
        return write_anew(access, file, target, None, NewIndexes((), page_index=False))


def write_anew(
    access: Access, file: OpenParquet | OpenOrc, target: str, rules: FilterRules | None, indexes: NewIndexes
) -> EmbedReport:
    """Write an open file to the new file ``target``, with the filters of ``rules``, or without any indexes."""
    if isinstance(file, OpenOrc):
        if _only_for_parquet(indexes):
            raise _wrong_option(indexes, file.name)
        threads = threads_of(indexes.threads, MOST_THREADS)
        with access.create(target) as sink:
            return strip_orc(file, sink) if rules is None else embed_orc(file, sink, rules, threads)
    with access.create(target) as sink:
        report = _strip_parquet(file, sink) if rules is None else embed_parquet(file, sink, rules, indexes)
        return replace(report, notes=notes_on(access, file.source, file.footer, target))


def _strip_parquet(file: OpenParquet, target: Target) -> EmbedReport:
    start = time.monotonic()
    file.check_embeddable()
    written = embed(file.source, file.footer, target, _no_indexes(file.parts))
    removed = list(_removed(file.footer))
    return EmbedReport(file.source.name, target.name, "end", file.size, written, removed, time.monotonic() - start)


def _no_indexes(count: int) -> Iterable[GroupIndexes]:
    """Return empty indexes for ``count`` row groups. Progress is first reported before any byte is copied."""
    report_progress("row groups", 0, count)

    def groups() -> Iterator[GroupIndexes]:
        for number in range(count):
            yield GroupIndexes()
            report_progress("row groups", number + 1, count)

    return groups()


def check_formats(files: Iterable[str], wanted: NewIndexes, access: Access) -> None:
    """Raise :class:`UsageError` if one of the files is ORC and an option is only for Parquet files.

    Reads the magic of the files if there is such an option. A file that cannot be read is not judged here.
    """
    if not _only_for_parquet(wanted):
        return
    for file in files:
        try:
            is_wrong = known_format(file, access) == ORC
        except StorageError:
            continue
        if is_wrong:
            raise _wrong_option(wanted, file)


def _only_for_parquet(wanted: NewIndexes) -> str:
    """Return why an option is not for ORC files: ignoring it would look like success. Empty if all are."""
    if wanted.page_index:
        return "an ORC file always has its row index: there is no page index to build"
    if wanted.placement != "end":
        return "ORC filters are in the index of their stripe: there is no placement to choose"
    return ""


def _wrong_option(wanted: NewIndexes, file: str) -> UsageError:
    place = file.rpartition("/")[0]
    parquet = f"{place}/*.parquet" if place else "*.parquet"
    return UsageError(_only_for_parquet(wanted), file=file, hint=f"Name only the Parquet files, such as '{parquet}'.")


def embed_parquet(file: OpenParquet, target: Target, rules: FilterRules, indexes: NewIndexes) -> EmbedReport:
    """Write an open file with new indexes to an empty target."""
    start, source, footer = time.monotonic(), file.source, file.footer
    file.check_embeddable()
    outcomes: list[Outcome] = []
    maker = _GroupIndexMaker(source, footer, rules, indexes.page_index)
    ahead = in_turn(maker.make, range(file.parts), threads_of(indexes.threads, MOST_THREADS), WAITING_BYTES)
    with closing(maker), closing(ahead):
        groups = _reported(ahead, file.parts, outcomes)
        written = embed(source, footer, target, groups, placement=indexes.placement)
    return EmbedReport(
        source.name,
        target.name,
        indexes.placement,
        footer.size,
        written,
        outcomes,
        time.monotonic() - start,
        rules.fpp,
        encrypted_filters=has_encrypted_filters(footer, outcomes),
    )


class _GroupOutcome(NamedTuple):
    """The indexes of a row group, and what became of each old or requested index."""

    indexes: GroupIndexes
    outcomes: list[Outcome]

    @property
    def size(self) -> int:
        """Bytes of the new indexes."""
        kinds = (self.indexes.filters, self.indexes.column_indexes, self.indexes.offset_indexes)
        return sum(len(piece) for kind in kinds for piece in kind.values() if isinstance(piece, bytes))


class _GroupIndexMaker:
    """Makes the indexes of row groups, in any order. Each thread has its own readers."""

    def __init__(self, source: Source, footer: Footer, rules: FilterRules, page_index: bool) -> None:
        self._source = source
        self._footer = footer
        self._rules = rules
        self._page_index = page_index
        self._local = threading.local()
        self._filters: list[ParquetFilterMaker] = []

    def make(self, ordinal: int) -> _GroupOutcome:
        """Make the filters and page indexes of one row group."""
        if not hasattr(self._local, "filters"):
            self._local.filters = ParquetFilterMaker(self._source, self._footer, self._rules)
            self._filters.append(self._local.filters)
        filters: ParquetFilterMaker = self._local.filters
        pages = PageIndexMaker(self._source, self._footer, build=self._page_index, reuse=self._rules.reuse)
        group = self._footer.row_groups[ordinal]
        work = filters.begin(group)
        # Building page indexes walks the pages anyway, so it also feeds the filters that wait for values.
        indexed, of_pages = pages.make(group, work.waiting)
        made, of_filters = filters.finish(work)
        return _GroupOutcome(GroupIndexes(made, indexed.column_indexes, indexed.offset_indexes), of_filters + of_pages)

    def close(self) -> None:
        """Close the readers of all threads. Call it only after the threads have ended."""
        for filters in self._filters:
            filters.close()


def _reported(made: Iterable[_GroupOutcome], count: int, outcomes: list[Outcome]) -> Iterator[GroupIndexes]:
    """Yield the indexes of each row group, add what became of them to ``outcomes``, and report progress."""
    for number, group in enumerate(made):
        report_progress("row groups", number + 1, count)
        outcomes += group.outcomes
        yield group.indexes


def _removed(footer: Footer) -> Iterator[Outcome]:
    for group in footer.row_groups:
        for chunk in group.columns:
            place = footer.name, group.ordinal, chunk.leaf.path
            if chunk.bloom_filter_offset:
                yield IndexPlace(*place, BLOOM).without_index("removed")
            if chunk.column_index_offset or chunk.offset_index_offset:
                yield IndexPlace(*place, PAGE_INDEX).without_index("removed")
        for kind in (BLOOM, PAGE_INDEX):
            yield from locked_indexes(footer.name, group, kind).values()


@contextmanager
def _opened(access: Access, source: str, target: str) -> Iterator[OpenParquet | OpenOrc]:
    if _same_file(source, target):
        raise UsageError("source and target are the same file", file=source, hint="Write to another path.")
    with opened_file(access, source) as opened:
        yield opened


def _same_file(source: str, target: str) -> bool:
    paths = local_path(source), local_path(target)
    if paths[0] is not None and paths[1] is not None and os.path.exists(paths[1]):
        return os.path.exists(paths[0]) and os.path.samefile(paths[0], paths[1])
    return source == target
