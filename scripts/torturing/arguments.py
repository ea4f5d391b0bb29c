"""What the runs take from the command line: a duration, and names out of a list."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Collection


def minutes(text: str) -> float:
    """A duration. A run that takes none would find nothing, and say so."""
    value = float(text)
    if not (math.isfinite(value) and value > 0):
        raise argparse.ArgumentTypeError(f"{text} is not a number of minutes above 0")
    return value


def some_of(allowed: Collection[str]) -> Callable[[str], list[str]]:
    """The type of an argument that names some of ``allowed``, with commas between."""

    def names(text: str) -> list[str]:
        found = text.split(",")
        if unknown := [name for name in found if name not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: choose from {', '.join(allowed)}")
        return found

    return names
