"""One command line, night after night: tables change in every way, and each plan has the rows that pyiceberg has."""

from __future__ import annotations

import json
import os
import random
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType

import sidecar
from sidecar.iceberg.metadata_log import statistics_of
from tests.case_counts import NIGHTS, TABLES
from tests.cli import running
from tests.iceberg.cases import comparable, local
from tests.maintenance.cases import DAY
from tests.tables import configure, new_catalog

NAMES = tuple(f"table_{number:02}" for number in range(TABLES))
AGE = 3 * DAY
LINE = ["refresh", "shop.*", "--engine", "local", "--format", "jsonl"]
KEYS = {
    "command", "at", "exit", "seconds", "table", "dry_run", "branch", "action", "reason", "snapshot_id", "columns",
    "statistics_path", "file_size", "files_total", "files_indexed", "files_carried", "files_left", "files_failed",
    "files_unsupported", "filters", "uncovered", "behind", "unregistered", "engine", "bytes_read",
    "bytes_carried", "warnings",
}  # fmt: skip

FIGURES = ("files_indexed", "files_carried", "bytes_read", "bytes_carried", "seconds")
CUSTOMER = 2
"""The field id of the declared column that is renamed."""


@pytest.fixture
def lake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A catalog with a namespace of empty tables that declare what is indexed, and one that declares nothing."""
    catalog = new_catalog(tmp_path, "night", "shop")
    configure(monkeypatch, catalog)
    monkeypatch.setenv("SIDECAR_CATALOG", "night")
    schema = pa.schema([("id", pa.int64()), ("customer", pa.int64()), ("note", pa.string())])
    for name in NAMES:
        table = catalog.create_table(f"shop.{name}", schema)
        sidecar.build(table, ["customer", "note"], save=True)
    catalog.create_table("shop.workbench", schema)
    return catalog


def run(*words: str) -> tuple[int, list[dict[str, Any]]]:
    result = running.run(*words)
    assert result.exception is None or isinstance(result.exception, SystemExit), result.exception
    return result.exit_code, [json.loads(line) for line in result.stdout.splitlines()]


def rows(table: Table, rng: random.Random, start: int) -> pa.Table:
    """Fifty rows, whatever the columns are called by now."""
    ids = range(start, start + 50)
    columns = {name: [rng.randrange(1000) for _ in ids] for name in table.schema().column_names}
    columns |= {"id": list(ids), "note": [f"n{rng.randrange(1000)}" for _ in ids]}
    return pa.table({name: columns[name] for name in table.schema().column_names}, table.schema().as_arrow())


def append(table: Table, rng: random.Random, night: int) -> None:
    for part in range(rng.choice([1, 2])):
        table.append(rows(table, rng, night * 1000 + part * 100))


def delete(table: Table, rng: random.Random, night: int) -> None:
    append(table, rng, night)
    table.delete(f"id >= {rng.randrange(night + 1) * 1000 + 10} and id < {night * 1000 + 30}")


def overwrite(table: Table, rng: random.Random, night: int) -> None:
    table.overwrite(rows(table, rng, night * 1000), overwrite_filter=f"id < {rng.randrange(night + 1) * 1000}")


def compact_files(table: Table, rng: random.Random, night: int) -> None:
    """The rows of some files move to one new file."""
    append(table, rng, night)
    old = f"id < {rng.randrange(night + 1) * 1000 + 100}"
    table.overwrite(table.scan(old).to_arrow(), overwrite_filter=old)


def expire(table: Table, rng: random.Random, night: int) -> None:
    append(table, rng, night)
    head = table.current_snapshot()
    old = [s.snapshot_id for s in table.metadata.snapshots if head is not None and s.snapshot_id != head.snapshot_id]
    table.maintenance.expire_snapshots().by_ids(old).commit()


def rename_and_add_again(table: Table, rng: random.Random, night: int) -> None:
    """The declared column goes by another name; a new one has its first name, and is another column."""
    with table.update_schema() as update:
        update.rename_column(table.schema().find_column_name(CUSTOMER) or "", f"customer_{night}")
    if "customer" not in table.schema().column_names:
        with table.update_schema() as update:
            update.add_column("customer", LongType())
    append(table, rng, night)


CHANGES: list[Callable[[Table, random.Random, int], None]] = [
    append,
    delete,
    overwrite,
    compact_files,
    expire,
    rename_and_add_again,
]


def check_plans(table: Table, rng: random.Random) -> None:
    """The rows of lookups are pyiceberg's, and lookups are answered by an index of all files."""
    for column in table.schema().column_names[1:]:
        value = rng.randrange(1000)
        predicate = f"{column} = 'n{value}'" if column == "note" else f"{column} = {value}"
        plan = sidecar.plan(table, predicate)
        assert comparable(plan.to_arrow()) == comparable(table.scan(row_filter=predicate).to_arrow()), predicate
        if column != "customer" or len(table.schema().column_names) == 3:
            assert ("not listed in the sidecar" in plan.funnel.kept_because, plan.warnings) == (False, ())


