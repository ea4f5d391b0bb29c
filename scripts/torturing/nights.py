"""Nights: ``care`` alone keeps the sidecars of many tables, while a writer changes them before and during each night.

The tables are lives (``tests.life``): all that happens to one happens to these. After each night its checks hold, the
files of the tables have indexes but for those that came meanwhile, and nothing is left over that is older than ``care``
leaves. In the last night a data file is gone, and ``care`` must name it.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import threading
import time
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from pathlib import Path

from pyiceberg.table import Table

import sidecar
from tests.life import changes
from tests.life.checks import check
from tests.life.table_life import Life, SharedCatalog, numbers
from tests.tables import new_catalog

DAY = 86_400
OLD = timedelta(days=3)
"""How old a file is that a night deletes. Files get four days older before each night."""
APART = (changes.move, changes.damage, changes.delete_by_equality_of)
CHANGES = {change: often for change, often in changes.CHANGES.items() if change not in APART}
"""The changes to the tables before a night. Damage is not among them: ``care`` leaves it to ``--force``."""


@dataclass
class Nights:
    """What the nights came to."""

    seconds: list[float] = field(default_factory=list)
    """The time of each night."""
    writes: int = 0
    """The changes of the writer."""
    compared: int = 0
    """Plans whose rows were compared with those of the model."""
    sidecars: list[int] = field(default_factory=list)
    """The sidecar files of all tables after each night."""
    wrong: list[str] = field(default_factory=list)
    """What was not as it should be."""


def run_nights(folder: Path, tables: int, nights: int, seed: int) -> Nights:
    """Make the tables in a folder, and let the nights pass."""
    chance, found, catalog = random.Random(seed), Nights(), new_catalog(folder)
    lives = [Life(SharedCatalog(catalog), next(numbers), random.Random(chance.random())) for _ in range(tables)]
    for life in lives:
        _append(life)
        sidecar.build(life.table, ["id", "s"], kinds=["bloom"], engine="local", save=True)
    for night in range(nights):
        for life in lives:
            for _ in range(3):
                change = chance.choices([*CHANGES], [*CHANGES.values()])[0]
                found.writes += life.do(change, chance.getrandbits(16)) is not None
        _age(folder)
        before = [len(life.files_of_id_ranges()) for life in lives]
        writer = threading.Thread(target=_write_meanwhile, args=(lives, random.Random(seed + night), found))
        writer.start()
        begun = time.monotonic()
        report = sidecar.care([life.catalog.load_table(life.name) for life in lives], older_than=OLD, engine="local")
        found.seconds.append(time.monotonic() - begun)
        writer.join()
        found.wrong += [
            f"night {night}: {one.table}: {error}" for one in report.tables for error in one.errors.values()
        ]
        found.sidecars.append(len(list(folder.rglob("*.stats"))))
        for life, files in zip(lives, before, strict=True):
            _check(life, files, chance, found)
    found.compared = sum(life.tally["plans"] for life in lives)
    _lose_a_file(chance.choice(lives).table, found)
    return found


def _append(life: Life) -> None:
    life.do(partial(changes.append, branch="main", counts=range(20, 41)))


def _write_meanwhile(lives: list[Life], chance: random.Random, found: Nights) -> None:
    """Append while a night runs; a commit that lost the race is tried again."""
    for life in chance.sample(lives, max(1, len(lives) // 3)):
        for _ in range(20):
            try:
                _append(life)
                found.writes += 1
                break
            except Exception:  # another commit came between, or SQLite is locked
                time.sleep(0.02)
        else:
            found.wrong.append(f"the writer could not append to {life.name}")


def _age(folder: Path) -> None:
    """Let four days pass for all files."""
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "cat.db":
            then = file.stat().st_mtime - 4 * DAY
            os.utime(file, (then, then))


def _check(life: Life, files: int, chance: random.Random, found: Nights) -> None:
    """All that a life checks, and that nothing is left to do but for files that came after there were so many."""
    try:
        check(life, chance.getrandbits(16))
    except AssertionError as error:
        found.wrong.append(f"{life.name}: {error}")
    status = sidecar.status(life.table)
    came = len(life.files_of_id_ranges()) - files
    if status.waiting.files > came or status.unreferenced.deletable or status.repairs or status.lost:
        found.wrong.append(f"{life.name}: {status.summary()}; {life.log}")


def _lose_a_file(table: Table, found: Nights) -> None:
    lost = min(task.file.file_path for task in table.scan().plan_files())
    table.io.delete(lost)
    (night,) = sidecar.care(table, older_than=OLD, engine="local").tables
    if night.check is None or not any(lost in step.why for step in night.check.to_do):
        found.wrong.append(f"the last night does not name the lost file {lost}")


def main(arguments: list[str]) -> int:
    """Print what the nights came to."""
    parser = argparse.ArgumentParser(prog="scripts/torture nights", description=__doc__)
    parser.add_argument("--tables", type=int, default=12)
    parser.add_argument("--nights", type=int, default=10)
    parser.add_argument("--seed", type=int, default=1)
    chosen = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        found = run_nights(Path(folder), chosen.tables, chosen.nights, chosen.seed)
    seconds = sum(found.seconds)
    print(
        f"{chosen.nights} nights over {chosen.tables} tables: {seconds:.1f} s, the longest {max(found.seconds):.1f} s; "
        f"{found.writes} writes, {found.compared} plans compared, sidecar files after each night {found.sidecars}"
    )
    print("\n".join(found.wrong) or "nothing was wrong")
    return 1 if found.wrong else 0
