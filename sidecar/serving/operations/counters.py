"""Counts what the workers of a server do, in memory that all of them can read.

Each worker has a file of fixed slots, which it alone writes. Whoever is asked for the counts adds up the files. Files
of workers that have ended stay, so that counts never fall.

    slot    128 bytes: the value (float64), a byte that is 1 if the slot is used, and the name of the sample in UTF-8
    file    512 slots
"""

from __future__ import annotations

import mmap
import os
import secrets
import struct
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from threading import Lock

SLOT, SLOTS = 128, 512
_VALUE = struct.Struct("<d")
_NAME = 9
ENDING = ".counts"


class Counters:
    """The counts of one worker. Its methods may be called by several threads."""

    def __init__(self, folder: str | None = None) -> None:
        """``folder``: where the files of all workers are; without one the counts are of this process alone."""
        self._folder = folder
        self._lock = Lock()
        self._slots: dict[str, int] = {}
        if folder is None:
            self._memory = mmap.mmap(-1, SLOT * SLOTS)
            return
        path = os.path.join(folder, f"{os.getpid()}-{secrets.token_hex(4)}{ENDING}")
        with open(path, "xb+") as file:
            file.truncate(SLOT * SLOTS)
            self._memory = mmap.mmap(file.fileno(), SLOT * SLOTS)

    def add(self, sample: str, value: float = 1.0) -> None:
        """Add to the count of a sample. Samples for which there is no slot are not counted."""
        with self._lock:
            at = self._slots.get(sample)
            if at is None:
                at = self._new_slot(sample)
                if at is None:
                    return
            (before,) = _VALUE.unpack_from(self._memory, at)
            _VALUE.pack_into(self._memory, at, before + value)

    def _new_slot(self, sample: str) -> int | None:
        name = sample.encode()
        if len(self._slots) == SLOTS or len(name) > SLOT - _NAME:
            return None
        at = len(self._slots) * SLOT
        self._memory[at + _NAME : at + _NAME + len(name)] = name
        self._memory[at + _NAME - 1] = 1  # last, because others read at any time
        self._slots[sample] = at
        return at

    def totals(self) -> dict[str, float]:
        """Return the counts of all workers by the names of samples."""
        found: Counter[str] = Counter()
        if self._folder is None:
            found.update(dict(_counts(self._memory)))
        else:
            for path in sorted(Path(self._folder).glob(f"*{ENDING}")):
                for sample, value in _counts(path.read_bytes()):
                    found[sample] += value  # type: ignore[assignment]
        return dict(found)


def _counts(memory: bytes | mmap.mmap) -> Iterator[tuple[str, float]]:
    for at in range(0, SLOT * SLOTS, SLOT):
        if len(memory) < at + SLOT or not memory[at + _NAME - 1]:
            return
        name = bytes(memory[at + _NAME : at + SLOT]).rstrip(b"\0").decode()
        yield name, _VALUE.unpack_from(memory, at)[0]
