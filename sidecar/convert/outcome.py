"""What became of one index: the one record of builds, embedding and conversions."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

Progress = Callable[[str, int, int], None]
"""Called as work goes on: what is counted, how many are done, and how many there are."""

BLOOM, PAGE_INDEX = "bloom", "page-index"
KINDS = (BLOOM, PAGE_INDEX)

EXACT, CONVERTED, FOLDED, WIDENED, MERGED = "exact", "converted", "folded", "widened", "merged"
DICTIONARY, DOMAIN, VALUES = "dictionary", "domain", "values"
NONE = "none"


IndexPlace = tuple[str, int, str, str]
"""Which index an :class:`Outcome` is of: file, row group, column, kind."""


@dataclass(frozen=True)
class Outcome:
    """What became of one index of one column in one row group; row groups of ORC are counted over all stripes.

    ``way`` says where the index came from. Taken over: ``exact`` (the bytes as they were), ``converted`` (its bits in
    another form), ``folded``, ``widened`` or ``merged`` (its bits in another size). Built: from the ``dictionary``,
    from a ``domain`` of integers (:mod:`sidecar.convert.rebuild`), from the ``values``. ``none``: there is none, and
    ``reason`` says why.

    ``bytes`` are those of the bitset, or of both structures of a page index. In a Parquet file the header of a filter
    counts too; what is new of an encrypted column is counted in clear. Rates are false-positive rates estimated from
    the bits, ``None`` where there is no filter; ``measured`` is counted with random hashes where that was asked for.
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
    """Whether the reason is that bytes of the source are broken."""
    rebuilt: dict[str, Any] | None = None
    """Of a rebuilt filter: the ways that were closed, and numbers of an enumerated domain."""


def ways_of(outcomes: Iterable[Outcome]) -> dict[str, dict[str, int]]:
    """How many indexes of each kind went which way."""
    counts: dict[str, Counter[str]] = {}
    for outcome in outcomes:
        counts.setdefault(outcome.kind, Counter())[outcome.way] += 1
    return {kind: dict(ways) for kind, ways in counts.items()}
