"""Reads a sample of a table's row groups: few of them, spread over its files, and not more bytes than allowed.

Files are taken at equal distances in the order of the manifests. Some of them are followed by their neighbours: where
only neighbours have the same values, files far apart tell nothing of how often they do. Of each file, one row group is
sampled, or more if the table has few files. Their footers tell what each column would cost. The bytes are shared among
the columns: small columns are read in all row groups of the sample, large ones in as many as their share pays for.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

from pyiceberg.table import Table

from sidecar.access import Access
from sidecar.data_files.formats import has_encrypted_footer, open_with, read_metadata
from sidecar.data_files.open_file import OpenFile
from sidecar.errors import SidecarError, advisory
from sidecar.iceberg.listing import Listing, SnapshotFile
from sidecar.iceberg.resolve import ColumnsInFile, FoundColumn, TableColumn
from sidecar.iceberg.table_properties import name_mapping_of
from sidecar.indexing.stage_one.fault import reason_of
from sidecar.questions.bounds import Comparable, Unknown
from sidecar.reports.advising.values import SampledValues, ValueSampler
from sidecar.run import report_progress
from sidecar.storage.source import CountingSource

ENCRYPTED = "columns of encrypted files are not judged"
NO_FILE = "no data file was read"
TOO_LARGE = "one of its column chunks is larger than what the sample may read"


@dataclass(frozen=True)
class SampledChunk:
    """One column in one sampled row group."""

    file: int
    """The ordinal of the file in the listing."""
    values: SampledValues
    pages: tuple[tuple[Comparable, Comparable], ...]
    """The lowest and the highest value of each page that has values; empty if they are not known."""
    has_page_index: bool
    """Whether the file has a page index of the column."""
    filter_bytes: int | None
    """The bytes of the file's own filters of the column; 0 if they are unknown, ``None`` without filters."""


@dataclass(frozen=True)
class SampledFile:
    """A file of the sample."""

    file: int
    parts: int
    units: int
    """The parts of the file that get a filter each."""
    sampled: tuple[int, ...]
    """The parts that are in the sample."""


@dataclass
class Sample:
    """What was read."""

    files: dict[int, SampledFile] = field(default_factory=dict)
    """By the file's ordinal in the listing."""
    neighbours: set[frozenset[int]] = field(default_factory=set)
    """The pairs of files in which one is in the sample because it follows the other."""
    chunks: dict[int, list[SampledChunk]] = field(default_factory=dict)
    """By field id."""
    missing: dict[int, set[int]] = field(default_factory=dict)
    """The files in which a column is not stored, by field id. Lookups keep them."""
    not_judged: dict[int, str] = field(default_factory=dict)
    """The reason by field id."""
    part_sizes: list[int] = field(default_factory=list)
    """Bytes of the sampled parts, as stored."""
    page_sizes: list[int] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)
    bytes_read: int = 0
    reads: int = 0


def read_sample(table: Table, listing: Listing, columns: Sequence[TableColumn], parts: int, most_bytes: int) -> Sample:
    """Read at most ``parts`` row groups of the files of a listing, and at most ``most_bytes`` of values in them.

    Metadata of these files (footers, page indexes) is read in addition. Damage of a file or column is a warning.
    """
    with ExitStack() as stack:
        reader = _Reader(table, listing, columns, stack)
        reader.open_files(parts)
        reader.read_columns(most_bytes)
        return reader.finish()


@dataclass
class _OpenedSample:
    """A file of the sample while it is open."""

    listed: SnapshotFile
    file: OpenFile
    chosen: list[int]
    leaves: dict[int, Any]
    """The leaves of the columns that the file has, by field id."""


