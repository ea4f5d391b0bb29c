"""What became of one index of one row group on its way from one place to another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Protocol

BLOOM, PAGE_INDEX = "bloom", "page-index"
KINDS = (BLOOM, PAGE_INDEX)

EXACT, FOLDED, WIDENED, MERGED, NONE = "exact", "folded", "widened", "merged", "none"


@dataclass(frozen=True)
class Moved:
    """One index of one unit.

    ``way``: ``exact`` (the bytes as they were), ``folded``, ``widened`` or ``merged``, the way of a rebuild
    (:mod:`sidecar.convert.rebuild`), and ``none``, for which ``reason`` stands. ``bytes`` are those of the bitset, or
    of both structures of a page index. Rates are false-positive rates estimated from the bits; ``measured`` is counted
    with random hashes where that was asked for.
    """

    file: str
    row_group: int
    column: str
    kind: str
    way: str
    bytes: int = 0
    rate_before: float | None = None
    rate_after: float | None = None
    measured: float | None = None
    reason: str = ""
    damaged: bool = False
    """Whether the reason is that bytes of the source are broken."""
    rebuilt: dict[str, Any] | None = None
    """Of a rebuilt filter: the ways that were closed, and numbers of an enumerated domain."""


class _WentSomeWay(Protocol):
    @property
    def kind(self) -> str: ...

    @property
    def way(self) -> str: ...


def ways_of(units: Iterable[_WentSomeWay]) -> dict[str, dict[str, int]]:
    """How many indexes of each kind went which way."""
    counts: dict[str, Counter[str]] = {}
    for unit in units:
        counts.setdefault(unit.kind, Counter())[unit.way] += 1
    return {kind: dict(ways) for kind, ways in counts.items()}
