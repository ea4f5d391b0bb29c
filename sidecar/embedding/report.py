"""Reports what became of each index of a rewritten file."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from sidecar.bundle.kinds.declared import BLOOM
from sidecar.conversion.matching.witness import Witness
from sidecar.conversion.outcome import (
    DICTIONARY,
    NONE,
    VALUES,
    Outcome,
    count_lost,
    counted_ways,
    lost_texts,
    ways_of,
)
from sidecar.orc.embed import WrittenOrc
from sidecar.parquet.embed import WrittenParquet
from sidecar.parquet.footer import Footer
from sidecar.results.base import Summarized
from sidecar.results.choices import Placement

DUCKDB_ENCRYPTED = "DuckDB does not read encrypted files with filters, even for queries that need none"


def has_encrypted_filters(footer: Footer, outcomes: Iterable[Outcome]) -> bool:
    """Return whether an encrypted column of the file has a filter now."""
    if footer.encryption is None:
        return False
    encrypted = {footer.columns[column].path for _, column in footer.encryption.columns}
    return any(o.kind == BLOOM and o.way != NONE and o.column in encrypted for o in outcomes)


@dataclass(frozen=True, repr=False)
class EmbedReport(Summarized):
    """The file that was written, and what became of every old or requested index.

    Where the indexes come out of a sidecar, the way ``exact`` means the bytes of the sidecar or of the file itself.
    """

    source: str
    """The path of the old file."""
    target: str
    """The path of the new file."""
    placement: Placement | Literal["stripe"]
    """Where filters are in the new file; ``stripe`` in ORC files."""
    size_before: int
    """The size of the old file in bytes."""
    written: WrittenParquet | WrittenOrc
    """The sizes of the new file and its parts."""
    outcomes: list[Outcome]
    """What became of each index."""
    seconds: float
    """The time that it took."""
    fpp: float = 1.0
    """The target rate of new filters."""
    encrypted_filters: bool = False
    """Whether an encrypted column has a filter."""
    notes: list[str] = field(default_factory=list)
    """Notes on what an encrypted file lacks at its new path."""
    sidecar: str = ""
    """The path of the sidecar that the indexes come out of; empty for new ones."""
    damage: list[str] = field(default_factory=list)
    """Problems of the sidecar that were found while it was read."""
    witness: Witness = field(default_factory=Witness)
    """The values of the file that were compared with the sidecar's indexes before it was published."""

    def summary(self) -> Mapping[str, object]:
        """Return the facts that ``repr`` and notebooks show."""
        return {
            "source": self.source,
            "target": self.target,
            "size_before": self.size_before,
            "size": self.written.size,
            "ways": self.ways(),
            "notes": self.notes,
        }

    def ways(self) -> dict[str, dict[str, int]]:
        """Count the indexes by kind and by way."""
        return ways_of(self.outcomes)

    def warnings(self) -> list[str]:
        """Return warnings: columns whose new filters miss their rate by a factor of 2, indexes of the old file that are
        lost, and readers that will fail.

        A filter misses its rate only if the caller gave a wrong number of distinct values.
        """
        worst: dict[str, float] = {}
        for outcome in self.outcomes:
            if outcome.way in (DICTIONARY, VALUES) and outcome.rate_after is not None:
                worst[outcome.column] = max(outcome.rate_after, worst.get(outcome.column, 0.0))
        found = [
            f"{column}: a filter admits {rate:.2g} of absent values, because it is too small for its row group"
            for column, rate in worst.items()
            if rate > 2 * self.fpp
        ]
        if self.encrypted_filters:
            found.append(DUCKDB_ENCRYPTED)
        return [*found, *lost_texts(count_lost(self.outcomes)), *self.notes, *self.damage]

    @property
    def lost(self) -> int:
        """The number of indexes that the old file had and the new one lacks; :meth:`warnings` says why."""
        return count_lost(self.outcomes).total()

    @property
    def damaged(self) -> bool:
        """Whether an index is missing because bytes of the source are broken."""
        return any(outcome.damaged for outcome in self.outcomes)

    def log_line(self) -> str:
        """What was written, for the log."""
        return f"{self.source} written to {self.target}: {counted_ways(self.outcomes)}; {self.seconds:.3f} s"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: the totals, ``ways`` by kind, and one entry in ``units`` for each index."""
        origin = {"sidecar": self.sidecar, "witness": self.witness.to_dict()} if self.sidecar else {}
        return {
            "source": self.source,
            "target": self.target,
            "placement": self.placement,
            "size_before": self.size_before,
            **asdict(self.written),
            "ways": self.ways(),
            "lost": self.lost,
            "units": [outcome.to_dict("file") for outcome in self.outcomes],
            "warnings": self.warnings(),
            "seconds": self.seconds,
            **origin,
        }
