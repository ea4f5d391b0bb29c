"""What a fuzzer is: a decoder with seeds, the mutated inputs made of them, and what must hold for each."""

from __future__ import annotations

import random
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import Enum
from typing import Any, ClassVar

from scripts.fuzzing.mutation import damaged
from sidecar.errors import SidecarError
from sidecar.storage.source import BytesSource

MOST_MEMORY = 256 << 20
"""Bytes of resident memory that no case may exceed."""


class Change(str, Enum):
    """How a case was made."""

    BLIND = "blind"
    """Bytes changed without any knowledge of the format."""
    FIELDS = "fields"
    """Fields changed, with all lengths and checksums made good again."""
    NEUTRAL = "neutral"
    """Something was added that every reader ignores: the answer must be that of the seed."""


class WrongAnswerError(Exception):
    """The decoder answered, but its answer is not what the bytes can mean."""


class ExactSource(BytesSource):
    """A source in memory that notices what no source may give: other bytes than were asked for."""

    def read(self, offset: int, length: int) -> bytes:
        """Return exactly ``length`` bytes. Raises :class:`WrongAnswerError` if there are others."""
        data = super().read(offset, length)
        if offset < 0 or len(data) != length:
            raise WrongAnswerError(f"{len(data)} bytes were read in place of {length} from {offset}")
        return data


@dataclass(frozen=True)
class Case:
    """One input: the bytes, the seed that they were made of, and how."""

    data: bytes
    seed: int
    change: Change


class Fuzzer(ABC):
    """A decoder with its seeds. Any bytes must give a value or an error of ours, within the stated limits."""

    name: ClassVar[str]
    what: ClassVar[str]
    """What is decoded, in a few words."""
    memory: ClassVar[int] = 64 << 20
    """Bytes of resident memory that a small case may take; see :meth:`memory_of`."""
    seconds: ClassVar[float] = 10
    """CPU seconds that one case may take."""

    def __init__(self) -> None:
        self.seeds: list[bytes] = self.make_seeds()

    @abstractmethod
    def make_seeds(self) -> list[bytes]:
        """Return sound inputs."""

    @abstractmethod
    def changed(self, rng: random.Random, seed: int) -> bytes:
        """Return a seed with other fields, every length and checksum made good again."""

    def extended(self, rng: random.Random, seed: int) -> bytes | None:
        """Return a seed with something that readers ignore, or ``None`` if the format has no room for it."""
        return None

    def blind(self, rng: random.Random, seed: int) -> bytes:
        """Return a seed with other bytes."""
        return damaged(rng, self.seeds[seed], self.seeds)

    @abstractmethod
    def read(self, case: Case) -> None:
        """Give a case to everything that reads it. Raises whatever it raises, and :class:`WrongAnswerError`."""

    def case(self, rng: random.Random) -> Case:
        """Make the case that a generator of random numbers leads to."""
        seed = rng.randrange(len(self.seeds))
        kind = rng.random()
        if kind < 0.08 and (data := self.extended(rng, seed)) is not None:
            return Case(data, seed, Change.NEUTRAL)
        if kind < 0.7:
            return Case(self.changed(rng, seed), seed, Change.FIELDS)
        return Case(self.blind(rng, seed), seed, Change.BLIND)

    def case_number(self, run: int, number: int) -> Case:
        """Make the case ``number`` of the run with seed ``run``: always the same one."""
        return self.case(random.Random(f"{run} {self.name} {number}"))

    def memory_of(self, case: Case) -> int:
        """Return the bytes of resident memory that a case may take: 64 for each of its bytes more, up to 256 MiB."""
        return min(self.memory + 64 * len(case.data), max(self.memory, MOST_MEMORY))

    def warm_up(self) -> None:
        """Read every seed, so that modules and kernels are loaded. Raises if a seed is not sound."""
        for number, data in enumerate(self.seeds):
            self.read(Case(data, number, Change.NEUTRAL))


def attempt_each(calls: Sequence[Callable[[], Any]]) -> None:
    """Make all calls. Errors of ours are answers; if all calls fail so, the first one is raised."""
    first: SidecarError | None = None
    answered = False
    for call in calls:
        try:
            call()
            answered = True
        except SidecarError as error:
            if isinstance(error.__cause__, MemoryError):
                raise
            first = first or error
    if first is not None and not answered:
        raise first


def value_of(call: Callable[[], Any]) -> Any:
    """Return a call's answer, or ``None`` for an error of ours."""
    with suppress(SidecarError):
        return call()
    return None
