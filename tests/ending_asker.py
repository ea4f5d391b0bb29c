"""Asks as a process of its own does that ends or hangs. It imports little: each process that is killed starts anew."""

from __future__ import annotations

import os
from pathlib import Path

from scripts.torturing.foreign.differences import Answers
from scripts.torturing.foreign.pool import Item, Say


def ask_badly(item: Item, folder: Path, say: Say) -> Answers:
    """Ends or hangs in what the item's name says, unless the item says to leave it out."""
    for step in item.name.split(", "):
        say(step)
        if step.removeprefix("reader ") not in item.without and step.endswith("ends"):
            os._exit(1)
        while step.endswith("hangs"):
            pass
    return Answers(1)
