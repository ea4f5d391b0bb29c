"""Every call holds one version of the table that it is given, and a plan holds it until its rows are read."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import closing
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.types import LongType

import sidecar
from tests.iceberg.table_cases import swap

ROWS = pa.schema([("a", pa.int64()), ("b", pa.int64())])


def add_again(table: Table) -> None:
    """Drop both columns, and add new ones under their names."""
    for name in ("a", "b"):
        with table.update_schema() as update:
            update.add_column(f"{name}2", LongType())
            update.delete_column(name)
        with table.update_schema() as update:
            update.rename_column(f"{name}2", name)


CHANGES = {"swapped": swap, "added again": add_again}


def create(catalog: Any, name: str, indexed: Sequence[str] = ("a", "b")) -> Table:
    table: Table = catalog.create_table(name, ROWS)
    table.append(pa.table({"a": [1, 2], "b": [100, 200]}, ROWS))
    table.append(pa.table({"a": [3], "b": [300]}, ROWS))
    if indexed:
        sidecar.build(table, list(indexed), kinds=["bloom", "page-index"], engine="local")
    return table


READ: dict[str, Callable[[sidecar.Plan], pa.Table]] = {
    "at once": lambda plan: plan.to_arrow(),
    "one column": lambda plan: plan.to_arrow(["a", "b"]),
    "a stream": lambda plan: plan.to_arrow_batch_reader().read_all(),
    "pandas": lambda plan: pa.Table.from_pandas(plan.to_pandas()),
}


@pytest.mark.parametrize("read", READ)
@pytest.mark.parametrize("change", CHANGES)
def test_a_plan_gives_its_rows_after_the_table_was_refreshed(catalog: Any, change: str, read: str) -> None:
    name = f"db.refreshed_{change}_{read}".replace(" ", "_")
    table = create(catalog, name)
    first = table.current_snapshot()
    assert first is not None
    plans = [
        sidecar.plan(table, "a = 1"),
        sidecar.plan(table, "b = 100", at="main"),
        sidecar.plan(table, "a < 2", at=first.snapshot_id),
        sidecar.plan(table, "true", keys={"b": [100]}),
    ]
    stream = plans[0].to_arrow_batch_reader()
    CHANGES[change](catalog.load_table(name))
    table.refresh()
    for plan in plans:
        assert READ[read](plan).select(["a", "b"]).to_pylist() == [{"a": 1, "b": 100}], plan.row_filter
        assert plan.why(plan.kept_files[0]).kept
    assert stream.read_all().to_pylist() == [{"a": 1, "b": 100}]


class Restless(Table):
    """A table that somebody refreshes all the time: each look at its metadata shows the other of two versions.

    A copy is a table that shows one of them.
    """

    versions: tuple[Table, Table]
    looks: int

    @classmethod
    def of(cls, *versions: Table) -> Restless:
        made = cls.__new__(cls)
        made.__dict__.update({key: value for key, value in vars(versions[0]).items() if key != "metadata"})
        made.__dict__.update(versions=versions, looks=0)
        return made

    @property
    def metadata(self) -> Any:  # type: ignore[override]
        self.looks += 1
        return self.versions[self.looks % 2].metadata

    @metadata.setter
    def metadata(self, value: Any) -> None: ...

    def __copy__(self) -> Table:
        made = Table.__new__(Table)
        made.__dict__.update({key: value for key, value in vars(self).items() if key not in ("versions", "looks")})
        made.__dict__["metadata"] = self.metadata
        return made


CALLS: dict[str, Callable[[Table], Any]] = {
    "plan": lambda table: sidecar.plan(table, "a = 1").to_arrow().to_pylist(),
    "plan of keys": lambda table: sidecar.plan(table, "true", keys={"a": [1, 3]}).to_arrow().to_pylist(),
    "scan": lambda table: sidecar.scan(table, "a = 100", ["b"]).to_pylist(),
    "scan of a branch": lambda table: sidecar.scan(table, "b in (1, 10)", at="main").to_pylist(),
    "scan_batches": lambda table: sidecar.scan_batches(table, "a >= 100").read_all().to_pylist(),
    "status": lambda table: lasting(sidecar.status(table).to_dict()),
    "verify": lambda table: sidecar.verify(table, data=True).to_dict(),
    "find": lambda table: lasting(sidecar.find(table, {"a": [1, 100]}).to_dict()),
    "find everywhere": lambda table: lasting(sidecar.find(table, {"a": 1}, all_snapshots=True).to_dict()),
    "advise": lambda table: [one.to_dict() for one in sidecar.advise(table, ["a"]).columns],
    "build, dry": lambda table: lasting(sidecar.build(table, ["a"], dry_run=True, engine="local").to_dict()),
    "refresh, dry": lambda table: lasting(sidecar.refresh(table, dry_run=True, engine="local").to_dict()),
    "embed, dry": lambda table: lasting(sidecar.embed(table, bloom=["a"], dry_run=True).to_dict()),
    "repair, dry": lambda table: sidecar.repair(table, dry_run=True).to_dict(),
    "expire, dry": lambda table: sidecar.expire(table, dry_run=True).to_dict(),
}
"""Public functions, and what of their answers does not depend on the time."""


def lasting(answer: dict[str, Any]) -> dict[str, Any]:
    """An answer without what depends on the time."""
    return {key: value for key, value in answer.items() if key not in ("seconds", "metadata_file", "waiting")}


@pytest.fixture(scope="module")
def versions(catalog: Any) -> tuple[Table, Table]:
    """Before and after names were swapped and a file came."""
    create(catalog, "db.restless", ["a"])
    before, after = catalog.load_table("db.restless"), catalog.load_table("db.restless")
    swap(after)
    after.append(pa.table({"b": [10], "a": [1000]}, pa.schema([("b", pa.int64()), ("a", pa.int64())])))
    return before, after


@pytest.mark.parametrize("call", CALLS)
def test_a_call_uses_one_version(versions: tuple[Table, Table], call: str) -> None:
    answers = [CALLS[call](version) for version in versions]
    for first in (0, 1):
        restless = Restless.of(versions[first], versions[1 - first])
        assert CALLS[call](restless) in answers
        assert restless.looks > 0


def test_a_build_indexes_one_version_and_shows_its_commit(catalog: Any) -> None:
    for first in (0, 1):
        name = f"db.restless_build_{first}"
        create(catalog, name, [])
        before, after = catalog.load_table(name), catalog.load_table(name)
        swap(after)
        after.append(pa.table({"b": [10], "a": [1000]}, pa.schema([("b", pa.int64()), ("a", pa.int64())])))
        versions = (before, after) if first else (after, before)
        report = sidecar.build(Restless.of(*versions), ["a"], engine="local")
        used = next(one for one in versions if one.current_snapshot().snapshot_id == report.snapshot_id)  # type: ignore[union-attr]
        assert report.files_indexed == (2 if used is before else 3)
        with closing(sidecar.open_sidecar(catalog.load_table(name), at=report.snapshot_id)) as opened:
            fields = {field_id for segment in opened.segments for field_id in segment.fields}
        assert fields == {used.schema().find_field("a").field_id}
        before.refresh()
        sidecar.build(before, ["b"], engine="local")
        assert len(before.metadata.statistics) == len(catalog.load_table(name).metadata.statistics)
