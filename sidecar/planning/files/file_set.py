"""Holds the data files of a snapshot that are still candidates, as a value: stages return a smaller one.

A :class:`FileSet` has the files of the manifests of one source: those that segments list, or one that was opened.
Files are rows: listed ones have running numbers, those of an opened manifest their positions in it. Nothing is stored
for a file that is out. Each step keeps the rows that were left before it, so what dropped a file is looked up, and
counting is subtraction.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cached_property
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
from pyiceberg.manifest import ManifestEntry, ManifestFile

from sidecar.planning.funnel import KeptReason
from sidecar.questions.row_ranges import RowRanges

if TYPE_CHECKING:
    from sidecar.iceberg.statistics_files.sidecar_files import Places, SidecarFiles

Mask = npt.NDArray[np.bool_]
SetRows = npt.NDArray[np.int64]
RowSpans = npt.NDArray[np.int64]
"""int64[manifests, 2]: ranges of rows."""


class DroppedBy(Enum):
    """A stage that takes files out of a set, in words."""

    CATALOG = "plan of the catalog"
    SUMMARY = "partition summary of the manifest"
    METADATA = "partition or bounds"
    PARTITION = "partition"
    BOUNDS = "bounds in the manifest"
    FILTER = "filter of the sidecar"
    NOTHING = "it is not asked about"
    KEY_BOUNDS = "bounds: no key is within them"
    KEYS = "filter of the sidecar: none of the keys"
    PAGES = "page index"


@dataclass(frozen=True, eq=False)
class Reasons:
    """Why files are kept: ``codes`` is int16[n], an ordinal of ``reasons`` for each file."""

    codes: npt.NDArray[np.int16]
    reasons: tuple[KeptReason, ...]

    @classmethod
    def all(cls, count: int, reason: KeptReason) -> Reasons:
        """Return the same reason for each of ``count`` files."""
        return cls(np.zeros(count, np.int16), (reason,))

    def put(self, at: SetRows, reason: KeptReason) -> Reasons:
        """Return these reasons with another one for the files ``at``."""
        if not len(at):
            return self
        codes = self.codes.copy()
        codes[at] = len(self.reasons)
        return Reasons(codes, (*self.reasons, reason))

    def only(self, keep: Mask) -> Reasons:
        """Return the reasons of the files where ``keep`` is set."""
        return Reasons(self.codes[keep], self.reasons)

    def each(self) -> list[KeptReason]:
        """Return the reason of each file."""
        return [self.reasons[code] for code in self.codes.tolist()]


class FileSource(Protocol):
    """Knows all files of some manifests, and finds them in the sidecar."""

    @property
    def places(self) -> Sequence[int]:
        """The places of the manifests in the manifest list that is planned."""

    @property
    def spans(self) -> RowSpans:
        """The rows of each manifest, rising; no two of them overlap."""

    @property
    def is_numbered(self) -> bool:
        """Whether a row is the running number of the file in the sidecar."""

    @property
    def entries(self) -> Mapping[int, ManifestEntry]:
        """The manifest entries that were read, by row."""

    def listed_at(self, rows: SetRows, files: SidecarFiles, fields: Collection[int] | None = None) -> Places:
        """Return the places of the files ``rows`` (rising) in the sidecar.

        With ``fields``, those whose filters are asked, places that these filters do not need may be left out.
        """

    def is_counted(self, files: SidecarFiles) -> bool:
        """Return whether segments list the manifests of the files, so that these are counted with them."""

    def holding(self, entries: Mapping[int, ManifestEntry]) -> FileSource:
        """Return the source with other :attr:`entries`."""


S_co = TypeVar("S_co", bound=FileSource, covariant=True)


class FilterCounts(NamedTuple):
    """Counts of the files that filters were asked about."""

    listed: int
    """Files that segments list."""
    indexed: int
    """Files that filters could have dropped."""
    row_groups_dropped: int
    """Row groups of the files that filters dropped."""


NOT_ASKED = FilterCounts(0, 0, 0)


@dataclass(frozen=True)
class Step:
    """One narrowing of a set."""

    by: DroppedBy
    before: RowRanges
    """The rows that were left before."""


class Judgement(NamedTuple):
    """The answer of one stage about a file."""

    by: DroppedBy
    is_kept: bool


@dataclass(frozen=True, eq=False)
class FileSet(Generic[S_co]):
    """The files of one source that are left. Columns have one value for each of these."""

    source: S_co
    left: RowRanges
    steps: tuple[Step, ...] = ()
    reasons: Reasons | None = None
    """Why each file is kept; ``None`` before filters were asked."""
    counts: FilterCounts = NOT_ASKED

    @classmethod
    def all(cls, source: S_co) -> FileSet[S_co]:  # type: ignore[misc]  # a constructor may take what is covariant
        """Return the set of all files of a source."""
        return cls(source, RowRanges(source.spans))

    @cached_property
    def rows(self) -> SetRows:
        """The rows that are left, rising."""
        return self.left.rows()

    def __len__(self) -> int:
        return self.left.num_rows

    @cached_property
    def entries(self) -> Sequence[ManifestEntry]:
        """The manifest entries that were read, of the files that are left. They are looked up once: callers take a
        manifest at a time."""
        return [self.source.entries[row] for row in self.rows.tolist()]

    def within(self, rows: RowRanges, by: DroppedBy) -> FileSet[S_co]:
        """Return the files that are among ``rows``."""
        if self.reasons is not None:
            return self.narrow(rows.holds(self.rows), by)
        return self._with_step(by, self.left & rows if rows else rows, None)

    def narrow(self, keep: Mask, by: DroppedBy) -> FileSet[S_co]:
        """Return the files where ``keep`` is set."""
        if keep.all():
            return self._with_step(by, self.left, self.reasons)
        reasons = None if self.reasons is None else self.reasons.only(keep)
        return self._with_step(by, RowRanges.of_rows(self.rows[keep]), reasons)

    def having(self, entries: Mapping[int, ManifestEntry]) -> FileSet[S_co]:
        """Return the files that have an entry, by row: those that partition and bounds leave."""
        if len(entries) == len(self):
            return self._with_step(DroppedBy.METADATA, self.left, self.reasons)
        return self.within(RowRanges.of_rows(np.fromiter(entries, np.int64, len(entries))), DroppedBy.METADATA)

    def _with_step(self, by: DroppedBy, left: RowRanges, reasons: Reasons | None) -> FileSet[S_co]:
        """Return this set after one more step. ``replace`` would take four times as long, in each lookup."""
        return FileSet(self.source, left, (*self.steps, Step(by, self.left)), reasons, self.counts)

    def _narrowings(self) -> Iterator[tuple[Step, RowRanges]]:
        """Yield each step with the rows that were left after it."""
        for at, step in enumerate(self.steps, 1):
            yield step, self.steps[at].before if at < len(self.steps) else self.left

    def dropped(self) -> Counter[DroppedBy]:
        """Count the files that are out, by what dropped them."""
        counts = Counter[DroppedBy]()
        for step, after in self._narrowings():
            counts[step.by] += step.before.num_rows - after.num_rows
        return counts

    def dropped_by(self) -> dict[int, DroppedBy]:
        """Return what dropped each row that is out."""
        found = dict[int, DroppedBy]()
        for step, after in self._narrowings():
            rows = step.before.rows()
            found |= dict.fromkeys(rows[~after.holds(rows)].tolist(), step.by)
        return found

    def judgements(self, row: int) -> Iterator[Judgement]:
        """Yield what each stage said that looked at a file of the source, to the one that dropped it."""
        one = np.array([row])
        for step, after in self._narrowings():
            if step.before.holds(one)[0]:
                yield Judgement(step.by, bool(after.holds(one)[0]))

    def without_entries(self) -> FileSet[FileSource]:
        """Return the set without what was read of its files, to look up what became of one."""
        return FileSet(self.source.holding({}), self.left, self.steps)

    def by_manifest(self) -> Iterator[tuple[int, slice]]:
        """Yield the place of each manifest with the range of its files among those that are left."""
        edges = np.searchsorted(self.rows, self.source.spans).tolist()
        for place, (start, end) in zip(self.source.places, edges, strict=True):
            yield place, slice(start, end)


class Line(NamedTuple):
    """A data manifest as the manifest list has it, and its place among those that are planned."""

    place: int
    file: ManifestFile
