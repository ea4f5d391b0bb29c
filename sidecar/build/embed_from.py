"""``embed --from``: a file's filters and page indexes out of a sidecar, put back byte for byte; no page is read.

One filter of a bundle costs reading its whole group. For a single file out of many that can be more than reading
the column's values, and then the filter is built from those; the report names the way and why. All files of a
sidecar together (:func:`embed_all_from`) read each group once.
"""

from __future__ import annotations

import os
import time
from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from sidecar.build.embed import EmbedReport, Progress
from sidecar.build.embed_filters import FilterMaker, FilterRules, Outcome, encode_filter
from sidecar.build.embed_pages import PageIndexMaker
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.convert.match import Match, find_file, is_plain, listed_files
from sidecar.convert.outcome import BLOOM, PAGE_INDEX
from sidecar.convert.restore import (
    FilterPool,
    Part,
    filter_parts,
    missing_reasons,
    restore_pages,
)
from sidecar.errors import StorageError, UsageError
from sidecar.filters.sizing import DEFAULT_FPP
from sidecar.parquet.embed import GroupIndexes, Piece, check_embeddable, embed
from sidecar.parquet.footer import ColumnChunk, Footer, RowGroup, read_footer
from sidecar.parquet.inspect import find_leaf
from sidecar.source import Source, local_path, open_source
from sidecar.target import Target, create_target

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

WAYS = ("auto", "exact", "values")

LARGE_BUNDLE = 64 << 20
"""Bytes of other files' filters that are read so that a plain file's own come back to the byte."""


@dataclass(frozen=True)
class Choice:
    """What is to come out of a sidecar: ``bloom`` and ``page_index`` name leaves, ``None`` all of them."""

    bloom: Sequence[str] | None = None
    page_index: Sequence[str] | None = None
    way: str = "auto"
    placement: str = "end"


@dataclass
class RestoreReport(EmbedReport):
    """As for embedding; ``exact`` means the bytes that the sidecar has, or those of the file itself."""

    sidecar: str = ""
    sidecar_bytes: int = 0
    """Bytes read from the sidecar for this file, or for all files of one call."""

    def to_dict(self) -> dict[str, Any]:
        """Plain data, as :meth:`EmbedReport.to_dict`, with ``sidecar`` and ``sidecar_bytes``."""
        return {**super().to_dict(), "sidecar": self.sidecar, "sidecar_bytes": self.sidecar_bytes}


@dataclass
class _Work:
    """One file at work: what the sidecar has for it, and which leaves are built from values instead."""

    footer: Footer
    matches: list[Match]
    parts: list[Part]
    from_values: dict[int, str] = field(default_factory=dict)
    """Leaf index and the reason."""

    @property
    def exact_parts(self) -> list[Part]:
        """Parts that are read from the sidecar."""
        return [part for part in self.parts if part.leaf.index not in self.from_values]


