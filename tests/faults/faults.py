"""Modes in which a request to storage breaks, and which request of a run does: :data:`FAULTS` is asked about each."""

from __future__ import annotations

import errno
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

Answer = TypeVar("Answer")


class Mode(Enum):
    """How a request breaks."""

    ERROR = "error"
    """An input/output error, before any effect."""
    LATE = "timeout after it"
    """The server does it, and the client never hears of it."""
    RESET = "connection reset"
    """The connection breaks after half of the bytes. The store makes no object of them."""
    SHORT = "short body"
    """A read, or a write to a local file, takes half of the bytes, without an error."""
    FLIPPED = "flipped bytes"
    """One bit of what is read is another one."""
    STALE = "stale listing"
    """The answer is that of the storage as it was before the run."""
    FULL = "no space left"
    """The disk is full in the middle of a write."""
    DENIED = "permission denied"
    """Refused, before any effect."""


READS = ("read",)
LOOKS = ("length", "list", "open")
SENDS = ("create", "write", "send", "publish", "copy")
CHANGES = (*SENDS, "delete", "flush", "close")
CATALOG = ("load", "commit")
FILES = (*READS, *LOOKS, *CHANGES)
BREAKS = {
    Mode.ERROR: (*FILES, *CATALOG),
    Mode.LATE: (*FILES, *CATALOG),
    Mode.RESET: (*FILES, *CATALOG),
    Mode.SHORT: (*READS, "write", "copy"),
    Mode.FLIPPED: READS,
    Mode.STALE: LOOKS,
    Mode.FULL: (*SENDS, "flush", "close"),
    Mode.DENIED: (*FILES, *CATALOG),
}
"""The requests that a mode breaks."""


class Request(NamedTuple):
    """A request, and what it is about."""

    kind: str
    path: str
    offset: int = 0
    length: int = 0

    def __str__(self) -> str:
        part = f" [{self.offset}:{self.offset + self.length}]" if self.kind == "read" else ""
        return f"{self.kind} {self.path}{part}"


class Faults:
    """Counts the requests that a mode breaks, and breaks one of them. Nothing is counted outside :meth:`armed`."""

    def __init__(self) -> None:
        self.seen: list[Request] = []
        self.broken: Request | None = None
        self.flip: Flip | None = None
        self._mode: Mode | None = None
        self._turn = -1
        self._folder: Path | None = None
        self._before: dict[str, os.stat_result] = {}
        self._lock = threading.Lock()

    @contextmanager
    def armed(self, mode: Mode, turn: int, folder: Path) -> Iterator[None]:
        """Break request ``turn`` of those that ``mode`` breaks in the files below ``folder``."""
        self.seen, self.broken, self.flip = [], None, None
        self._before = {str(path): path.stat() for path in folder.rglob("*") if path.is_file()}
        self._mode, self._turn, self._folder = mode, turn, folder
        try:
            yield
        finally:
            self._mode = self._folder = None

    def covers(self, path: Any) -> bool:
        """Whether requests for a local path are counted now."""
        return self._folder is not None and str(path).startswith(str(self._folder))

    def stale(self, path: str) -> os.stat_result:
        """The state of a file before the run. Raises FileNotFoundError if there was none."""
        if path not in self._before:
            raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), path)
        return self._before[path]

    def stale_names(self, folder: str) -> dict[str, os.stat_result]:
        """The files of a folder before the run."""
        return {path: state for path, state in self._before.items() if os.path.dirname(path) == folder.rstrip("/")}

    def mode_of(self, request: Request) -> Mode | None:
        """How this request breaks; ``None`` if it is answered."""
        with self._lock:
            if self._mode is None or request.kind not in BREAKS[self._mode]:
                return None
            self.seen.append(request)
            if len(self.seen) != self._turn + 1:
                return None
            self.broken = request
            return self._mode

    def ask(self, request: Request, do: Callable[[], Answer], half: Callable[[], object] = lambda: None) -> Answer:
        """The answer to a request that has no answer of its own in a mode. ``half`` does it in part."""
        mode = self.mode_of(request)
        if mode is None:
            return do()
        if mode is Mode.LATE:
            do()
        elif mode in (Mode.RESET, Mode.FULL):
            half()
        raise error_of(mode)

    def read(self, request: Request, do: Callable[[], bytes]) -> bytes:
        """The bytes of a read."""
        mode = self.mode_of(request)
        if mode is None:
            return do()
        if mode is Mode.SHORT:
            data = do()
            return data[: len(data) // 2]
        if mode is Mode.FLIPPED:
            data = do()
            self.flip = flip_in(request.path, request.offset, len(data), self._turn)
            return self.flip.applied(data, request.offset)
        raise error_of(mode)


FAULTS = Faults()


def error_of(mode: Mode) -> OSError:
    """The error of a mode that raises one."""
    number = {
        Mode.ERROR: errno.EIO,
        Mode.LATE: errno.ETIMEDOUT,
        Mode.RESET: errno.ECONNRESET,
        Mode.FULL: errno.ENOSPC,
        Mode.DENIED: errno.EACCES,
        Mode.STALE: errno.ENOENT,
    }[mode]
    return OSError(number, os.strerror(number))


class Flip(NamedTuple):
    """A bit that arrived as another one."""

    path: str
    offset: int
    mask: int

    def applied(self, data: bytes, start: int = 0) -> bytes:
        """``data``, which begins at ``start`` in the file, as it arrived."""
        at = self.offset - start
        return data[:at] + bytes([data[at] ^ self.mask]) + data[at + 1 :]


def flip_in(path: str, start: int, length: int, turn: int) -> Flip:
    """The bit that flips in a read: another one in each turn."""
    spread = (turn + 1) * 2_654_435_761
    return Flip(path, start + spread % length, 1 << spread // length % 8)
