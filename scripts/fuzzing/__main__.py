"""The command line of ``scripts/fuzz``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.detection import print_table
from scripts.fuzzing.grid import keep_bytes, print_grid
from scripts.fuzzing.harness import prepare_process, repeat
from scripts.fuzzing.planted_bugs import BUGS
from scripts.torturing.arguments import minutes


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="scripts/fuzz", description=__doc__)
    parser.add_argument("decoders", nargs="*", help=f"all, or some of: {', '.join(FUZZERS)}")
    parser.add_argument("--minutes", type=minutes, default=1.0, help="how long each decoder is fuzzed")
    parser.add_argument("--seed", type=int, default=0, help="cases are the same for the same seed")
    parser.add_argument("--case", type=int, help="read this case alone, with the traceback of what it raises")
    parser.add_argument("--keep", type=Path, help="folder for the bytes of the first find of each cause")
    parser.add_argument("--list", action="store_true", help="name the decoders")
    parser.add_argument(
        "--detect",
        action="store_true",
        help="plant bugs that are known (all, or those named in place of decoders), and print which are found",
    )
    parser.add_argument("--cases", type=int, default=1 << 60, help="how many cases each decoder reads at most")
    return parser.parse_args()


def main() -> int:
    given = arguments()
    if given.detect:
        return detect(given)
    prepare_process()
    if given.list:
        print("\n".join(f"{name:<22}{fuzzer.what}" for name, fuzzer in FUZZERS.items()))
        return 0
    names = list(FUZZERS) if given.decoders == ["all"] else given.decoders
    if not names or not set(names) <= set(FUZZERS):
        print(f"a decoder is one of: all, {', '.join(FUZZERS)}", file=sys.stderr)
        return 2
    if given.case is not None:
        return one_case(names[0], given.seed, given.case, given.keep)
    return 1 if print_grid(names, given.seed, given.minutes * 60, given.cases, given.keep) else 0


def detect(given: argparse.Namespace) -> int:
    names = given.decoders or list(BUGS)
    if not set(names) <= set(BUGS):
        print(f"a bug is one of: {', '.join(BUGS)}", file=sys.stderr)
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


if __name__ == "__main__":
    sys.exit(main())
