"""Asks about Iceberg tables as they lie in other projects' repositories, whose paths are those of other machines.

The newest metadata of each folder ``metadata`` is a table. It goes through status, scan, build, find, verify, refresh
and serve, and its rows are compared with those of pyiceberg, DuckDB and Spark. See ``corpus`` for what is printed.
"""

from __future__ import annotations

import argparse
import os
import tempfile
from collections.abc import Callable
from functools import partial
from pathlib import Path
from zlib import crc32

import pyarrow as pa
from pyiceberg.table import Table

from scripts.torturing.corpus import run
from scripts.torturing.foreign.differences import Answers
from scripts.torturing.foreign.known_faults import explain_table
from scripts.torturing.foreign.moved_tables import ForeignTable, mount, tables_of
from scripts.torturing.foreign.pool import Item, Say

SECONDS = 300.0


def main(arguments: list[str]) -> int:
    parser = argparse.ArgumentParser(prog="scripts/torture tables", description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--seed", type=int, default=0, help="predicates and values are the same for the same seed")
    parser.add_argument("--to", type=Path, help="file for the answers; a run goes on where it ends")
    parser.add_argument("--only", default="", help="a part of the names of tables")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="how long a table is asked about, at most")
    parser.add_argument("--no-spark", action="store_true", help="without Spark")
    given = parser.parse_args(arguments)
    items = [
        Item(name, str(table.metadata), crc32(name.encode()) + given.seed)
        for name, table in tables_of(given.folder)
        if given.only in name
    ]
    return run(items, partial(asker, given.folder, not given.no_spark), explain_table, given.to, given.seconds)


def asker(folder: Path, with_spark: bool) -> Callable[[Item, Path, Say], Answers]:
    """The function that asks about a table, in a process of its own."""
    from scripts.torturing.foreign.readers import SparkReader
    from scripts.torturing.foreign.table_questions import FILE, TableQuestions, by_duckdb, by_pyiceberg
    from sidecar import errors

    errors.reraise_foreign = True
    tables = {str(table.metadata): table for _, table in tables_of(folder)}
    session = SparkReader().session if with_spark else None
    present = Path(tempfile.mkdtemp(), "present")
    if session:
        mount(session, tables.values(), present)

    def by_spark(table: Table, foreign: ForeignTable, root: Path) -> pa.Table:
        present.unlink(missing_ok=True)
        present.symlink_to(root)
        frame = session.read.format("iceberg").load(foreign.metadata_location)
        return frame.selectExpr("*", FILE).toArrow()

    def ask(item: Item, folder: Path, say: Say) -> Answers:
        home = folder / "user" / os.environ.get("USER", "root")
        home.parent.mkdir(parents=True)
        home.symlink_to(folder)  # where Spark looks for relative paths
        known = {"pyiceberg": by_pyiceberg, "DuckDB": by_duckdb} | ({"Spark": by_spark} if session else {})
        readers = {name: reader for name, reader in known.items() if name not in item.without}
        questions = TableQuestions(item.path, folder, item.seed, say, foreign=tables[item.path], readers=readers)
        questions.session = session
        questions.ask_all()
        return Answers(questions.asked, questions.differences)

    return ask
