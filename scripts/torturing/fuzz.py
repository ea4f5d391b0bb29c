"""All decoders of scripts/fuzz, one after the other, each for the same share of the time."""

from __future__ import annotations

import argparse
from pathlib import Path

from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.grid import print_grid
from scripts.fuzzing.harness import prepare_process
from scripts.torturing.arguments import minutes

MINUTES = 10
"""How long each decoder is fuzzed, unless the command says otherwise."""


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/torture fuzz", description=__doc__)
    parser.add_argument("--minutes", type=minutes, help=f"for all decoders together; {MINUTES} for each by default")
    parser.add_argument("--seed", type=int, default=0, help="cases are the same for the same seed")
    parser.add_argument("--keep", type=Path, help="folder for the bytes of the first find of each cause")
    given = parser.parse_args(arguments)
    prepare_process()
    each = MINUTES if given.minutes is None else given.minutes / len(FUZZERS)
    return 1 if print_grid(list(FUZZERS), given.seed, each * 60, keep=given.keep) else 0
