"""Records what became of each index; builds, embedding and conversions share this record."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called as work goes on with the name of the steps, the number done and the total."""

BLOOM, PAGE_INDEX = "bloom", "page-index"
KINDS = (BLOOM, PAGE_INDEX)

EXACT, CONVERTED, FOLDED, WIDENED, MERGED = "exact", "converted", "folded", "widened", "merged"
DICTIONARY, DOMAIN, VALUES = "dictionary", "domain", "values"
NONE = "none"


IndexPlace = tuple[str, int, str, str]
"""Identifies an index: file, row group, column, kind."""


@dataclass(frozen=True)
class Outcome:
    """The outcome for one index of one column in one row group. ORC row groups are counted over all stripes.

    ``way`` says where the index comes from. Reused: ``exact`` (the same bytes), ``converted`` (its bits in another
    form), ``folded``, ``widened`` or ``merged`` (its bits in another size). Built: from the ``dictionary``, from a
    ``domain`` of integers (:mod:`sidecar.convert.rebuild`) or from the ``values``. ``none``: there is no index, and
    ``reason`` says why.

    ``bytes`` is the length of the bitset, or of both structures of a page index. In a Parquet file it includes the
    filter's header; a new index of an encrypted column counts before encryption. Rates are false-positive rates
    estimated from the bits, ``None`` without a filter. ``measured`` is counted with random hashes, if requested.
    """

    file: str
    row_group: int
    column: str
    kind: str
    way: str = NONE
    bytes: int = 0
    rate_before: float | None = None
    rate_after: float | None = None
    measured: float | None = None
    reason: str = ""
    damaged: bool = False
    """Whether broken bytes of the source are the reason."""
    rebuilt: dict[str, Any] | None = None
    """For a rebuilt filter: the ways that were not possible, and the numbers of an enumerated domain."""
    dropped: bool = False
    """Whether the new file lacks an index that the old file had, or a part of it; ``reason`` says why."""

    def to_dict(self, *left_out: str) -> dict[str, Any]:
        """Return the fields as plain data, without those ``left_out``. ``reason`` says what was dropped."""
        return {name: value for name, value in asdict(self).items() if name not in (*left_out, "dropped")}


def ways_of(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """Count the indexes by kind and by way."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.kind, Counter())[outcome.way] += 1
    return {kind: dict(ways) for kind, ways in counts.items()}