def metadata_files(table: Table) -> list[Path]:
    return list((Path(local(table.location())) / "metadata").iterdir())


def pass_a_day(table: Table) -> None:
    for path in metadata_files(table):
        written = path.stat().st_mtime - DAY
        os.utime(path, (written, written))


def leftovers(table: Table) -> list[str]:
    """The Puffin files in the metadata folder that are old, and that neither current nor young metadata names."""
    files = metadata_files(table)
    young = {path.name for path in files if path.stat().st_mtime > time.time() - AGE}
    current = Path(local(table.metadata_location)).name
    texts = [path.read_text() for path in files if path.suffix == ".json" and path.name in young | {current}]
    old = [path.name for path in files if path.suffix == ".stats" and path.name not in young]
    return [name for name in old if not any(name in text for text in texts)]


def test_nights(lake: Any) -> None:
    rng = random.Random(14)
    totals: Counter[str] = Counter()
    for night in range(NIGHTS):
        for number, name in enumerate(NAMES):
            table = lake.load_table(f"shop.{name}")
            CHANGES[(night + number) % len(CHANGES)](table, rng, night)
        code, lines = run(*LINE)
        assert (code, [line["table"] for line in lines]) == (0, [f"shop.{name}" for name in (*NAMES, "workbench")])
        assert {line["action"] for line in lines[:-1]} <= {"written", "registered"}
        assert lines[-1]["action"] == "empty"
        assert all(line.keys() == KEYS for line in lines)
        totals.update({name: sum(line[name] for line in lines) for name in FIGURES})
        for name in NAMES:
            table = lake.load_table(f"shop.{name}")
            assert len(statistics_of(table)) == 1
            check_plans(table, rng)
            pass_a_day(table)
    tables = [lake.load_table(f"shop.{name}") for name in NAMES]
    assert [sidecar.status(table).share_covered for table in tables] == [1.0] * TABLES
    code, lines = run(*LINE)
    assert (code, {line["action"] for line in lines}) == (0, {"current", "empty"})
    before = [len(leftovers(table)) for table in tables]
    assert all(before) or NIGHTS < 5
    code, (cleaned,) = run("care", "shop.*", "--only", "gc", "--json")
    assert (code, [leftovers(table) for table in tables]) == (0, [[]] * TABLES)
    assert [len(one["gc"]["files"]) for one in cleaned["tables"]] == [*before, 0]
    for table in tables:
        check_plans(table.refresh(), rng)
    print(f"{TABLES} tables, {NIGHTS} nights: {dict(totals)}; files deleted at the end: {sum(before)}")


def test_a_table_that_fails_does_not_stop_the_others(lake: Any) -> None:
    rng = random.Random(3)
    for name in NAMES:
        append(lake.load_table(f"shop.{name}"), rng, 0)
    with lake.load_table(f"shop.{NAMES[1]}").transaction() as transaction:
        transaction.set_properties({"sidecar.kinds": "blooms"})
    for path in Path(local(lake.load_table(f"shop.{NAMES[2]}").location())).rglob("*.parquet"):
        path.unlink()
    code, lines = run(*LINE)
    others = [0] * (TABLES - 2)
    assert (code, [line["exit"] for line in lines]) == (1, [0, 2, 1, *others])
    assert [line.get("error", {}).get("kind") for line in lines] == [None, "usage", "storage", *[None] * len(others)]
    shown = running.run(*LINE[:-2])
    assert shown.exit_code == 1
    assert "nothing to do" in shown.stdout
    assert f"{TABLES + 1} tables, 2 failed" in shown.stdout
