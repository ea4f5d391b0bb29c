"""Sets of rows of one row group, stored as ranges: the rows of pages, and those that a predicate leaves."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

Rows = npt.NDArray[np.int64]


class RowRanges:
    """Rows as sorted ranges [start, end) that neither overlap nor touch; ``pairs`` is int64[n, 2]."""

    __slots__ = ("_before", "pairs")

    def __init__(self, pairs: Iterable[tuple[int, int]] | npt.NDArray[np.int64] = ()) -> None:
        """Make the union of ``pairs`` (start, end), which may overlap, be empty, and come in any order."""
        table = np.array(pairs if isinstance(pairs, np.ndarray) else list(pairs), np.int64).reshape(-1, 2)
        self._set(_merged(table[table[:, 0] < table[:, 1]]))

    def _set(self, pairs: npt.NDArray[np.int64]) -> None:
        self.pairs = pairs
        self._before: Rows = np.zeros(len(pairs) + 1, np.int64)
        (pairs[:, 1] - pairs[:, 0]).cumsum(out=self._before[1:])

    @classmethod
    def all(cls, num_rows: int) -> RowRanges:
        """Make the set of all rows of a row group."""
        return cls([(0, num_rows)])

    @classmethod
    def of_rows(cls, rows: Rows) -> RowRanges:
        """Make the set of ``rows``, int64[n], strictly rising."""
        ranges = cls.__new__(cls)
        if len(rows) and rows[-1] - rows[0] == len(rows) - 1:
            ranges._set(np.array([(rows[0], rows[-1] + 1)], np.int64))
        elif len(rows):
            breaks = np.flatnonzero(np.diff(rows) != 1)
            starts, ends = rows[np.append(0, breaks + 1)], rows[np.append(breaks, len(rows) - 1)] + 1
            ranges._set(np.stack([starts, ends], axis=1))
        else:
            ranges._set(np.empty((0, 2), np.int64))
        return ranges

    @classmethod
    def of_pages(cls, first_rows: Rows, num_rows: int, keep: npt.NDArray[np.bool_]) -> RowRanges:
        """Make the set of rows of the pages in ``keep``, bool[pages]; ``first_rows`` has the first row of each page."""
        ends = np.append(first_rows[1:], num_rows)
        return cls(np.stack([first_rows, ends], axis=1)[keep])

    def __and__(self, other: RowRanges) -> RowRanges:
        """Return the rows that are in both sets."""
        if other._spans(self):
            return self
        if self._spans(other):
            return other
        # Between two neighbouring edges, each set has all rows or none, so looking at the first one is enough.
        edges = np.unique(np.concatenate((self.pairs.ravel(), other.pairs.ravel())))
        if len(edges) < 2:
            return RowRanges()
        starts = edges[:-1]
        both = self.holds(starts) & other.holds(starts)
        return RowRanges(np.stack([starts, edges[1:]], axis=1)[both])

    def __or__(self, other: RowRanges) -> RowRanges:
        """Return the rows that are in either set."""
        return RowRanges(np.concatenate((self.pairs, other.pairs)))

    def _spans(self, other: RowRanges) -> bool:
        """Return whether this is a single range that includes all of ``other``, which is not empty."""
        if len(self.pairs) != 1 or not len(other.pairs):
            return False
        (start, end), first, last = self.pairs[0], other.pairs[0, 0], other.pairs[-1, 1]
        return bool(start <= first and last <= end)

    def without(self, rows: Rows) -> RowRanges:
        """Return the set without ``rows``, which are strictly rising."""
        edge = np.iinfo(np.int64).max
        return self & RowRanges(np.stack([np.append(0, rows + 1), np.append(rows, edge)], axis=1))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, RowRanges) and np.array_equal(self.pairs, other.pairs)

    __hash__ = None  # type: ignore[assignment]

    def __bool__(self) -> bool:
        return len(self.pairs) > 0

    @property
    def num_rows(self) -> int:
        """The number of rows."""
        return int(self._before[-1])

    def holds(self, rows: Rows) -> npt.NDArray[np.bool_]:
        """Return bool[rows]: which of ``rows`` are in the set."""
        at = np.searchsorted(self.pairs[:, 0], rows, side="right") - 1
        ends = np.append(self.pairs[:, 1], -1)  # at == -1: in front of every range
        held: npt.NDArray[np.bool_] = rows < ends[at]
        return held

    def touches(self, edges: Rows) -> npt.NDArray[np.bool_]:
        """Return bool[len(edges) - 1]: whether any row of the set is from an edge to before the next one."""
        behind = np.searchsorted(self.pairs[:, 1], edges[:-1], side="right")
        starts = np.append(self.pairs[:, 0], np.iinfo(np.int64).max)
        touched: npt.NDArray[np.bool_] = starts[behind] < edges[1:]
        return touched

    def rows(self) -> Rows:
        """Return the rows as a new int64[n], rising."""
        if len(self.pairs) == 1:
            return np.arange(*self.pairs[0].tolist(), dtype=np.int64)
        shifts = np.repeat(self.pairs[:, 0] - self._before[:-1], np.diff(self._before))
        return np.arange(self.num_rows, dtype=np.int64) + shifts

    def pieces(self, most: int) -> Iterator[RowRanges]:
        """Split the set into sets of at most ``most`` rows, in order."""
        for start in range(0, self.num_rows, most):
            end = min(start + most, self.num_rows)
            at = np.arange(*np.searchsorted(self._before, [start, end - 1], side="right") - [1, 0])
            firsts = np.maximum(self.pairs[at, 0], self.pairs[at, 0] + start - self._before[at])
            ends = np.minimum(self.pairs[at, 1], self.pairs[at, 0] + end - self._before[at])
            yield RowRanges(np.stack([firsts, ends], axis=1))

    def places_of(self, rows: Rows) -> Rows:
        """Return the position of each of ``rows`` among the rows of the set; all must be in it."""
        at = np.searchsorted(self.pairs[:, 0], rows, side="right") - 1
        places: Rows = rows - self.pairs[at, 0] + self._before[at]
        return places

    def cut(self, start: int, end: int) -> RowRanges:
        """Return the rows from ``start`` to before ``end``, counted from ``start``."""
        return RowRanges(self.pairs.clip(start, end) - start) if self else self

    def close_gaps(self, most: int) -> RowRanges:
        """Return the set with gaps of at most ``most`` rows filled in."""
        wider = self.pairs.copy()
        wider[:-1, 1] = np.where(wider[1:, 0] - wider[:-1, 1] <= most, wider[1:, 0], wider[:-1, 1])
        return RowRanges(wider)


def _merged(pairs: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Sort ranges, and join those that overlap or touch."""
    if len(pairs) < 2:
        return pairs
    pairs = pairs[np.argsort(pairs[:, 0], kind="stable")]
    ends = np.maximum.accumulate(pairs[:, 1])
    first = np.append(True, pairs[1:, 0] > ends[:-1])
    last = np.append(np.flatnonzero(first)[1:] - 1, len(pairs) - 1)
    return np.stack([pairs[first, 0], ends[last]], axis=1)
