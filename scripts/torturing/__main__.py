"""The command line of ``scripts/torture``: the name of a run, and what the run itself takes."""

from __future__ import annotations

import sys
from importlib import import_module

RUNS = {
    "kill": "every command is killed at every named step",
    "storage": "every request of every command fails, in every way in which storage fails",
    "commits": "processes commit to one table at once, on a REST catalog and on PostgreSQL",
    "nights": "care alone keeps twelve tables for ten nights, with a writer between",
    "catalogs": "tables of Spark's catalogs, changed by Spark and sidecar at once",
    "life": "random lives of tables beside a list of their rows",
    "fuzz": "all decoders of scripts/fuzz",
    "mutants": "bugs of one line are planted, and tests should notice them",
    "corpus": "files of other projects, against other readers",
    "tables": "Iceberg tables of other projects, against other engines",
    "differential": "plans beside those of another checkout",
}
"""Modules of this folder, each with ``main(arguments) -> exit status``, and what they do."""


def main(arguments: list[str]) -> int:
    usage = f"usage: scripts/torture NAME [--seed S] [--minutes N], where NAME is one of: {', '.join(RUNS)}"
    if arguments in (["--help"], ["-h"]):
        print(usage)
        return 0
    if arguments == ["--list"]:
        print("\n".join(f"{name:<14}{what}" for name, what in RUNS.items()))
        return 0
    if not arguments or arguments[0] not in RUNS:
        print(usage, file=sys.stderr)
        return 2
    run = import_module(f"scripts.torturing.{arguments[0]}")
    return int(run.main(arguments[1:]))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