class _Reader:
    def __init__(self, table: Table, listing: Listing, columns: Sequence[TableColumn], stack: ExitStack) -> None:
        self._access = Access(table.io)
        self._name_mapping = name_mapping_of(table)
        self._schema = table.schema()
        self._listing = listing
        self._columns = {column.field_id: column for column in columns}
        self._stack = stack
        self._opened: list[_OpenedSample] = []
        self._sources: list[CountingSource] = []
        self._sample = Sample()
        self._encrypted: set[int] = set()
        self._reasons: dict[int, str] = {}

    def open_files(self, parts: int) -> None:
        """Open the files of the sample, and choose their parts."""
        files = [file for file in self._listing.files if file.not_indexable is None]
        chosen, following = spread_with_neighbours(len(files), parts)
        self._sample.neighbours = {frozenset((files[n].ordinal, files[n - 1].ordinal)) for n in following}
        for done, number in enumerate(chosen):
            report_progress("reading footers", done, len(chosen))
            self._open(files[number])
        for number, opened in enumerate(self._opened):
            share = -(-(parts - number) // len(self._opened))
            rotated = number / len(self._opened)  # so that not all are the first ones of their files
            opened.chosen = spread(opened.file.parts, max(share, 1), rotated)
            file, ordinal = opened.file, opened.listed.ordinal
            self._sample.files[ordinal] = SampledFile(ordinal, file.parts, len(file.units), tuple(opened.chosen))
            self._sample.part_sizes += [opened.file.part_size(part) for part in opened.chosen]

    def _open(self, listed: SnapshotFile) -> None:
        try:
            source = CountingSource(self._access.open(listed.path, listed.file_size))
        except Exception as error:  # a FileIO may raise anything
            self._sample.warnings.append(f"not sampled: {listed.path}: {reason_of(error)}")
            return
        self._stack.callback(source.close)
        self._sources.append(source)
        try:
            file = open_with(source, read_metadata(source, listed.data_file.file_format.value))
            self._stack.callback(file.close)
            leaves = self._resolve(file, listed)
        except Exception as error:  # a broken footer may cause any error; it costs this file alone
            advisory(error)
            if has_encrypted_footer(source):
                self._encrypted.update(self._columns)
            self._sample.warnings.append(f"not sampled: {listed.path}: {reason_of(error)}")
            return
        if file.parts:
            self._opened.append(_OpenedSample(listed, file, [], leaves))

    def _resolve(self, file: OpenFile, listed: SnapshotFile) -> dict[int, Any]:
        leaves, columns = {}, ColumnsInFile(file.leaves, self._schema, self._name_mapping, listed.identity)
        for field_id in self._columns:
            found = columns.find(field_id)
            if isinstance(found, FoundColumn):
                leaves[field_id] = found.leaf
                if file.is_encrypted(found.leaf):
                    self._encrypted.add(field_id)
            elif isinstance(found, Unknown):
                self._sample.missing.setdefault(field_id, set()).add(listed.ordinal)
                self._reasons.setdefault(field_id, str(found.reason))
        return leaves

    def read_columns(self, most_bytes: int) -> None:
        """Read the values of the columns, the cheapest first, so that what they leave is for the others."""
        wanted: list[tuple[int, int, list[tuple[int, _OpenedSample, int]]]] = []
        for field_id in self._columns:
            if field_id in self._encrypted:
                continue
            costs = [
                (opened.file.cost(part, opened.leaves[field_id]), opened, part)
                for opened in self._opened
                if field_id in opened.leaves
                for part in opened.chosen
            ]
            wanted.append((sum(cost for cost, _, _ in costs), field_id, costs))
        left = most_bytes
        for done, (_, field_id, costs) in enumerate(sorted(wanted, key=lambda one: one[:2])):
            report_progress("reading columns", done, len(wanted))
            share = left // (len(wanted) - done)
            for number in spread_order(len(costs)):
                cost, opened, part = costs[number]
                if cost <= share:
                    share -= cost
                    left -= cost
                    self._read(field_id, opened, part)
            if costs:
                self._reasons.setdefault(field_id, TOO_LARGE)

    def _read(self, field_id: int, opened: _OpenedSample, part: int) -> None:
        column, leaf = self._columns[field_id], opened.leaves[field_id]
        sampler = ValueSampler(column.type)
        try:
            for found in opened.file.values(part, leaf, column.type):
                sampler.add(found.unit, found.values, is_run_of_rows=found.is_run_of_rows)
            values = sampler.finish()
            bounds = opened.file.page_bounds(part, leaf)
        except SidecarError as error:
            self._sample.warnings.append(f"not sampled: {column.path} in {opened.listed.path}: {reason_of(error)}")
            self._reasons[field_id] = reason_of(error)
            return
        pages = values.slices
        if bounds is not None:
            pairs = zip(bounds.lower, bounds.upper, strict=True)
            pages = tuple((low, high) for low, high in pairs if low is not None and high is not None)
        own = opened.file.filter_bytes(part, leaf)
        chunk = SampledChunk(opened.listed.ordinal, values, pages, bounds is not None, own)
        self._sample.chunks.setdefault(field_id, []).append(chunk)

    def finish(self) -> Sample:
        """Return the sample."""
        sample = self._sample
        unread = {i: self._reasons.get(i, NO_FILE) for i in self._columns if i not in sample.chunks}
        sample.not_judged = unread | dict.fromkeys(self._encrypted, ENCRYPTED)
        sample.page_sizes = [size for opened in self._opened for size in opened.file.page_sizes]
        sample.bytes_read = sum(source.bytes_read for source in self._sources)
        sample.reads = sum(source.reads for source in self._sources)
        return sample


def spread(count: int, most: int, start: float = 0.5) -> list[int]:
    """Return at most ``most`` of ``count`` ordinals at equal distances; ``start`` (0 to 1) moves the first one."""
    if count <= most:
        return list(range(count))
    return [int((number + start) * count / most) for number in range(most)]


def spread_with_neighbours(count: int, most: int) -> tuple[list[int], list[int]]:
    """Return at most ``most`` of ``count`` ordinals, a quarter of them each the next one of another; and that quarter.

    Without neighbours if all ordinals are taken, or too few for neighbours.
    """
    pairs = most // 4
    if count <= most or not pairs:
        return spread(count, most), []
    chosen = spread(count, most - pairs)
    following = [number + 1 for number in chosen[:: len(chosen) // pairs][:pairs]]
    following = [number for number in following if number < count and number not in chosen]
    return sorted([*chosen, *following]), following


def spread_order(count: int) -> list[int]:
    """Return the ordinals below ``count`` so that the first ones of the list are spread over all: 0, 8, 4, 12, 2 ..."""
    bits = max(count - 1, 0).bit_length()
    order = [int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits)] if bits else [0]
    return [number for number in order if number < count]
