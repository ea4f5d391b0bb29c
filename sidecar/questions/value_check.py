"""The values of data files that are compared with indexes, and their counts."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass, field

from sidecar.errors import UsageError
from sidecar.results.base import Result


@dataclass(frozen=True, repr=False, slots=True)
class ValuesLookedUp(Result):
    """How much of the data was compared with indexes. A unit is a row group; in a table it is a data file."""

    omitted_if_none = ("files_not_indexed", "files_not_given")

    units: int
    """The units whose values were looked up."""
    units_total: int
    """The units that could have been looked up."""
    values: int
    """The values that were looked up in filters."""
    indexes: int
    """The page indexes and row indexes that were compared with values."""
    files_not_indexed: int | None = None
    """The files without any index in the sidecar; ``None`` for a single file."""
    files_not_given: int | None = None
    """The files that a sidecar lists and that were not given; ``None`` unless a sidecar is compared with files."""


@dataclass
class ValueCheck:
    """Chooses the units whose values are checked, and counts ``values`` looked up and ``indexes`` compared.

    ``share`` (above 0, at most 1) of the units are chosen at random, at least one. A unit is a row group; in a table it
    is a data file.
    """

    share: float = 1.0
    rng: random.Random = field(default_factory=random.Random)
    units: int = 0
    units_total: int = 0
    values: int = 0
    indexes: int = 0

    def __post_init__(self) -> None:
        if not 0 < self.share <= 1:
            raise UsageError("a sample must be a share above 0 and at most 1", found=self.share)

    def choose(self, units: int) -> set[int]:
        """Choose some of the numbers from 0 to ``units`` - 1, and count them."""
        chosen = self.rng.sample(range(units), min(units, math.ceil(self.share * units)))
        self.units += len(chosen)
        self.units_total += units
        return set(chosen)

    def looked_up(self, files_not_indexed: int | None = None) -> ValuesLookedUp:
        """Return the counts as a result."""
        return ValuesLookedUp(self.units, self.units_total, self.values, self.indexes, files_not_indexed)
