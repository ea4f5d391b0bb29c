"""The fuzzers: few cases of each give no find, and the harness names planted bugs of every kind with their cases."""

from __future__ import annotations

import mmap
import os
import random
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from scripts.fuzzing.cases import Case, Fuzzer, WrongAnswerError
from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.harness import repeat, run_cases
from sidecar.errors import DamagedFileError

ROOT = Path(__file__).resolve().parents[1]
CASES = 8
PLANTED = 8
"""Cases of each planted bug."""


def test_few_cases_of_each_fuzzer_give_no_find() -> None:
    """In a process of its own, because children of one that has run kernels with threads may stand still."""
    found = subprocess.run(
        [sys.executable, "-m", "scripts.fuzzing", "all", "--seed", "11", "--cases", str(CASES)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert found.returncode == 0, found.stdout + found.stderr
    counts = {line.split()[0]: int(line.split()[1]) for line in found.stdout.splitlines()[1:-1]}
    assert counts == dict.fromkeys(FUZZERS, CASES)


class PlantedBug(Fuzzer):
    """A decoder of single bytes with a bug at one of them; it refuses another one."""

    name = "planted"
    what = "single bytes"
    memory = 8 << 20
    seconds = 0.1

    def __init__(self, bug: Callable[[], object]) -> None:
        super().__init__()
        self.bug = bug

    def make_seeds(self) -> list[bytes]:
        return [b"a"]

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return rng.choice((b"a", b"bug", b"damaged"))

    blind = changed

    def read(self, case: Case) -> None:
        if case.data == b"bug":
            self.bug()
        if case.data == b"damaged":
            raise DamagedFileError("the byte is damaged")


def raise_key_error() -> None:
    raise KeyError("half a character: \ud800" + 600 * "\U0001f422")


def answer_wrongly() -> None:
    raise WrongAnswerError("1 is 2")


def fill_memory() -> None:
    """In pages of its own: the allocator may have pages left that were resident before, which would add nothing."""
    with mmap.mmap(-1, 32 << 20) as pages:
        for start in range(0, len(pages), mmap.PAGESIZE):
            pages[start] = 1


def reserve_memory() -> None:
    bytearray(1 << 40)


def hide_memory_error() -> None:
    try:
        reserve_memory()
    except MemoryError as error:
        raise DamagedFileError("a length is impossible") from error


def run_for_ever() -> None:
    while True:
        pass


@pytest.mark.parametrize(
    ("bug", "what"),
    [
        (raise_key_error, "KeyError"),
        (answer_wrongly, "wrong answer"),
        (fill_memory, "memory"),
        (reserve_memory, "memory"),
        (hide_memory_error, "memory"),
        (run_for_ever, "time"),
        (lambda: os._exit(3), "exit"),
    ],
    ids=["exception", "wrong answer", "filled memory", "reserved memory", "hidden memory", "endless loop", "exit"],
)
def test_the_harness_finds_a_planted_bug(bug: Callable[[], object], what: str) -> None:
    fuzzer = PlantedBug(bug)
    kinds = [fuzzer.case_number(1, number).data for number in range(PLANTED)]
    assert set(kinds) == {b"a", b"bug", b"damaged"}
    run = run_cases(fuzzer, 1, cases=PLANTED)
    assert [(find.number, find.what) for find in run.finds] == [(n, what) for n in range(PLANTED) if kinds[n] == b"bug"]
    assert (run.cases, run.values, run.errors) == (PLANTED, kinds.count(b"a"), kinds.count(b"damaged"))
    assert len(run.distinct) == 1


class MadeInMuchMemory(PlantedBug):
    """Cases whose making leaves much free memory, which C's allocator keeps because what follows it is in use."""

    def changed(self, rng: random.Random, seed: int) -> bytes:
        self.in_use = fill_the_heap()
        return super().changed(rng, seed)


def fill_the_heap() -> bytearray:
    return [bytearray(100_000) for _ in range(320)][-1]


def test_only_the_memory_that_reading_takes_counts() -> None:
    fuzzer = MadeInMuchMemory(fill_the_heap)
    finds = run_cases(fuzzer, 1, cases=PLANTED).finds
    bugs = [number for number in range(PLANTED) if fuzzer.case_number(1, number).data == b"bug"]
    assert [(find.number, find.what) for find in finds] == [(number, "memory") for number in bugs]


def test_a_find_can_be_repeated() -> None:
    fuzzer = PlantedBug(raise_key_error)
    run = run_cases(fuzzer, 1, cases=PLANTED)
    case, again = repeat(fuzzer, 1, run.finds[0].number)
    assert (case.data, again) == (b"bug", run.finds[0])
