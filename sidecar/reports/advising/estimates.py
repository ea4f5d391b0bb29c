"""Estimates from a sample what filters of a column would do: their size, and the files that a lookup would keep.

A lookup keeps the files that have the value, and of the other files that its bounds admit those whose filter is wrong.
Which files admit a value is counted in the manifests. How many of them have it is estimated for each example value from
the other files of the sample. The false-positive rate is that of filters of the size that a build would choose.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from operator import mul
from statistics import fmean

import numpy as np
import numpy.typing as npt

from sidecar.filters.theta import ThetaSketch
from sidecar.iceberg.listing import Listing
from sidecar.indexing.columns import Options
from sidecar.reports.advising.bounds import AdmittedFiles
from sidecar.reports.advising.filters import expected_filter
from sidecar.reports.advising.presence import Presence, Shares
from sidecar.reports.advising.report import ColumnEvidence, PredictedLookup
from sidecar.reports.advising.sample import Sample, SampledChunk

FEWEST_PAGES = 4
"""Row groups with fewer pages say nothing about the order of their values."""
NEIGHBOURS = 2
"""A file has one before it and one after it."""
DENSE = 0.95
"""The share of the values between the lowest and the highest from which a column is taken to have all of them."""


class Estimator:
    """Estimates what filters of one column would do. The sample must have a chunk of the column."""

    def __init__(
        self, listing: Listing, sample: Sample, field_id: int, admitted: AdmittedFiles, options: Options
    ) -> None:
        self._listing = listing
        self._field_id = field_id
        self._admitted = admitted
        self._options = options
        self._chunks = sample.chunks[field_id]
        self._missing = sample.missing.get(field_id, set())
        self._neighbours = sample.neighbours
        self._files = len(listing.files)
        self._units = fmean(file.units for file in sample.files.values())
        self._parts = fmean(file.parts for file in sample.files.values())
        self._of_file: dict[int, list[SampledChunk]] = {}
        for chunk in self._chunks:
            self._of_file.setdefault(chunk.file, []).append(chunk)
        self._files_are_whole = all(
            len(self._of_file.get(number, ())) == file.parts or number in self._missing
            for number, file in sample.files.items()
        )
        self._is_whole = self._files_are_whole and len(sample.files) == self._files

    def evidence(self) -> ColumnEvidence:
        """Return the evidence."""
        options = self._options
        units = [unit for chunk in self._chunks for unit in chunk.values.units]
        filters = [expected_filter(unit.values, unit.distinct, options.fpp, options.max_bits) for unit in units]
        rate = _plain_mean(one.rate for one in filters)
        of_file = 1 - (1 - rate) ** self._units
        per_unit = _plain_mean(one.size for one in filters)
        presences = list(self._presences())
        self._shares = Shares(presences)
        in_table = self._distinct_in_table()
        return ColumnEvidence(
            row_groups_sampled=len(self._chunks),
            bounds_overlap=self._admitted.overlap(),
            distinct_per_file=round(min(self._distinct_per_file(in_table), in_table)),
            distinct_in_table=round(in_table),
            filter_bytes=round(per_unit * self._units * (self._files - self._files_without())),
            filter_rate=rate,
            column_bytes=self._column_bytes(),
            existing=self._existing(presences, of_file),
            absent=None if self._is_dense(in_table) else self._absent(presences, of_file),
            pages_left=self._pages_left(),
            has_page_index=all(chunk.has_page_index for chunk in self._chunks),
            has_filters=all(chunk.filter_bytes is not None for chunk in self._chunks),
        )

    def _existing(self, presences: Sequence[Presence], rate: float) -> PredictedLookup:
        """Return what lookups of existing values keep; ``rate`` is that of a file's filters together."""
        kept = [self._files_kept(one, rate) for one in presences]
        return PredictedLookup(self._mean(presences, [one.admitting for one in presences]), self._mean(presences, kept))

    def _absent(self, presences: Sequence[Presence], rate: float) -> PredictedLookup:
        """Return what lookups of absent values keep."""
        admitting, without = (
            self._mean(presences, [one.files_admitting_next_value for one in presences]),
            self._files_without(),
        )
        return PredictedLookup(admitting, min(admitting, without) + max(admitting - without, 0) * rate)

    def _mean(self, presences: Sequence[Presence], numbers: Sequence[float]) -> float:
        """Return the mean over the distinct values of files; 0 for a column without values.

        The examples are distinct values of parts. One that is in many parts of its file is an example as many times.
        """
        weights = [1 / self._parts_with(one) for one in presences]
        return sum(map(mul, weights, numbers)) / sum(weights) if weights else 0.0

    def _parts_with(self, one: Presence) -> float:
        """Return how many parts of its file have a value."""
        return 1 + (one.own_row_groups_with_it if self._files_are_whole else self._shares.of(one) * (self._parts - 1))

    def _is_dense(self, in_table: float) -> bool:
        """Whether the table has, as far as an estimate can tell, every value between its lowest and its highest."""
        between = self._admitted.values_between()
        return between is not None and in_table >= DENSE * between

    def _files_kept(self, one: Presence, rate: float) -> float:
        """Return the files that a lookup of a value keeps."""
        others, parts = one.admitting - 1, 1.0 if self._files_are_whole else self._parts
        if self._files_are_whole:
            far = one.found / one.asked if one.asked else self._shares.mean
        else:
            far = self._shares.in_file(one, parts)
        near = self._shares.in_neighbour(parts)
        beside = 0 if near is None else min(others, NEIGHBOURS)
        having = beside * (near or 0.0) + (others - beside) * far
        return 1 + having + (others - having) * rate

    def _presences(self) -> Iterator[Presence]:
        for chunk in self._chunks:
            far, near = np.zeros((2, 2, len(chunk.values.examples)), np.int64)  # asked and found of each example
            for file in self._of_file:
                if file != chunk.file:
                    group = near if frozenset((file, chunk.file)) in self._neighbours else far
                    group += self._looked_for(chunk, file)
            siblings = [other for other in self._of_file[chunk.file] if other is not chunk]
            again = [other.values.holds(chunk.values.hashes)[0] for other in siblings]
            for place, example in enumerate(chunk.values.examples):
                value = example.value
                missing = sum(self._admitted.admits(file, value) for file in self._missing)
                yield Presence(
                    admitting=max(self._admitted.count(value), 1),
                    files_admitting_next_value=self._admitted.count_beside(value),
                    asked=int(far[0, place]) + missing,
                    found=int(far[1, place]) + missing,
                    asked_near=int(near[0, place]),
                    found_near=int(near[1, place]),
                    own_row_groups_with_it=sum(bool(held[place]) for held in again),
                )

    def _looked_for(self, chunk: SampledChunk, file: int) -> npt.NDArray[np.int64]:
        """Return how many parts of a file could have each example of a chunk, and how many do: int64 [2, examples].

        If files are sampled whole, the file is counted, not its parts.
        """
        admits = np.array([self._admitted.admits(file, example.value) for example in chunk.values.examples], np.bool_)
        answers = [other.values.holds(chunk.values.hashes) for other in self._of_file[file]]
        known = np.array([known & admits for _, known in answers])
        held = np.array([held for held, _ in answers]) & known
        if self._files_are_whole:
            return np.array([known.any(0), held.any(0)], np.int64)
        return np.array([known.sum(0), held.sum(0)], np.int64)

    def _files_without(self) -> int:
        """Return how many files do not store the column. Without an index they are kept."""
        seen = len(self._missing) + len(self._of_file)
        return round(len(self._missing) / seen * self._files)

    def _distinct_in_table(self) -> float:
        sampled = ThetaSketch.union([chunk.values.sketch for chunk in self._chunks]).estimate
        sampled = max(sampled, *(chunk.values.distinct for chunk in self._chunks))
        if self._is_whole:
            return sampled
        each = fmean(chunk.values.distinct for chunk in self._chunks)
        most = each * self._parts * (self._files - self._files_without())
        share = self._share_of_other_parts()
        return max(sampled, min(most, each / share if share else most))

    def _share_of_other_parts(self) -> float:
        """Return the share of other sampled parts that have a value, on average over values and parts."""
        asked = found = 0
        for chunk in self._chunks:
            for other in self._chunks:
                if other is not chunk and frozenset((other.file, chunk.file)) not in self._neighbours:
                    held, known = other.values.holds(chunk.values.hashes)
                    asked += int(known.sum())
                    found += int((held & known).sum())
        return found / asked if asked else 0.0

    def _distinct_per_file(self, in_table: float) -> float:
        if self._files_are_whole:
            return fmean(self._union(chunks) for chunks in self._of_file.values())
        each = fmean(chunk.values.distinct for chunk in self._chunks)
        if in_table <= each:
            return each
        return in_table * float(1 - (1 - each / in_table) ** self._parts)

    @staticmethod
    def _union(chunks: Sequence[SampledChunk]) -> float:
        if len(chunks) == 1:
            return chunks[0].values.distinct
        return ThetaSketch.union([chunk.values.sketch for chunk in chunks]).estimate

    def _column_bytes(self) -> int | None:
        sizes = [(file.data_file.column_sizes or {}).get(self._field_id) for file in self._listing.files]
        known = [size for size in sizes if size is not None]
        return sum(known) if len(known) == len(sizes) else None

    def _pages_left(self) -> float | None:
        shares = [
            sum(low <= example.value <= high for low, high in chunk.pages) / len(chunk.pages)  # type: ignore[operator]
            for chunk in self._chunks
            if len(chunk.pages) >= FEWEST_PAGES
            for example in chunk.values.examples
        ]
        return fmean(shares) if shares else None


def _plain_mean(numbers: Iterable[float]) -> float:
    """The mean; 0 of no numbers, which are those of a column without values."""
    found = list(numbers)
    return fmean(found) if found else 0.0
