"""Runs fuzzers one after the other, and prints a line for each with what it did, and each find with its command."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.harness import Find, Run, run_cases

COLUMNS = f"{'decoder':<22}{'cases':>9}{'a CPU s':>10}{'values':>9}{'errors':>9}{'finds':>7}{'MiB':>6}"


def print_grid(names: Sequence[str], seed: int, seconds: float, cases: int = 1 << 60, keep: Path | None = None) -> int:
    """Fuzz each decoder for so long, or with so many cases. Returns how many causes of finds there were.

    ``keep`` is a folder for the bytes of the first find of each cause.
    """
    print(COLUMNS, flush=True)
    total = 0
    for name in names:
        fuzzer = FUZZERS[name]()
        run = run_cases(fuzzer, seed, cases=cases, seconds=seconds)
        print(line_of(name, run), flush=True)
        for find in run.distinct.values():
            print(f"  {describe(find, name, seed)}", flush=True)
            if keep is not None:
                keep_bytes(keep, name, find.number, fuzzer.case_number(seed, find.number).data)
        total += len(run.distinct)
    print(f"causes found: {total}")
    return total


def line_of(name: str, run: Run) -> str:
    rate = run.cases / run.cpu if run.cpu else 0
    numbers = f"{run.cases:>9,}{rate:>10.1f}{run.values:>9,}{run.errors:>9,}{len(run.finds):>7,}"
    return f"{name:<22}{numbers}{run.memory >> 20:>6}"


def describe(find: Find, name: str, seed: int) -> str:
    again = f"scripts/fuzz {name} --seed {seed} --case {find.number}"
    return f"{find.what} ({find.change}) at {find.where}: {find.detail[:160]}\n    {again}"


def keep_bytes(folder: Path, name: str, number: int, data: bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}-{number}.bin").write_bytes(data)
