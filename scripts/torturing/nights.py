"""Nights: ``care`` alone keeps the sidecars of many tables, while a writer changes them before and during each night.

After each night, rows that sidecars help to read are those of a full scan, the files of the tables have indexes but for
those that came meanwhile, and nothing is left over that is older than ``care`` leaves. In the last night a data file is
gone, and ``care`` must name it.
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
from pathlib import Path

import pyarrow as pa
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.table import Table

import sidecar

DAY = 86_400
OLD = timedelta(days=3)
"""How old a file is that a night deletes. Files get four days older before each night."""


@dataclass
class Nights:
    """What the nights came to."""

    seconds: list[float] = field(default_factory=list)
    """The time of each night."""
    writes: int = 0
    """The changes of the writer."""
    compared: int = 0
    """Scans that were compared."""
    sidecars: list[int] = field(default_factory=list)
    """The sidecar files of all tables after each night."""
    wrong: list[str] = field(default_factory=list)
    """What was not as it should be."""


def run_nights(folder: Path, tables: int, nights: int, seed: int) -> Nights:
    """Make the tables in a folder, and let the nights pass."""
    chance, found = random.Random(seed), Nights()
    catalog = SqlCatalog("nights", uri=f"sqlite:///{folder}/cat.db", warehouse=f"file:{folder}/wh")
    catalog.create_namespace("db")
    names = [f"db.t{number}" for number in range(tables)]
    for name in names:
        made = catalog.create_table(name, _rows(chance).schema)
        made.append(_rows(chance))
        sidecar.build(made, ["k", "s"], kinds=["bloom"], engine="local", save=True)
    for night in range(nights):
        for name in names:
            _change(catalog.load_table(name), chance, found)
        _age(folder)
        writer = threading.Thread(target=_write_meanwhile, args=(catalog, names, random.Random(seed + night), found))
        writer.start()
        begun = time.monotonic()
        report = sidecar.care([catalog.load_table(name) for name in names], older_than=OLD, engine="local")
        found.seconds.append(time.monotonic() - begun)
        writer.join()
        found.wrong += [
            f"night {night}: {one.table}: {error}" for one in report.tables for error in one.errors.values()
        ]
        found.sidecars.append(len(list(folder.rglob("*.stats"))))
        for name in names:
            _compare(catalog.load_table(name), chance, found)
    _lose_a_file(catalog.load_table(chance.choice(names)), found)
    return found


def _rows(chance: random.Random) -> pa.Table:
    keys = [chance.randrange(1000) for _ in range(40)]
    return pa.table({"k": keys, "s": [f"s{key % 97}" for key in keys]})


def _change(table: Table, chance: random.Random, found: Nights) -> None:
    if chance.random() < 0.7:
        table.append(_rows(chance))
    else:
        table.delete(f"k < {chance.randrange(100)}")
    found.writes += 1


def _write_meanwhile(catalog: SqlCatalog, names: list[str], chance: random.Random, found: Nights) -> None:
    """Append while a night runs; a commit that lost the race is tried again."""
    for name in chance.sample(names, max(1, len(names) // 3)):
        for _ in range(20):
            try:
                catalog.load_table(name).append(_rows(chance))
                found.writes += 1
                break
            except Exception:  # another commit came between, or SQLite is locked
                time.sleep(0.02)
        else:
            found.wrong.append(f"the writer could not append to {name}")


def _age(folder: Path) -> None:
    """Let four days pass for all files."""
    for file in folder.rglob("*"):
        if file.is_file() and file.name != "cat.db":
            then = file.stat().st_mtime - 4 * DAY
            os.utime(file, (then, then))


def _compare(table: Table, chance: random.Random, found: Nights) -> None:
    key = chance.randrange(1000)
    for predicate in (f"k = {key}", f"s = 's{key % 97}'"):
        own = sidecar.scan(table, predicate).sort_by("k").to_pylist()
        whole = table.scan(predicate).to_arrow().sort_by("k").to_pylist()
        found.compared += 1
        if own != whole:
            found.wrong.append(f"{table.name()}: {predicate}: {len(own)} rows, and {len(whole)} in a full scan")
    status = sidecar.status(table)
    waiting = status.waiting.files
    if waiting > 2 or status.unreferenced.deletable or status.repairs or status.lost:
        found.wrong.append(f"{table.name()}: {status.summary()}")


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
        f"{found.writes} writes, {found.compared} scans compared, sidecar files after each night {found.sidecars}"
    )
    print("\n".join(found.wrong) or "nothing was wrong")
    return 1 if found.wrong else 0
