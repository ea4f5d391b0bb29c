"""A file that leaves a table and comes back under its path with other content of the same size is not the old one.

pyiceberg's own scan is the oracle; it knows nothing of sidecars.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.expressions.visitors import bind
from pyiceberg.io.pyarrow import expression_to_pyarrow
from pyiceberg.table import Table

import sidecar
from sidecar.iceberg.listing import list_snapshot
from sidecar.iceberg.live_files import LiveFiles
from sidecar.iceberg.predicates.predicate import parse_predicate
from sidecar.planning.files import cheapest
from sidecar.planning.funnel import KeptFilesBecause
from tests.iceberg.cases import comparable, local, oracle
from tests.iceberg.rest_server import client, serving
from tests.iceberg.table_cases import delete_by_position

ROWS = 100
KINDS = ("bloom", "page-index", "theta")
OLD, NEW = 3, 9
"""What a file holds at first, and what it holds when it comes back."""


def content(part: int, kind: int) -> pa.Table:
    """``k`` runs over one range in every file, in steps of 10 with ``kind`` as the last digit; new files count down."""
    keys = [10 * row + kind for row in range(ROWS)]
    keys = keys[::-1] if kind == NEW else keys
    return pa.table({"p": [part] * ROWS, "k": keys, "v": [key + 1 for key in keys]})


def write(path: Path, part: int, kind: int) -> None:
    pq.write_table(
        content(part, kind),
        path,
        use_dictionary=False,
        compression="none",
        write_page_index=True,
        data_page_size=80,
        write_batch_size=10,
    )


def leave_and_return(table: Table, path: Path, part: int = 1, kind: int = NEW) -> None:
    """Take a file out, write it anew with the same size, and add it again."""
    size = path.stat().st_size
    table.delete(f"p = {part}")
    assert path not in {local(file.path) for file in list_snapshot(table).files}
    write(path, part, kind)
    assert path.stat().st_size == size
    table.add_files([f"file:{path}"])


@pytest.fixture(params=["1", "2", "1 then 2"])
def returned(catalog: Any, tmp_path: Path, request: pytest.FixtureRequest) -> Any:
    """``returned(build)``: three files, ``build`` is called, then the second leaves and comes back."""

    def make(build: Any, files: int = 3) -> Table:
        name = f"db.returned_{abs(hash((request.node.name, files)))}"
        first = request.param.split()[0]
        table: Table = catalog.create_table(name, content(0, OLD).schema, properties={"format-version": first})
        paths = [tmp_path / f"{part}.parquet" for part in range(files)]
        for part, path in enumerate(paths):
            write(path, part, OLD)
        table.add_files([f"file:{path}" for path in paths])
        build(table)
        if " " in request.param:
            with table.refresh().transaction() as transaction:
                transaction.upgrade_table_version(2)
        leave_and_return(table.refresh(), paths[1])
        return table.refresh()

    return make


def index(table: Table, *columns: str, **options: Any) -> Any:
    return sidecar.build(table.refresh(), list(columns), **{"engine": "local", "kinds": KINDS, **options})


def assert_nothing_is_lost(table: Table, **options: Any) -> None:
    """Each old and each new value, each part of the range, and a join's keys."""
    table = table.refresh()
    predicates = [f"k = {10 * row + kind}" for row in (1, 99) for kind in (OLD, NEW)]
    predicates += [f"v = {10 * row + kind + 1}" for row in (0, 50) for kind in (OLD, NEW)]
    predicates += [
        "k < 100",
        "k >= 900",
        "k > 400 and k < 520",
        f"k in ({10 + NEW}, {980 + NEW}, {20 + OLD})",
    ]
    predicates += [f"k = {50 + NEW} or v = {60 + OLD + 1}"]
    for predicate in predicates:
        planned = sidecar.plan(table, predicate, **options)
        assert planned.warnings == ()
        expected = oracle(table, parse_predicate(predicate, table.schema()))
        assert comparable(planned.to_arrow()) == comparable(expected), predicate
    for keys in ([NEW], [10 + NEW, 990 + OLD]):
        found = sidecar.plan(table, AlwaysTrue(), keys={"k": pa.array(keys, pa.int64())}, **options).to_arrow()
        expected = oracle(table, parse_predicate(f"k in ({', '.join(map(str, keys))})", table.schema()))
        assert comparable(found) == comparable(expected), keys


