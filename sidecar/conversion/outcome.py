"""Records what became of each index; builds, embedding and conversions share this record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, NamedTuple, TypeAlias

from sidecar.bundle.kinds.declared import KINDS, IndexKind
from sidecar.run_log import counted

Way: TypeAlias = Literal["exact", "converted", "folded", "merged", "dictionary", "values", "none"]
"""Where an index comes from."""
EXACT: Final = "exact"
CONVERTED: Final = "converted"
FOLDED: Final = "folded"
MERGED: Final = "merged"
DICTIONARY: Final = "dictionary"
VALUES: Final = "values"
NONE: Final = "none"


class IndexPlace(NamedTuple):
    """Identifies an index, in the words of :class:`Outcome`."""

    file: str
    row_group: int
    column: str
    kind: IndexKind

    def without_index(self, reason: str, damaged: bool = False, rate_before: float | None = None) -> Outcome:
        """Return the outcome of a place without an index, for ``reason``; ``rate_before`` is that of the old filter."""
        return Outcome(*self, NONE, 0, rate_before, None, reason, damaged)


@dataclass(frozen=True)
class Outcome:
    """The outcome for one index of one column in one row group. ORC row groups are counted over all stripes.

    ``way`` says where the index comes from. Reused: ``exact`` (the same bytes), ``converted`` (its bits in another
    form), ``folded`` or ``merged`` (its bits in another size). Built: from the ``dictionary`` or from the ``values``.
    ``none``: there is no index, and ``reason`` says why.

    ``bytes`` is the length of the bitset, or of both structures of a page index. In a Parquet file it includes the
    filter's header; a new index of an encrypted column counts before encryption. Rates are false-positive rates
    estimated from the bits, ``None`` without a filter.
    """

    file: str
    """The path of the file."""
    row_group: int
    """The number of the row group; -1 for all of them."""
    column: str
    """The dotted path of the column."""
    kind: IndexKind
    """The kind of index."""
    way: Way = NONE
    bytes: int = 0
    rate_before: float | None = None
    """The rate of the old filter."""
    rate_after: float | None = None
    """The rate of the new filter."""
    reason: str = ""
    damaged: bool = False
    """Whether broken bytes of the source are the reason."""
    dropped: bool = False
    """Whether the new file lacks an index that the old file had, or a part of it; ``reason`` says why."""

    @property
    def is_lost(self) -> bool:
        """Whether the new file lacks an index that the old file had, or a part of it."""
        return self.dropped or (self.way == NONE and self.rate_before is not None)

    def to_dict(self, *left_out: str) -> dict[str, Any]:
        """Return the fields as plain data, without those ``left_out``. ``reason`` says what was dropped."""
        return {name: value for name, value in asdict(self).items() if name not in (*left_out, "dropped")}


def count_lost(outcomes: Iterable[Outcome]) -> Counter[tuple[str, IndexKind, str]]:
    """Count the indexes that the old file had and the new one lacks, wholly or in part: by column, kind and reason."""
    return Counter((outcome.column, outcome.kind, outcome.reason) for outcome in outcomes if outcome.is_lost)


def lost_texts(lost: Mapping[tuple[str, IndexKind, str], int]) -> list[str]:
    """Return a warning for each column, kind and reason."""
    return [
        f"{column}: lost {count:,} {KINDS[kind].plural} of the old file: " + reason.removeprefix("dropped: ")
        for (column, kind, reason), count in lost.items()
    ]


def counted_ways(outcomes: Iterable[Outcome]) -> str:
    """The number of indexes by kind and way, for the log."""
    found = ways_of(outcomes)
    return counted({f"{kind} ({way})": count for kind, ways in found.items() for way, count in ways.items()})


def ways_of(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """Count the indexes by kind and by way."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.kind, Counter())[outcome.way] += 1
    return {kind: dict(ways) for kind, ways in counts.items()}
