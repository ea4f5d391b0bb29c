"""The command line of ``scripts/fuzz``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.detection import print_table
from scripts.fuzzing.harness import Find, Run, one_thread, repeat, run_cases
from scripts.fuzzing.planted_bugs import BUGS

COLUMNS = f"{'decoder':<22}{'cases':>9}{'a CPU s':>10}{'values':>9}{'errors':>9}{'finds':>7}{'MiB':>6}"


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("decoder", nargs="?", help=f"all, or one of: {', '.join(FUZZERS)}")
    parser.add_argument("--minutes", type=float, default=1.0, help="how long each decoder is fuzzed")
    parser.add_argument("--seed", type=int, default=0, help="cases are the same for the same seed")
    parser.add_argument("--case", type=int, help="read this case alone, with the traceback of what it raises")
    parser.add_argument("--keep", type=Path, help="folder for the bytes of the first find of each cause")
    parser.add_argument("--list", action="store_true", help="name the decoders")
    parser.add_argument(
        "--detect",
        action="store_true",
        help="plant bugs that are known (all, or the one named in place of a decoder), and print which are found",
    )
    parser.add_argument("--cases", type=int, default=1 << 60, help="how many cases each decoder reads at most")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.detect:
        return detect(given)
    one_thread()
    if given.list:
        print("\n".join(f"{name:<22}{fuzzer.what}" for name, fuzzer in FUZZERS.items()))
        return 0
    names = list(FUZZERS) if given.decoder == "all" else [given.decoder]
    if not set(names) <= set(FUZZERS):
        print(f"the decoder is one of: all, {', '.join(FUZZERS)}", file=sys.stderr)
        return 2
    if given.case is not None:
        return one_case(names[0], given.seed, given.case, given.keep)
    return fuzz(names, given)


def detect(given: argparse.Namespace) -> int:
    names = [given.decoder] if given.decoder else list(BUGS)
    if not set(names) <= set(BUGS):
        print(f"the bug is one of: {', '.join(BUGS)}", file=sys.stderr)
        return 2
    return 1 if print_table(given.seed, given.minutes * 60, names) else 0


def one_case(name: str, seed: int, number: int, keep: Path | None) -> int:
    case, find = repeat(FUZZERS[name](), seed, number)
    print(f"{name}, seed {seed}, case {number}: {case.change.value}, {len(case.data)} bytes of seed file {case.seed}")
    if keep is not None:
        keep_bytes(keep, name, number, case.data)
    if find is None:
        print("a value, or an error of ours")
        return 0
    print(f"{find.what} at {find.where}: {find.detail}")
    return 1


def fuzz(names: list[str], given: argparse.Namespace) -> int:
    seed, keep = given.seed, given.keep
    print(COLUMNS)
    total = 0
    for name in names:
        fuzzer = FUZZERS[name]()
        run = run_cases(fuzzer, seed, cases=given.cases, seconds=given.minutes * 60)
        print(line_of(name, run), flush=True)
        for find in run.distinct.values():
            print(f"  {describe(find, name, seed)}", flush=True)
            if keep is not None:
                keep_bytes(keep, name, find.number, fuzzer.case_number(seed, find.number).data)
        total += len(run.distinct)
    print(f"causes found: {total}")
    return 1 if total else 0


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


if __name__ == "__main__":
    sys.exit(main())
