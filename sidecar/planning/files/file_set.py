"""Holds the data files of a snapshot that are still candidates, as a value: stages return a smaller one.

A :class:`FileSet` has the files of manifests that come from one source: a segment that lists the manifests, or a
manifest that was opened. Files are rows: those of a segment have its ordinals, those of a manifest their positions in
it. Nothing is stored for a file that is
out: each step keeps the rows that were left before it, so why a file is out is looked up, and counting is subtraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry, ManifestFile

from sidecar.planning.funnel import KeptReason
from sidecar.questions.row_ranges import RowRanges

if TYPE_CHECKING:
    from sidecar.planning.files.by_filters import IndexedFiles

Mask = npt.NDArray[np.bool_]
Rows = npt.NDArray[np.int64]
Spans = npt.NDArray[np.int64]
"""int64[manifests, 2]: ranges of rows."""
Ordinals = npt.NDArray[np.int64]
"""int64 ordinals of files in a segment, -1 for a file that it does not list."""


@dataclass(frozen=True, eq=False)
class Reasons:
    """Why files are kept: ``codes`` is int16[n], an ordinal of ``reasons`` for each file."""

    codes: npt.NDArray[np.int16]
    reasons: tuple[KeptReason, ...]

    @classmethod
    def all(cls, count: int, reason: KeptReason) -> Reasons:
        """Return one reason for so many files."""
        return cls(np.zeros(count, np.int16), (reason,))

    def put(self, at: Rows, reason: KeptReason) -> Reasons:
        """Return these reasons with another one for the files ``at``."""
        codes = self.codes.copy()
        codes[at] = len(self.reasons)
        return Reasons(codes, (*self.reasons, reason)) if len(at) else self

    def only(self, keep: Mask) -> Reasons:
        """Return the reasons of the files where ``keep`` is set."""
        return Reasons(self.codes[keep], self.reasons)

    def each(self) -> list[KeptReason]:
        """Return the reason of each file."""
        return [self.reasons[code] for code in self.codes.tolist()]


class DroppedBy(Enum):
    """What took files out of a set, in words."""

    SUMMARY = "partition summary of the manifest"
    METADATA = "partition or bounds"
    PARTITION = "partition"
    BOUNDS = "bounds in the manifest"
    FILTER = "filter of the sidecar"
    NOTHING = "it is not asked about"
    KEY_BOUNDS = "bounds: no key is within them"
    KEYS = "filter of the sidecar: none of the keys"
    PAGES = "page index"


class FileSource(Protocol):
    """Knows all files of some manifests."""

    @property
    def places(self) -> Sequence[int]:
        """The places of the manifests in the manifest list that is planned."""

    @property
    def own(self) -> int | None:
        """The segment whose ordinals are the rows."""

    @property
    def spans(self) -> Spans:
        """The rows of each manifest, rising; no two of them overlap."""

    @property
    def entries(self) -> Mapping[int, ManifestEntry]:
        """The manifest entries that were read, by row."""

    def ordinals(self, number: int, files: FileSet, index: IndexedFiles) -> Ordinals:
        """Return the ordinals in segment ``number`` of the files that are left."""

    def is_counted(self, index: IndexedFiles) -> bool:
        """Return whether segments list the manifests of the files, so that these are counted with them."""


@dataclass(frozen=True)
class Places:
    """The rows of each manifest, and nothing else: a source of sets that were chosen."""

    places: Sequence[int]
    spans: Spans


class StepCounts(NamedTuple):
    """The number of files that segments list, that filters could have dropped, and of row groups of dropped files."""

    listed: int
    indexed: int
    row_groups_dropped: int


@dataclass(frozen=True)
class Step:
    """One narrowing of a set."""

    by: DroppedBy
    before: RowRanges
    """The rows that were left before."""


@dataclass(frozen=True, eq=False)
class FileSet:
    """The files of one source that are left. Columns have one value for each of these."""

    source: FileSource
    left: RowRanges
    steps: tuple[Step, ...] = ()
    why: Reasons | None = None
    """``None`` before filters were asked."""
    counts: tuple[StepCounts, ...] = ()
    """What filters were asked about."""

    @classmethod
    def all(cls, source: FileSource) -> FileSet:
        """Return the set of all files of a source."""
        return cls(source, RowRanges(source.spans))

    @cached_property
    def rows(self) -> Rows:
        """The rows that are left, rising."""
        return self.left.rows()

    def __len__(self) -> int:
        return self.left.num_rows

    @property
    def entries(self) -> list[ManifestEntry]:
        """The manifest entries of the files that are left, which were read."""
        return [self.source.entries[row] for row in self.rows.tolist()]

    def within(self, rows: RowRanges, by: DroppedBy) -> FileSet:
        """Return the files that are among ``rows``."""
        if rows is self.left:
            return replace(self, steps=(*self.steps, Step(by, self.left)))
        if self.why is not None:
            return self.narrow(rows.holds(self.rows), by)
        left = self.left & rows if rows else rows
        return replace(self, left=left, steps=(*self.steps, Step(by, self.left)))

    def narrow(self, keep: Mask, by: DroppedBy) -> FileSet:
        """Return the files where ``keep`` is set."""
        steps = (*self.steps, Step(by, self.left))
        if keep.all():
            return replace(self, steps=steps)
        why = None if self.why is None else self.why.only(keep)
        return replace(self, left=RowRanges.of_rows(self.rows[keep]), steps=steps, why=why)

    def _narrowings(self) -> Iterator[tuple[DroppedBy, RowRanges, RowRanges]]:
        """Yield what each step was, with the rows that were left before and after it."""
        for at, step in enumerate(self.steps, 1):
            yield step.by, step.before, self.steps[at].before if at < len(self.steps) else self.left

    def dropped(self) -> Counter[DroppedBy]:
        """Count the files that are out, by what dropped them."""
        counts = Counter[DroppedBy]()
        for by, before, after in self._narrowings():
            counts[by] += before.num_rows - after.num_rows
        return counts

    def dropped_by(self) -> dict[int, DroppedBy]:
        """Return what dropped each row that is out."""
        found = dict[int, DroppedBy]()
        for by, before, after in self._narrowings():
            rows = before.rows()
            found |= dict.fromkeys(rows[~after.holds(rows)].tolist(), by)
        return found

    def without_source(self) -> FileSet:
        """Return the set without what its source has read, to look up what became of a file."""
        return replace(self, source=Places(self.source.places, self.source.spans))  # type: ignore[arg-type]

    def judged(self, row: int) -> Iterator[tuple[DroppedBy, bool]]:
        """Yield each stage that looked at a file of the source, and whether it kept the file."""
        for by, before, after in self._narrowings():
            if before.holds(np.array([row]))[0]:
                yield by, bool(after.holds(np.array([row]))[0])

    def by_manifest(self) -> Iterator[tuple[int, slice]]:
        """Yield the place of each manifest with the range of its files among those that are left."""
        edges = np.searchsorted(self.rows, self.source.spans).tolist()
        for place, (start, end) in zip(self.source.places, edges, strict=True):
            yield place, slice(start, end)


class Line(NamedTuple):
    """A data manifest as the manifest list has it, and its place among those that are planned."""

    place: int
    file: ManifestFile