def embed_from(
    sidecar: str | SidecarFile,
    source: str,
    target: str,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    way: str = "auto",
    placement: str = "end",
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> RestoreReport:
    """Write the Parquet file ``source`` with what a ``sidecar`` has of it to the new file ``target``.

    ``bloom`` and ``page_index`` name the leaf columns whose filters and page indexes are wanted, ``None`` all, an
    empty list none. Pages are copied, not read. ``way``: ``exact`` takes the filters out of the sidecar whatever
    that costs; ``values`` builds them from the columns; ``auto`` compares the bytes to be read: for a file of a table
    strictly, for a plain file, which should come back to the byte, beyond 64 MiB of other files' filters. Indexes
    that the file has and the sidecar has not stay.

    Raises :class:`UsageError` if the file is not the one that was indexed (its path may differ; size, rows and row
    groups, and for plain files what the footer says of the pages, must agree), and as
    :func:`sidecar.build.embed.embed_file`.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io)
        data = stack.enter_context(closing(open_source(source, io)))
        pool = stack.enter_context(closing(FilterPool()))
        start = time.monotonic()
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        choice = Choice(bloom, page_index, _checked_way(way), placement)
        work = _plan(opened, read_footer(data), choice)
        check_embeddable(data, work.footer)
        pool.load(work.exact_parts)
        with create_target(target, io) as sink:
            report = _write(opened, data, sink, work, choice, pool, progress)
        report.seconds = time.monotonic() - start
        report.sidecar_bytes = opened.index_bytes - before
        return report


def embed_all_from(
    sidecar: str | SidecarFile,
    folder: str,
    sources: Sequence[str] | None = None,
    *,
    bloom: Sequence[str] | None = None,
    page_index: Sequence[str] | None = None,
    placement: str = "end",
    io: FileIO | None = None,
    progress: Progress | None = None,
) -> list[RestoreReport]:
    """As :func:`embed_from` for many files, each group of the sidecar read once: into new files in ``folder``.

    ``sources``: all files that the sidecar speaks of by default, at the paths that it has for them. The new files
    lie in ``folder`` as they lay below the deepest folder that they have in common.
    """
    with ExitStack() as stack:
        opened = _open_sidecar(stack, sidecar, io)
        before = opened.index_bytes if isinstance(sidecar, SidecarFile) else 0
        paths = list(sources) if sources is not None else [file.path for file in listed_files(opened)]
        targets = targets_in(folder, paths)
        choice = Choice(bloom, page_index, "exact", placement)
        pool = stack.enter_context(closing(FilterPool()))
        parts: list[Part] = []
        for path in paths:
            with closing(open_source(path, io)) as data:
                parts += _plan(opened, read_footer(data), choice).exact_parts
        pool.load(parts)
        reports = []
        for number, (path, target) in enumerate(zip(paths, targets, strict=True)):
            if progress is not None:
                progress("files", number, len(paths))
            start = time.monotonic()
            with closing(open_source(path, io)) as data:
                work = _plan(opened, read_footer(data), choice)
                check_embeddable(data, work.footer)
                _make_folder(target)
                with create_target(target, io) as sink:
                    report = _write(opened, data, sink, work, choice, pool, None)
            report.seconds = time.monotonic() - start
            reports.append(report)
        for report in reports:
            report.sidecar_bytes = opened.index_bytes - before
        return reports


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
    return ["/".join([folder.rstrip("/"), *parts[common:]]) for parts in split]


def _make_folder(target: str) -> None:
    """The folder of a local target; stores have none."""
    local = local_path(target)
    if local is not None:
        try:
            os.makedirs(os.path.dirname(local) or ".", exist_ok=True)
        except OSError as error:
            raise StorageError(f"cannot make the folder: {error.strerror}", file=target) from error


def _open_sidecar(stack: ExitStack, sidecar: str | SidecarFile, io: FileIO | None) -> SidecarFile:
    if isinstance(sidecar, SidecarFile):
        return sidecar
    opened = SidecarFile.open(stack.enter_context(closing(open_source(sidecar, io))))
    if not opened.segments:
        raise UsageError("the Puffin file is no sidecar", file=sidecar, found="; ".join(opened.warnings[:1]))
    return opened


def _checked_way(way: str) -> str:
    if way not in WAYS:
        raise UsageError("unknown way", expected=" or ".join(WAYS), found=way)
    return way


def _plan(sidecar: SidecarFile, footer: Footer, choice: Choice) -> _Work:
    matches = find_file(sidecar, footer)
    work = _Work(footer, matches, filter_parts(matches, footer, _indexes(footer, choice.bloom)))
    by_leaf: dict[int, list[Part]] = defaultdict(list)
    for part in work.parts:
        by_leaf[part.leaf.index].append(part)
    for leaf, parts in by_leaf.items():
        reason = _why_values(footer, leaf, parts, choice.way)
        if reason:
            work.from_values[leaf] = reason
    return work


def _indexes(footer: Footer, names: Sequence[str] | None) -> set[int] | None:
    return None if names is None else {find_leaf(footer, name).index for name in names}


def _why_values(footer: Footer, leaf: int, parts: Sequence[Part], way: str) -> str:
    """Why a column's filters are built from its values; empty if they are taken out of the sidecar."""
    if footer.columns[leaf].encoding.not_indexable is not None or way == "exact":
        return ""
    if way == "values":
        return "as asked for"
    bundle = sum(part.group.layout.length for part in parts)
    values = sum(footer.row_groups[i].columns[leaf].total_compressed_size for p in parts for i in p.units)
    own = sum(len(part.units) / part.group.layout.members * part.group.layout.length for part in parts)
    allowed = LARGE_BUNDLE + own if is_plain(parts[0].segment) else values
    if bundle <= max(allowed, values):
        return ""
    return f"{values:,} bytes of values cost less than {bundle:,} bytes of the bundle"


def _write(
    sidecar: SidecarFile,
    source: Source,
    target: Target,
    work: _Work,
    choice: Choice,
    pool: FilterPool,
    progress: Progress | None,
) -> RestoreReport:
    """The file with what was planned; ``pool`` has the filters already."""
    outcomes: list[Outcome] = []
    rules = _rules(work)
    with closing(FilterMaker(source, work.footer, rules)) as filters:
        restorer = _Restorer(source, work, choice, pool, filters)
        groups = restorer.groups(outcomes, progress)
        written = embed(source, work.footer, target, groups, placement=choice.placement)
    return RestoreReport(
        source=source.name,
        target=target.name,
        placement=choice.placement,
        size_before=work.footer.size,
        written=written,
        outcomes=outcomes,
        seconds=0.0,
        fpp=rules.fpp,
        sidecar=sidecar.source.name,
    )


def _rules(work: _Work) -> FilterRules:
    """How filters are built from values: at the rate that the sidecar's were built for."""
    leaves = tuple(work.footer.columns[leaf] for leaf in sorted(work.from_values))
    bundles = [part.segment.bundles[part.field_id] for part in work.parts]
    rates = [bundle.toc.fpp for bundle in bundles if bundle.toc.fpp is not None]
    return FilterRules(leaves, min(rates, default=DEFAULT_FPP), even_if_dictionary=True)


class _Restorer:
    """What each row group of one file gets."""

    def __init__(
        self, source: Source, work: _Work, choice: Choice, pool: FilterPool, filters: FilterMaker
    ) -> None:
        self._work = work
        self._pool = pool
        self._filters = filters
        self._pages = PageIndexMaker(source, work.footer, build=False, harvest="good")
        self._parts: dict[tuple[int, int], Part] = {
            (row_group, part.leaf.index): part for part in work.exact_parts for row_group in part.units
        }
        wanted = _indexes(work.footer, choice.page_index)
        self._restored = restore_pages(work.matches, work.footer, wanted)
        self._lacking = {
            (kind, row_group, leaf.index): reason
            for kind, names in ((BLOOM, choice.bloom), (PAGE_INDEX, choice.page_index))
            for row_group, leaf, reason in missing_reasons(work.matches, work.footer, kind)
            if names is None or leaf.path in names
        }

    def groups(self, outcomes: list[Outcome], progress: Progress | None) -> Iterator[GroupIndexes]:
        """Indexes of each row group in order; what became of them is added to ``outcomes``."""
        count = len(self._work.footer.row_groups)
        for group in self._work.footer.row_groups:
            if progress is not None:
                progress("row groups", group.ordinal, count)
            filters, told = self._filters_of(group)
            columns, offsets, told_too = self._page_indexes_of(group)
            outcomes += told + told_too
            yield GroupIndexes(filters, columns, offsets)

    def _filters_of(self, group: RowGroup) -> tuple[Mapping[int, Piece], list[Outcome]]:
        """The sidecar's filters, beside those that the file has and the sidecar has not."""
        mine = {leaf: part for (row_group, leaf), part in self._parts.items() if row_group == group.ordinal}
        work = self._filters.begin(_without(group, mine, filters=True))
        made, told = self._filters.finish(work)
        pieces = dict(made)
        outcomes = {outcome.column: outcome for outcome in told}
        for leaf, reason in self._work.from_values.items():
            path = self._work.footer.columns[leaf].path
            if path in outcomes and outcomes[path].way in ("values", "dictionary"):
                outcomes[path] = replace(outcomes[path], reason=reason)
        for leaf, part in mine.items():
            found = self._pool.get(part, group.ordinal)
            data = encode_filter(found.to_bytes())
            rate = found.estimated_fpp()
            pieces[leaf] = data
            outcomes[part.leaf.path] = Outcome(
                group.ordinal, part.leaf.path, BLOOM, "exact", len(data), rate, rate
            )
        self._add_lacking(group, BLOOM, outcomes)
        return pieces, [outcomes[path] for path in sorted(outcomes)]

    def _page_indexes_of(
        self, group: RowGroup
    ) -> tuple[Mapping[int, Piece], Mapping[int, Piece], list[Outcome]]:
        mine = {
            leaf: found
            for (row_group, leaf), found in self._restored.items()
            if row_group == group.ordinal and found.offset_index is not None
        }
        made, told = self._pages.make(_without(group, mine, filters=False), {})
        columns, offsets = dict(made.column_indexes), dict(made.offset_indexes)
        outcomes = {outcome.column: outcome for outcome in told}
        missing = _first_without(group, {*mine, *offsets})
        for leaf in sorted({leaf for row_group, leaf in self._restored if row_group == group.ordinal}):
            found = self._restored[group.ordinal, leaf]
            path = group.columns[leaf].leaf.path
            place = (group.ordinal, path, PAGE_INDEX)
            if found.offset_index is None:
                outcomes.setdefault(path, Outcome(*place, "none", reason=found.reason))
            elif missing is not None:
                # Readers filter pages only where all columns have an OffsetIndex, and some refuse other files.
                outcomes[path] = Outcome(*place, "none", reason=f"{missing} of the row group has none")
            else:
                offsets[leaf] = found.offset_index
                columns.pop(leaf, None)
                if found.column_index is not None:
                    columns[leaf] = found.column_index
                length = len(found.offset_index) + len(found.column_index or b"")
                outcomes[path] = Outcome(*place, "exact", length, reason=found.reason)
        self._add_lacking(group, PAGE_INDEX, outcomes)
        return columns, offsets, [outcomes[path] for path in sorted(outcomes)]

    def _add_lacking(self, group: RowGroup, kind: str, outcomes: dict[str, Outcome]) -> None:
        for chunk in group.columns:
            reason = self._lacking.get((kind, group.ordinal, chunk.leaf.index))
            if reason is not None:
                path = chunk.leaf.path
                outcomes.setdefault(path, Outcome(group.ordinal, path, kind, "none", reason=reason))


def _without(group: RowGroup, leaves: Collection[int], *, filters: bool) -> RowGroup:
    """The row group as if these leaves had no filters, or no page indexes: those are about to be replaced."""

    def bare(chunk: ColumnChunk) -> ColumnChunk:
        if chunk.leaf.index not in leaves:
            return chunk
        if filters:
            return replace(chunk, bloom_filter_offset=None, bloom_filter_length=None)
        return replace(
            chunk,
            column_index_offset=None,
            column_index_length=None,
            offset_index_offset=None,
            offset_index_length=None,
        )

    return replace(group, columns=tuple(map(bare, group.columns)))


def _first_without(group: RowGroup, leaves: Collection[int]) -> str | None:
    """The first column without an OffsetIndex, if the row group has rows."""
    if not group.num_rows:
        return None
    return next((chunk.leaf.path for chunk in group.columns if chunk.leaf.index not in leaves), None)


__all__ = ["Choice", "RestoreReport", "embed_all_from", "embed_from", "targets_in"]