@pytest.mark.parametrize("kinds", [("bloom",), ("page-index",), ("bloom", "page-index")])
def test_its_rows_are_found_by_filters_page_indexes_and_keys(returned: Any, kinds: tuple[str, ...]) -> None:
    table = returned(lambda made: index(made, "k", "v", kinds=kinds))
    assert_nothing_is_lost(table)


def test_the_files_that_stayed_are_still_answered(returned: Any) -> None:
    table = returned(lambda made: index(made, "k"))
    planned = sidecar.plan(table, f"k = {NEW}")
    assert (planned.funnel.listed, planned.files_kept) == (2, 1)
    assert planned.funnel.kept_because == {KeptFilesBecause.NOT_LISTED.text: 1}


@pytest.mark.parametrize("few", [0, 64])
def test_a_build_of_another_column_does_not_bring_the_old_filters_back(
    returned: Any, monkeypatch: pytest.MonkeyPatch, few: int
) -> None:
    """The new segment lists the manifest of the file that came back; the old one must not be asked about it."""
    monkeypatch.setattr(cheapest, "FEW", few)
    table = returned(lambda made: index(made, "k"))
    index(table, "v", kinds=("bloom", "page-index"))
    assert len(sidecar.status(table.refresh()).segments) == 2
    assert_nothing_is_lost(table)


def test_it_is_indexed_again_and_distinct_values_are_counted_anew(returned: Any) -> None:
    table = returned(lambda made: index(made, "k"))
    report = index(table, "k")
    assert report.columns[0].ndv.estimate == len(np.unique(table.scan().to_arrow()["k"])) == 2 * ROWS
    assert_nothing_is_lost(table)
    planned = sidecar.plan(table.refresh(), f"k = {NEW}")
    assert (planned.funnel.indexed, planned.files_kept) == (3, 1)


def test_a_build_without_sketches_indexes_that_file_alone(returned: Any) -> None:
    table = returned(lambda made: index(made, "k", kinds=("bloom",)))
    report = index(table, "k", kinds=("bloom",))
    assert (report.units, report.files_carried) == (1, 2)
    assert_nothing_is_lost(table)
    assert sidecar.plan(table.refresh(), f"k = {NEW}").files_kept == 1
    assert index(table, "k", kinds=("bloom",)).units == 0


def test_all_that_speaks_of_a_table_takes_it_for_a_new_file(returned: Any) -> None:
    table = returned(lambda made: index(made, "k", kinds=("bloom", "page-index")))
    assert sidecar.status(table).files.to_dict() == {"live": 3, "listed": 2}
    (segment,) = sidecar.status(table).segments
    assert (segment.files, segment.live_files) == (3, 2)
    assert sidecar.plan(table, f"k = {NEW}").files_kept == 1
    verified = sidecar.verify(table, data=True)
    assert verified.problems == []
    assert verified.looked_up.units == 2


