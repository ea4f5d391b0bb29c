"""Records what became of each index; builds, embedding and conversions share this record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from typing import Any, Final, Literal, TypeAlias

from sidecar.results import Result
from sidecar.run_log import counted

IndexKind: TypeAlias = Literal["bloom", "page-index"]
"""A kind of index of one column in one row group."""
BLOOM: Final = "bloom"
PAGE_INDEX: Final = "page-index"
KINDS: tuple[IndexKind, ...] = (BLOOM, PAGE_INDEX)

Way: TypeAlias = Literal["exact", "converted", "folded", "widened", "merged", "dictionary", "domain", "values", "none"]
"""Where an index comes from."""
EXACT: Final = "exact"
CONVERTED: Final = "converted"
FOLDED: Final = "folded"
WIDENED: Final = "widened"
MERGED: Final = "merged"
DICTIONARY: Final = "dictionary"
DOMAIN: Final = "domain"
VALUES: Final = "values"
NONE: Final = "none"


IndexPlace = tuple[str, int, str, IndexKind]
"""Identifies an index: file, row group, column, kind."""


@dataclass(frozen=True, repr=False)
class RebuildInfo(Result):
    """How a filter was rebuilt. The numbers are ``None`` unless a domain of integers was enumerated."""

    closed: dict[str, str]
    """Why each way that was tried before was not possible."""
    domain_size: int | None
    """The number of integers between the bounds of the column chunk."""
    admitted: int | None
    """The integers that the old filter admits; all of them are in the new one."""
    expected_false_extras: float | None
    """How many of these are not values of the column chunk, on average."""


@dataclass(frozen=True)
class Outcome:
    """The outcome for one index of one column in one row group. ORC row groups are counted over all stripes.

    ``way`` says where the index comes from. Reused: ``exact`` (the same bytes), ``converted`` (its bits in another
    form), ``folded``, ``widened`` or ``merged`` (its bits in another size). Built: from the ``dictionary``, from a
    ``domain`` of integers (:mod:`sidecar.conversion.rebuild`) or from the ``values``. ``none``: there is no index, and
    ``reason`` says why.

    ``bytes`` is the length of the bitset, or of both structures of a page index. In a Parquet file it includes the
    filter's header; a new index of an encrypted column counts before encryption. Rates are false-positive rates
    estimated from the bits, ``None`` without a filter. ``measured`` is counted with random hashes, if requested.
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
    measured: float | None = None
    reason: str = ""
    damaged: bool = False
    """Whether broken bytes of the source are the reason."""
    rebuilt: RebuildInfo | None = None
    """For a rebuilt filter: the ways that were not possible, and the numbers of an enumerated domain."""
    dropped: bool = False
    """Whether the new file lacks an index that the old file had, or a part of it; ``reason`` says why."""

    def to_dict(self, *left_out: str) -> dict[str, Any]:
        """Return the fields as plain data, without those ``left_out``. ``reason`` says what was dropped."""
        return {name: value for name, value in asdict(self).items() if name not in (*left_out, "dropped")}


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
