"""Why the distinct count of a sketch may be too high: a property of theta blobs, in the Puffin footer and in the table.

``sidecar.upper-bound`` has words separated by commas. A count without the property is not known to be too high.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import Enum

UPPER_BOUND = "sidecar.upper-bound"


class AlsoCounted(str, Enum):
    """Values that a sketch counts although no live row may have them. The words are part of the format."""

    REMOVED_FILES = "removed-files"
    """Values of files that were removed from the table, at most 5 % of the rows of a group."""
    ROW_DELETES = "row-deletes"
    """Values of rows that delete files remove."""

    __str__ = str.__str__


def upper_bound_properties(reasons: Iterable[str]) -> dict[str, str]:
    """Return the property of a blob whose count is an upper bound for these words; nothing without words."""
    words = sorted(set(reasons))
    return {UPPER_BOUND: ",".join(words)} if words else {}


def upper_bound_reasons(properties: Mapping[str, str] | None) -> list[str] | None:
    """Return the words of the property, those of later versions included; ``None`` if the blob does not have it."""
    text = (properties or {}).get(UPPER_BOUND, "")
    return [word for word in text.split(",") if word] or None