def test_tasks_that_the_server_plans_are_looked_up_in_the_manifests(
    returned: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = returned(lambda made: index(made, "k", "v", kinds=("bloom", "page-index")))
    with serving() as (server, address):
        server.locations["planned"] = table.metadata_location
        server.client_side["planned"] = table
        served = client(address, **{"scan-planning-mode": "server"}).load_table("db.planned")
        assert_nothing_is_lost(served)
        planned = sidecar.plan(served, f"k = {NEW}")
        assert (planned.files_kept, planned.funnel.kept_because) == (1, {KeptFilesBecause.NOT_LISTED.text: 1})
        assert server.planned
        tasks = server.plan("planned", {})
        monkeypatch.setattr(server, "plan", lambda name, request: tasks)
        for line in table.current_snapshot().manifests(table.io):
            local(line.manifest_path).unlink()
        planned = sidecar.plan(served, f"k = {NEW}")
        assert planned.files_kept == 3
        assert any("the sidecar is not used" in warning for warning in planned.warnings)


def test_embedding_into_the_table_builds_from_the_new_values(returned: Any) -> None:
    table = returned(lambda made: index(made, "k"))
    if table.metadata.format_version == 1:
        pytest.skip("files of format version 1 are not replaced")
    report = sidecar.embed(table, bloom=["k"], page_index=True)
    assert len(report.replaced) == 3
    assert_nothing_is_lost(table)
    for file in report.replaced:
        keys = pq.read_table(local(file.new_path))["k"].to_pylist()
        for row_group in sidecar.probe(str(local(file.new_path)), "k", keys[0]).only.units:
            assert row_group.might_contain
        assert sidecar.verify(str(local(file.new_path)), data=True).problems == []


def test_a_file_that_is_added_again_as_it_was_is_indexed_again(catalog: Any, tmp_path: Path) -> None:
    table = catalog.create_table("db.returned_as_it_was", content(0, OLD).schema)
    paths = [tmp_path / f"{part}.parquet" for part in range(2)]
    for part, path in enumerate(paths):
        write(path, part, OLD)
    table.add_files([f"file:{path}" for path in paths])
    index(table, "k", kinds=("bloom",))
    leave_and_return(table.refresh(), paths[1], kind=OLD)
    planned = sidecar.plan(table, f"k = {NEW}")
    assert (planned.files_kept, planned.funnel.kept_because) == (1, {KeptFilesBecause.NOT_LISTED.text: 1})
    assert index(table, "k", kinds=("bloom",)).units == 1
    assert sidecar.plan(table.refresh(), f"k = {NEW}").files_kept == 0
    assert_nothing_is_lost(table)


def test_a_path_that_two_live_entries_have_is_of_neither(catalog: Any, tmp_path: Path) -> None:
    """Tasks have no entries: what page indexes of the one say would be taken for the other."""
    table = catalog.create_table("db.returned_twice", content(0, OLD).schema)
    path = tmp_path / "0.parquet"
    write(path, 0, OLD)
    table.add_files([f"file:{path}"])
    index(table, "k", kinds=("bloom", "page-index"))
    write(path, 0, NEW)
    table.add_files([f"file:{path}"], check_duplicate_files=False)
    (new, old) = list_snapshot(table.refresh()).files
    assert old.data_file == new.data_file
    live = LiveFiles(table.io, table.current_snapshot().manifests(table.io))
    assert live.find(new.data_file) is live.find(old.data_file) is None
    planned = sidecar.plan(table, "k >= 900")
    assert planned.files_kept == 2
    assert planned.row_groups == {}
    assert comparable(planned.to_arrow()) == comparable(oracle(table, parse_predicate("k >= 900", table.schema())))


@pytest.mark.parametrize("predicate", ["k >= 0", f"k = {50 + NEW}", f"k = {70 + NEW} or p = 2"])
def test_deletes_of_its_old_rows_take_none_of_its_new_ones(catalog: Any, tmp_path: Path, predicate: str) -> None:
    """One delete file names rows of two files, and one of these files comes back: its new rows are younger.

    pyiceberg's own scan cannot be the oracle: it joins what all delete files of a scan say of a path.
    """
    name = f"db.returned_deletes_{abs(hash(predicate))}"
    table: Table = catalog.create_table(name, content(0, OLD).schema, properties={"format-version": "2"})
    paths = [tmp_path / f"{part}.parquet" for part in range(3)]
    for part, path in enumerate(paths):
        write(path, part, OLD)
    table.add_files([f"file:{path}" for path in paths])
    delete_by_position(table, {f"file:{paths[1]}": list(range(ROWS)), f"file:{paths[2]}": [7]})
    index(table, "k", "p")
    leave_and_return(table.refresh(), paths[1])
    index(table, "k", "p")
    rows = pa.concat_tables(
        [content(0, OLD), content(1, NEW), content(2, OLD).take([row for row in range(ROWS) if row != 7])]
    )
    where = parse_predicate(predicate, table.refresh().schema())
    wanted = rows.filter(expression_to_pyarrow(bind(table.schema(), where, True)))
    found = sidecar.plan(table, predicate).to_arrow()
    assert comparable(found) == comparable(wanted)
