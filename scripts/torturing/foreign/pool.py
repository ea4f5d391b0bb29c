"""Asks about one item after another in a process that may hang or end, and goes on with a new one."""

from __future__ import annotations

import multiprocessing
import os
import resource
import tempfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, NamedTuple

from scripts.torturing.foreign.differences import Answers, Difference

ADDRESSES = 20 << 30
"""Bytes of address space of a process: what the box has. What an answer may take is less, see the questions."""
STARTING = 120.0
"""Seconds more for the first item of a process."""

Say = Callable[[str], None]


class Item(NamedTuple):
    """What is asked about: its name for people, its path, and the readers that it ended."""

    name: str
    path: str
    seed: int
    without: tuple[str, ...] = ()


Make = Callable[[], Callable[[Item, Path, Say], Answers]]
"""Makes, in the process, the function that asks about an item with files in a folder."""


@dataclass
class Pool:
    """One process at a time."""

    make: Make
    seconds: float
    starting: float = STARTING
    process: Any = None
    pipe: Connection | None = None
    folder: str = ""

    def ask(self, items: Iterable[Item]) -> Iterator[tuple[Item, Answers]]:
        with tempfile.TemporaryDirectory(prefix="sidecar-torture-") as self.folder:
            try:
                for item in items:
                    yield item, self._one(item)
            finally:
                self._end()

    def _one(self, item: Item) -> Answers:
        limit = self.seconds
        if self.process is None:
            self._start()
            limit += self.starting
        assert self.pipe is not None
        self.pipe.send(item)
        step, what = "start", "hang"
        try:
            while self.pipe.poll(limit):
                said = self.pipe.recv()
                if isinstance(said, Answers):
                    return said
                step = said
        except (EOFError, ConnectionError):
            what = "the process ended"
        self._end()
        word, _, reader = step.partition(" ")
        if word == "reader":
            return self._one(item._replace(without=(*item.without, reader)))
        return Answers(0, [Difference(step, f"crash: {what}")])

    def _start(self) -> None:
        context = multiprocessing.get_context("spawn")
        self.pipe, other = context.Pipe()
        self.process = context.Process(target=_answer, args=(self.make, other, self.folder), daemon=True)
        self.process.start()
        other.close()

    def _end(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.join()
        self.process = None


def _answer(make: Make, pipe: Connection, folder: str) -> None:
    """The process: asks about what comes, and says each step before it is taken."""
    resource.setrlimit(resource.RLIMIT_AS, (ADDRESSES, ADDRESSES))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    with open(os.devnull, "w") as nowhere:
        for stream in (1, 2):  # what readers print on their own
            os.dup2(nowhere.fileno(), stream)
    tempfile.tempdir = folder  # all that is left here when the process is killed goes in the end
    ask = make()
    with suppress(EOFError):
        while True:
            item = pipe.recv()
            with tempfile.TemporaryDirectory() as place:
                pipe.send(ask(item, Path(place), pipe.send))
