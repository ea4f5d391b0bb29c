"""How many of the planted bugs the fuzzers find, and after how many cases: each bug in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from typing import NamedTuple

from scripts.fuzzing.planted_bugs import BUGS, ROOT, PlantedBug, plant

WIDTHS = f"{'bug':<21}{'decoder':<20}{'found as':<16}{'cases':>8}{'CPU s':>9}"


class Detection(NamedTuple):
    """What came of one bug: the class of the first find, empty if there was none; cases and CPU seconds until then."""

    found: str
    cases: int
    cpu: float


def detect(name: str, seed: int, seconds: float) -> Detection:
    """Plant a bug in a new process, and run the fuzzer of its decoder until it is found or the time is over."""
    command = [sys.executable, "-m", __name__, name, str(seed), str(seconds)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{name}: {done.stderr[-2000:]}")
    return Detection(*json.loads(done.stdout.splitlines()[-1]))


def line_of(bug: PlantedBug, detection: Detection) -> str:
    found = detection.found or "not found"
    return f"{bug.name:<21}{bug.decoder:<20}{found:<16}{detection.cases:>8,}{detection.cpu:>9.1f}"


def print_table(seed: int, seconds: float, names: Sequence[str]) -> int:
    """Run the bugs one after the other and print the table. Returns how many were not found."""
    print(WIDTHS, flush=True)
    missed = 0
    for name in names:
        found = detect(name, seed, seconds)
        missed += not found.found
        print(line_of(BUGS[name], found), flush=True)
    print(f"found: {len(names) - missed} of {len(names)}")
    return missed


def in_child(name: str, seed: int, seconds: float) -> Detection:
    """Plant a bug in this process, and run its fuzzer. Raises if a sound seed shows the bug: that would be no find."""
    bug = plant(name)
    from scripts.fuzzing.decoders import FUZZERS
    from scripts.fuzzing.harness import prepare_process, run_cases

    prepare_process()
    run = run_cases(FUZZERS[bug.decoder](), seed, seconds=seconds, stop_at_find=True)
    first = run.finds[0] if run.finds else None
    return Detection(first.what if first else "", first.number + 1 if first else run.cases, round(run.cpu, 1))


if __name__ == "__main__":
    print(json.dumps(in_child(sys.argv[1], int(sys.argv[2]), float(sys.argv[3]))))
