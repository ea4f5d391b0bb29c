"""Asks sidecar a question: an answer, a refusal, or a difference."""

from __future__ import annotations

import re
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from scripts.torturing.foreign.differences import Difference
from sidecar.errors import SidecarError
from tests.hostile_doors import peak

T = TypeVar("T")
MOST_BYTES = 1 << 30
"""Memory that an answer may take."""


@dataclass
class Asking:
    """What is asked about one thing, with the files made for it in ``folder``; ``say`` hears what comes next, in case
    it ends the process."""

    path: str
    folder: Path
    seed: int
    say: Callable[[str], None]
    theirs: dict[str, Any] = field(default_factory=dict)
    """What other readers read, by name: if there is nothing, sidecar may refuse too."""
    asked: int = 0
    differences: list[Difference] = field(default_factory=list)
    noted: set[Any] = field(default_factory=set)

    def ours(self, question: str, call: Callable[[], T], may_refuse: bool = False) -> T | None:
        """What sidecar answers. A refusal is a difference if another reader reads the file, all else always."""
        self.asked += 1
        self.say(question)
        forget_peak()
        before = peak()
        try:
            answer = call()
        except SidecarError as error:
            if self.theirs and not may_refuse:
                self.differ(question, f"{type(error).__name__}: {error}", self.reads)
        except Exception as error:
            self.differ(question, crash_of(error), {})
        else:
            if (taken := peak() - before) > MOST_BYTES:
                self.differ(question, f"memory: {taken >> 20} MiB", {})
            return answer
        return None

    @property
    def reads(self) -> dict[str, str]:
        return dict.fromkeys(self.theirs, "reads it")

    def differ(self, question: str, ours: str, theirs: dict[str, str]) -> None:
        """Note a difference, once for each kind of question, and a crash once for its place."""
        text = ours.replace(str(self.folder), "OUT").replace(self.path, "FILE")
        key = text.split(": ")[1] if text.startswith("crash") else (question.split(":")[0], text)
        if key not in self.noted:
            self.noted.add(key)
            self.differences.append(Difference(question, text, theirs))


def crash_of(error: Exception) -> str:
    """An exception that is none of sidecar's, with its place."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if "/sidecar/" in frame.filename] or frames
    place = f"{re.split('/site-packages/|/sidecar/', ours[-1].filename)[-1]}:{ours[-1].lineno}"
    return f"crash: {type(error).__name__} in {place}: {error}"[:500]


def forget_peak() -> None:
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
