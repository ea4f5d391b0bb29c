"""Operations on a table whose process is killed, and what must be true of the table and its folder afterwards."""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import timedelta
from functools import cache
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.table import Table

import sidecar
from tests.faults.harness import OPERATIONS, Operation, check_files, prepare
from tests.maintenance.cases import entries, head, metadata_folder, rows
from tests.object_store import open_store
from tests.tables import sketch_metadata, statistics_entry

PLACE = "wh/db/t"
KEYS = range(35)
THOROUGH = False
"""Whether every key is looked up after every kill."""


def no_change(table: Table) -> None:
    """The table is as it was prepared."""


def commit_without_files(table: Table) -> None:
    """A sidecar that answers for all files, and a snapshot after it that has no other file."""
    sidecar.refresh(table, engine="local")
    table.refresh().overwrite(rows().slice(0, 0), overwrite_filter="k = 99999")


def only_merge(table: Table) -> None:
    """A sidecar that answers for all files, in two segments."""
    sidecar.build(table, ["k"], engine="local")


def break_an_entry(table: Table) -> None:
    """An entry of another writer for the head, with a distinct count that Spark's optimiser fails at."""
    theirs = next(path for path in entries(table).values() if path.endswith("theirs.stats"))
    sketch = sketch_metadata(head(table), [1], {"ndv": "5.0"})
    entry = statistics_entry(head(table), theirs, blobs=[sketch])
    table.refresh().update_statistics().set_statistics(entry).commit()


REPAIR = Operation(lambda t: sidecar.repair(t), lambda t: not sidecar.repair(t.refresh(), dry_run=True).repairs)


class TableOperation:
    """An operation of :data:`tests.faults.harness.OPERATIONS` or another one, and what is changed in its table before.

    ``is_local``: whether the table has a local location, and not one in an object store.
    """

    def __init__(
        self, operation: Operation, change: Callable[[Table], object] = no_change, is_local: bool = True
    ) -> None:
        self.operation = operation
        self.change = change
        self.is_local = is_local

    def prepare(self, place: Path) -> None:
        """Make the table that is then copied for each kill."""
        place.mkdir(parents=True)
        prepare(place, str(place / PLACE) if self.is_local else None)
        self.change(self._table(place))

    def run(self, place: Path) -> None:
        """Run the operation. The test kills the process that does."""
        self.operation.run(self._table(place))

    def check(self, place: Path) -> None:
        """The table reads right, the next run ends well, and gc finds exactly what is left over."""
        table = self._table(place)
        check_files(table)
        check_whole(place)
        assert in_order(table.scan().to_arrow()).equals(expected_rows()), "pyiceberg reads other rows"
        check_plans(table)
        self._check_left_over(table)
        self.operation.run(table)
        assert self.operation.is_done(table.refresh()), "the next run leaves nothing to do"
        check_files(table)
        if self.is_local:
            sidecar.gc(table, older_than=timedelta(0), force=True)
            assert left_over(table) == set()
        assert in_order(table.scan().to_arrow()).equals(expected_rows()), "a cleanup took rows"

    def _check_left_over(self, table: Table) -> None:
        for days in (3, 0) if self.is_local else (3,):  # an object store's clock is its newest file, which is never old
            age = timedelta(days=days)
            listed = sidecar.gc(table, older_than=age, force=True, dry_run=True)
            assert {file.path for file in listed.files} == left_over(table, age)

    def _table(self, place: Path) -> Table:
        return open_store(place).load_table("db.t")


def in_order(table: pa.Table) -> pa.Table:
    """The rows by key."""
    return table.sort_by([("k", "ascending"), ("s", "ascending")])


@cache
def expected_rows() -> pa.Table:
    """The rows of :func:`tests.faults.harness.prepare`, by key."""
    return in_order(pa.concat_tables([rows(), rows(5), rows(10), rows(30), rows()]))


def check_plans(table: Table) -> None:
    """Plans drop no row: of one key, of some, and, if :data:`THOROUGH`, of each."""
    for keys in [(2,), (2, 7, 31), *([(key,) for key in KEYS] if THOROUGH else [])]:
        found = in_order(sidecar.scan(table, f"k in ({', '.join(map(str, keys))})"))
        wanted = expected_rows().filter(pc.is_in(expected_rows()["k"], pa.array(keys, pa.int64())))
        assert found.to_pylist() == wanted.to_pylist(), f"a plan drops rows of {keys}"


def local(table: Table, path: str) -> Path:
    """The local path of a file of the table."""
    return Path(table.io._local(path))  # type: ignore[attr-defined]


def left_over(table: Table, age: timedelta = timedelta(0)) -> set[str]:
    """What is older than ``age`` and nothing names: sidecar files, and temporary files. A second way to find them.

    The metadata files that count are the current one, all younger than ``age``, and those that are in no log: a run
    that was killed at a commit leaves one. Temporary files that are whole Parquet files stay.
    """
    folder, old = metadata_folder(table), time.time() - age.total_seconds()
    logged = {entry.metadata_file.rpartition("/")[2] for entry in table.metadata.metadata_log}
    texts = [p.read_text() for p in folder.glob("*.metadata.json") if written(p) >= old or p.name not in logged]
    puffins = [path for path in folder.glob("*.stats") if path.read_bytes()[:11] != b"PFA1 theirs"]
    unnamed = {path.name for path in puffins if not any(path.name in text for text in texts)}
    temporary = {str(path) for path in folder.parent.rglob("*.sidecar-tmp") if not is_whole(path)}
    found = {f"{table.location()}/metadata/{name}" for name in unnamed} | temporary
    return {path for path in found if written(local(table, path)) < old}


def is_whole(path: Path) -> bool:
    """Whether a file ends as a Parquet file does."""
    return path.read_bytes().endswith(b"PAR1")


def written(path: Path) -> float:
    """When a file was last written, in seconds since 1970."""
    return path.stat().st_mtime


def check_whole(place: Path) -> None:
    """Every file with a final name is whole: Parquet files are opened, Puffin files end with their magic."""
    for path in place.rglob("*.parquet"):
        assert pq.read_table(path).num_rows
    for path in place.rglob("*.stats"):
        data = path.read_bytes()
        assert data.startswith(b"PFA1")
        assert data.endswith((b"PFA1", b"PFA1 theirs")), f"{path} is half written"


TABLES = {
    "build": [TableOperation(OPERATIONS["build"])],
    "build, object store": [TableOperation(OPERATIONS["build"], is_local=False)],
    "refresh": [
        TableOperation(OPERATIONS["refresh"]),
        TableOperation(OPERATIONS["refresh"], commit_without_files),
        TableOperation(OPERATIONS["refresh"], only_merge),
    ],
    "embed TABLE": [TableOperation(OPERATIONS["embed"])],
    "expire": [TableOperation(OPERATIONS["expire"])],
    "gc": [TableOperation(OPERATIONS["gc"])],
    "repair": [TableOperation(REPAIR, break_an_entry)],
}
"""The rows of the grid about tables, each with one operation or several."""
