"""Marks of distinct counts that may be too high or too low: properties of theta blobs, in footer and table.

``sidecar.upper-bound`` and ``sidecar.lower-bound`` have words separated by commas. A count without the first one is not
known to be too high, one without the second one is not known to be too low.

The table's metadata repeats what the footer says of a registered sketch. It says nothing of others, so the property
``sidecar.counts`` of the file has a digest.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum

from sidecar.bundle.envelopes.envelope import toc_digest
from sidecar.puffin.metadata import BlobMetadata

UPPER_BOUND = "sidecar.upper-bound"
LOWER_BOUND = "sidecar.lower-bound"
NDV = "ndv"
"""Property of theta blobs: the estimated number of distinct values."""
COUNTS_PROPERTY = "sidecar.counts"
"""Property of a Puffin file: the digest of what its footer says of the sketches of the whole table by sidecar."""


class AlsoCounted(str, Enum):
    """Values that a sketch counts although no live row may have them. The words are part of the format."""

    REMOVED_FILES = "removed-files"
    """Values of files that were removed from the table, at most 5 % of the rows of a group."""
    ROW_DELETES = "row-deletes"
    """Values of rows that delete files remove."""

    __str__ = str.__str__


class NotCounted(str, Enum):
    """Values that a sketch lacks although live rows may have them. The words are part of the format."""

    FILES = "files-not-counted"
    """Values of data files that the sketch has not counted."""

    __str__ = str.__str__


@dataclass(frozen=True)
class CountMarks:
    """Why a count is an upper bound, and why it is a lower bound, in words; those of later versions included.

    With both, it is neither.
    """

    upper: frozenset[str] = frozenset()
    lower: frozenset[str] = frozenset()

    @classmethod
    def of(cls, properties: Mapping[str, str] | None) -> CountMarks:
        """Return the marks in the properties of a blob."""
        upper, lower = ((properties or {}).get(name, "") for name in (UPPER_BOUND, LOWER_BOUND))
        return cls(*(frozenset(filter(None, text.split(","))) for text in (upper, lower)))

    @property
    def upper_bound(self) -> list[str] | None:
        """Why the count is an upper bound, sorted; ``None`` if it is not known to be one."""
        return sorted(self.upper) or None

    @property
    def lower_bound(self) -> list[str] | None:
        """Why the count is a lower bound, sorted; ``None`` if it is not known to be one."""
        return sorted(self.lower) or None

    def to_properties(self) -> dict[str, str]:
        """Return the properties of a blob with this count; none without words."""
        found = {UPPER_BOUND: ",".join(sorted(self.upper)), LOWER_BOUND: ",".join(sorted(self.lower))}
        return {name: text for name, text in found.items() if text}


def marked(properties: Mapping[str, str] | None, marks: CountMarks) -> dict[str, str]:
    """Return the properties of a sketch that is used again, with ``marks``. Its own words stay."""
    known = CountMarks.of(properties)
    return dict(properties or {}) | CountMarks(known.upper | marks.upper, known.lower | marks.lower).to_properties()


def count_of(properties: Mapping[str, str] | None) -> int | None:
    """Return the number of distinct values that the properties of a blob state; ``None`` if they state none."""
    text = (properties or {}).get(NDV, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) <= 19 else None


def digest_of_counts(sketches: Iterable[BlobMetadata]) -> str:
    """Return the digest of what a footer says of these sketches: fields, snapshot, sequence number, properties."""
    said = sorted(
        [list(blob.fields), blob.snapshot_id, blob.sequence_number, sorted(blob.properties.items())]
        for blob in sketches
    )
    return f"{toc_digest(json.dumps(said).encode()):016x}"
