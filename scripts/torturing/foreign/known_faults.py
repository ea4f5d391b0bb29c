"""Differences that are not sidecar's fault: which, whose fault it is, and by whom that is known."""

from __future__ import annotations

import re
from typing import NamedTuple

from scripts.torturing.foreign.differences import Difference


class KnownFault(NamedTuple):
    """Patterns of what it looks like; an empty one fits all."""

    why: str
    name: str = ""
    writer: str = ""
    said: str = ""
    """A pattern of the line: question, answer of sidecar, answers of others."""


FILES: list[KnownFault] = []
TABLES: list[KnownFault] = []


def explain_file(name: str, writer: str, difference: Difference) -> str | None:
    """Whose fault a difference is; ``None`` if it may be sidecar's."""
    return explain(FILES, name, writer, difference)


def explain_table(name: str, writer: str, difference: Difference) -> str | None:
    """The same for tables."""
    return explain(TABLES, name, writer, difference)


def explain(faults: list[KnownFault], name: str, writer: str, difference: Difference) -> str | None:
    line = str(difference)
    for fault in faults:
        texts = ((fault.name, name), (fault.writer, writer), (fault.said, line))
        if all(re.search(pattern, text) for pattern, text in texts):
            return fault.why
    return None
