"""Asks about every Parquet, ORC and Puffin file of a folder, and compares the answers with those of other readers.

The readers are pyarrow, DuckDB, polars, pyorc, and parquet-java and ORC Java through Spark. A difference is a line:
file, writer, question, both answers. What a reader refuses is no difference. ``known_faults`` has those of others.
"""

from __future__ import annotations

import argparse
import csv
import os
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from zlib import crc32

from scripts.torturing.foreign.differences import Answers, Explain, Report, lines_of
from scripts.torturing.foreign.known_faults import explain_file
from scripts.torturing.foreign.pool import Item, Make, Pool, Say

SECONDS = 120.0
"""How long a file is asked about, at most."""
LARGEST = 2 << 20
"""Bytes of a file that is still asked about: cells are compared in Python."""
MAGIC = {b"PAR1", b"PARE", b"PFA1"}


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/torture corpus", description=__doc__)
    parser.add_argument("folder", type=Path, help="its index.tsv, if there is one, says where files come from")
    parser.add_argument("--seed", type=int, default=0, help="predicates and values are the same for the same seed")
    parser.add_argument("--to", type=Path, help="file for the answers; a run goes on where it ends")
    parser.add_argument("--only", default="", help="a part of the names of files")
    parser.add_argument("--share", type=int, default=1, help="ask about one of so many files")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a file is asked about, at most")
    parser.add_argument("--no-spark", action="store_true", help="without parquet-java and ORC Java")
    given = parser.parse_args(arguments)
    files = [(name, path) for name, path in files_of(given.folder) if given.only in name]
    items = [Item(name, str(path), crc32(name.encode()) + given.seed) for name, path in share_of(files, given.share)]
    return run(items, partial(asker, not given.no_spark), explain_file, given.to, given.seconds)


def run(items: list[Item], make: Make, explain: Explain, to: Path | None, seconds: float) -> int:
    """Ask about all items that ``to`` has no answers of; returns the exit status."""
    report, done = Report(explain), set()
    for name, answers in lines_of(to) if to and to.exists() else ():
        done.add(name)
        report.add(name, answers)
    for item, answers in Pool(make, seconds).ask(item for item in items if item.name not in done):
        report.add(item.name, answers)
        if to:
            with to.open("a") as file:
                file.write(answers.line(item.name) + "\n")
    return report.finish("asked about")


def asker(with_spark: bool) -> Callable[[Item, Path, Say], Answers]:
    """The function that asks about a file, in a process of its own."""
    from scripts.torturing.foreign.file_questions import FileQuestions
    from scripts.torturing.foreign.readers import SparkReader, readers_of
    from sidecar import errors
    from sidecar.kernels.warming import warm_up

    errors.reraise_foreign = True
    warm_up()
    spark = SparkReader() if with_spark else None

    def ask(item: Item, folder: Path, say: Say) -> Answers:
        questions = FileQuestions(item.path, folder, item.seed, say)
        known = readers_of(questions.kind, spark)
        questions.readers = {name: reader for name, reader in known.items() if name not in item.without}
        questions.ask_all()
        return Answers(questions.asked, questions.differences, questions.created_by)

    return ask


def files_of(folder: Path) -> Iterator[tuple[str, Path]]:
    """The files of the formats by where they come from, else by their place in the folder."""
    index = folder / "index.tsv"
    names: dict[str, str] = {}
    if index.exists():
        with index.open(newline="") as file:
            rows = csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE)
            names = {row["file"]: f"{row['repository']}/{row['path']}" for row in rows}
    for parent, folders, found in os.walk(folder):
        folders.sort()
        for name in sorted(found):
            path = Path(parent, name)
            if path.stat().st_size <= LARGEST and is_known(path):
                place = str(path.relative_to(folder))
                yield names.get(place, place), path


def is_known(path: Path) -> bool:
    with path.open("rb") as file:
        head = file.read(4)
        file.seek(-min(4, path.stat().st_size), os.SEEK_END)
        tail = file.read(4)
    return not MAGIC.isdisjoint((head, tail)) or b"ORC" in (head[:3], tail[:3])


def share_of(files: list[tuple[str, Path]], share: int) -> list[tuple[str, Path]]:
    """One of so many files, the same ones whatever else is in the folder."""
    return [(name, path) for name, path in files if crc32(name.encode()) % share == 0]
