"""What a refresh leaves registered is true: distinct counts, what was lost to damage, and what other builds made."""

from __future__ import annotations

import itertools
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.io.pyarrow import parquet_file_to_data_file, schema_to_pyarrow
from pyiceberg.types import IntegerType, LongType

import sidecar
from sidecar.bundle.runs import intact_state_of
from sidecar.bundle.sections import COVERAGE
from sidecar.bundle.sketches.count_marks import CountMarks
from sidecar.errors import StorageError
from sidecar.failpoints import observe
from sidecar.iceberg.metadata_log import statistics_of
from sidecar.iceberg.table_names import name_of
from sidecar.indexing.previous import damage
from sidecar.indexing.previous.damage import find_damage
from sidecar.maintenance import costs
from sidecar.puffin.types import ORC_BLOOM, PAGE_INDEX, SBBF, THETA, THETA_GROUPS, TOC, UNITS
from sidecar.reports.page.collecting import collect_facts
from tests.iceberg.cases import local
from tests.iceberg.mixed_tables import append_files
from tests.iceberg.table_cases import delete_by_position
from tests.indexing.test_carrying import damage_filters
from tests.tables import create_with_rows

serial = itertools.count()


def rows(number: int, count: int = 40) -> pa.Table:
    return pa.table({"k": [number * 1000 + n for n in range(count)], "s": [f"{number} {n}" for n in range(count)]})


@pytest.fixture
def table(catalog: Any) -> Any:
    """Two files with distinct keys, and a file of one row."""
    return create_with_rows(catalog, f"db.claims_{next(serial)}", [rows(0), rows(1), rows(2, 1)])


def build(table: Any, *columns: str, **options: Any) -> Any:
    """A build that names its kinds, so that counts of numbers are registered."""
    options.setdefault("kinds", ["bloom", "theta"])
    return sidecar.build(table, list(columns), engine="local", **options)


def refresh(table: Any, **options: Any) -> str:
    action: str = sidecar.refresh(table.refresh(), engine="local", **options).action
    return action


def counts(table: Any) -> dict[int, tuple[str, list[str] | None]]:
    """The distinct counts of the current snapshot by field id, and why they are upper bounds."""
    (entry,) = statistics_of(table.refresh())[table.current_snapshot().snapshot_id]
    return {b.fields[0]: (b.properties["ndv"], CountMarks.of(b.properties).upper_bound) for b in entry.blob_metadata}


def covered(table: Any, column: str) -> int | None:
    files: int | None = sidecar.status(table.refresh()).coverage[column]["bloom"].files
    return files


@pytest.mark.parametrize("large", [costs.LARGE, 0])
def test_a_count_is_made_again_after_many_rows_have_gone(
    table: Any, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also that of a large sidecar, which said nothing of removed rows."""
    monkeypatch.setattr(costs, "LARGE", large)
    build(table, "k")
    table.delete("k < 1000")
    assert refresh(table, dry_run=True) == "written"
    assert [refresh(table), refresh(table)] == ["written", "current"]
    assert counts(table) == {1: ("41", None)}


def test_few_rows_that_have_gone_are_said_and_cost_no_copy(table: Any) -> None:
    build(table, "k")
    table.delete("k = 2000")
    assert refresh(table) == "registered"
    assert counts(table) == {1: ("81", ["removed-files"])}
    table.overwrite(rows(0).slice(0, 0), overwrite_filter="k = 77777")  # a snapshot that changes no file
    assert [refresh(table), refresh(table)] == ["registered", "current"]
    assert counts(table) == {1: ("81", ["removed-files"])}


def test_row_deletes_are_said_and_cost_no_copy(table: Any) -> None:
    build(table, "k")
    paths = [task.file.file_path for task in table.scan().plan_files()]
    for position in (1, 2):
        delete_by_position(table, {paths[-1]: [position]})
        table = table.catalog.load_table(table.name())
        assert refresh(table) == "registered"
        assert counts(table) == {1: ("81", ["row-deletes"])}


@pytest.mark.parametrize("step", ["merge", "build", "build full", "refresh"])
def test_a_count_that_row_deletes_made_a_bound_stays_one(table: Any, step: str) -> None:
    """The registration says so, and the footer of the file does not: it was written before the rows were deleted."""
    build(table, "k")
    for number in (3, 4):
        table.append(rows(number))
        build(table, "k")
    if step != "merge":
        refresh(table)
    path = next(iter(table.scan().plan_files())).file.file_path
    delete_by_position(table, {path: [1]})
    table = table.catalog.load_table(table.name())
    assert refresh(table) == ("written" if step == "merge" else "registered")
    bound = counts(table)[1]
    assert bound == ("161", ["row-deletes"])
    assert [one.upper_bound for one in collect_facts(table, with_advice=False).distinct] == [bound[1]]
    assert sidecar.verify(table.refresh(), data=True).problems == []
    if step == "refresh":
        table.append(rows(5))
        assert refresh(table) == "written"
        bound = ("201", bound[1])
    elif step != "merge":
        build(table, "s", kinds=["bloom"], full=step == "build full")
    assert counts(table)[1] == bound
    with closing(sidecar.open_sidecar(table)) as opened:
        stored = [blob for blob in opened.puffin.metadata.blobs if "ndv" in blob.properties]
    assert [CountMarks.of(blob.properties).upper_bound for blob in stored] == [bound[1]]
    assert sidecar.verify(table.refresh(), data=True).problems == []


def test_a_file_that_is_registered_again_is_verified_as_before(table: Any) -> None:
    """Also when the snapshot that it was written for has expired. Blobs of any other snapshot are still named."""
    build(table, "k")
    first = table.refresh().current_snapshot().snapshot_id
    for _ in range(2):
        table.overwrite(rows(0).slice(0, 0), overwrite_filter="k = 77777")
        assert refresh(table) == "registered"
    assert sidecar.verify(table.refresh()).problems == []
    table.maintenance.expire_snapshots().by_id(first).commit()
    assert sidecar.verify(table.refresh()).problems == []
    (entry,) = table.metadata.statistics
    old = local(entry.statistics_path)
    data = old.read_bytes()
    for renamed in (old.with_name(f"1{old.name}"), old):
        renamed.write_bytes(data)
        moved = entry.model_copy(update={"statistics_path": f"file:{renamed}"})
        table.update_statistics().set_statistics(moved).commit()
        problems = sidecar.verify(table.refresh()).problems
        assert any("belongs to snapshot" in problem.problem for problem in problems) is (renamed != old)


def flip(table: Any, blob_type: str) -> None:
    """Change a byte of the content of the sidecar's first blob of a type."""
    with closing(sidecar.open_sidecar(table.refresh())) as opened:
        blob = next(blob for blob in opened.puffin.metadata.blobs if blob.type == blob_type)
        path = Path(local(opened.source.name))
    data = bytearray(path.read_bytes())
    data[blob.offset + (blob.length // 2 if blob_type == THETA else 40)] ^= 255
    path.write_bytes(data)


@pytest.mark.parametrize("cure", ["to_do", "care"])
@pytest.mark.parametrize(
    ("blob_type", "kind"), [(SBBF, "bloom"), (PAGE_INDEX, "page-index"), (THETA, "theta"), (THETA_GROUPS, "theta")]
)
def test_damage_is_no_coverage_and_is_made_anew(table: Any, blob_type: str, kind: str, cure: str) -> None:
    build(table, "k", kinds=["bloom", "theta", "page-index"], save=True)
    build(table, "s", kinds=["bloom"])
    refresh(table)
    flip(table, blob_type)
    status = sidecar.status(table.refresh(), min_coverage=100)
    assert any(f"{kind} of k is damaged" in warning for warning in status.warnings)
    assert [one.threshold for one in status.missed] == ([] if kind == "theta" else ["min_coverage"])
    assert sidecar.status(table, quick=True, min_coverage=100).missed == []
    (checked,) = sidecar.care(table, only=["check"]).tables
    assert (checked.check.warnings, checked.check.to_do) == (status.warnings, status.to_do)
    (step,) = status.to_do
    assert f"sidecar build {name_of(table)}" in step.command
    assert f"--columns k --kinds {kind} " in step.command
    if cure == "care":
        assert refresh(table) == "current"  # it reads a tail, and no more
        (done,) = sidecar.care(table, engine="local", only=["refresh"]).tables
        assert done.refresh is not None
        assert done.refresh.action == "written"
    else:
        build(table, "k", kinds=[kind])
    assert sidecar.verify(table.refresh(), data=True).problems == []
    assert (sidecar.status(table, min_coverage=100).missed, sidecar.plan(table, "k = 500").files_kept) == ([], 0)
    refresh(table)  # it merges what a build has added
    assert refresh(table) == "current"


@pytest.mark.parametrize("cure", ["to_do", "care"])
def test_a_damaged_units_table_is_made_anew_and_is_gone_once_all_of_its_indexes_are(table: Any, cure: str) -> None:
    build(table, "k", kinds=["bloom"], save=True)
    build(table, "s", kinds=["bloom"])
    refresh(table)
    flip(table, UNITS)
    assert sidecar.verify(table.refresh()).problems != []
    status = sidecar.status(table, min_coverage=100)
    assert [one.threshold for one in status.missed] == ["min_coverage"]
    (step,) = status.to_do
    assert f"sidecar build {name_of(table)} --columns k,s --kinds bloom " in step.command
    if cure == "care":
        (done,) = sidecar.care(table, engine="local", only=["refresh"]).tables
        assert done.refresh is not None
        assert done.refresh.action == "written"
        (step,) = sidecar.status(table).to_do
        assert "--columns k,s --kinds bloom " in step.command  # that of s is kept as it is
        build(table, "s", kinds=["bloom"])
    else:
        build(table, "k", "s", kinds=["bloom"])
    assert sidecar.verify(table.refresh(), data=True).problems == []
    assert (sidecar.status(table, min_coverage=100).missed, sidecar.plan(table, "k = 500").files_kept) == ([], 0)


def rename_in_footer(table: Any, blob_type: str) -> None:
    """Change a letter of a type in the sidecar's footer."""
    path = Path(local(table.refresh().metadata.statistics[-1].statistics_path))
    data = bytearray(path.read_bytes())
    data[data.rindex(f'"{blob_type}"'.encode()) + 3] ^= 1
    path.write_bytes(data)


@pytest.mark.parametrize(("hurt", "blob_type"), [(flip, TOC), (rename_in_footer, TOC), (rename_in_footer, SBBF)])
def test_the_cure_of_a_damaged_directory_is_a_build(table: Any, hurt: Any, blob_type: str) -> None:
    """A refresh does not look for damage."""
    build(table, "k", kinds=["bloom"], save=True)
    hurt(table, blob_type)
    assert sidecar.verify(table.refresh()).problems != []
    assert refresh(table) == "current"
    (step,) = sidecar.status(table.refresh()).to_do
    assert (step.why, step.command.startswith(f"sidecar build {name_of(table)}")) == ("the sidecar is damaged", True)
    build(table, "k")
    assert (sidecar.verify(table.refresh()).problems, sidecar.status(table).to_do) == ([], [])


def test_a_count_of_a_segment_whose_coverage_is_damaged_is_not_carried_without_its_mark(table: Any) -> None:
    """A file that it has counted is gone."""
    build(table, "k", kinds=["bloom", "theta"])
    table.delete("k = 2000")
    with closing(sidecar.open_sidecar(table.refresh())) as opened:
        (segment,) = opened.segments
        (section,) = [one for one in segment.units.toc.sections if one.name == COVERAGE]
        path, at = local(opened.source.name), segment.entry.offset + section.offset + section.length // 2
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.write_bytes(data)
    build(table, "s", kinds=["bloom"])
    assert counts(table) == {}
    build(table, "k", kinds=["bloom", "theta"])
    assert counts(table) == {1: ("80", None)}


def test_a_count_that_the_footer_does_not_name_and_a_sidecar_without_segments_are_made_anew(table: Any) -> None:
    build(table, "k", kinds=["bloom", "theta"], save=True)
    rename_in_footer(table, THETA)
    (step,) = sidecar.status(table.refresh()).to_do
    assert step.why == "theta of k is damaged"
    build(table, "k", kinds=["theta"])
    assert (sidecar.verify(table.refresh()).problems, sidecar.status(table).to_do) == ([], [])
    rename_in_footer(table, UNITS)
    assert [refresh(table), refresh(table)] == ["written", "current"]
    assert (sidecar.verify(table.refresh()).problems, sidecar.status(table).to_do) == ([], [])


def test_damage_in_two_blobs_of_a_kind_is_the_damage_of_both(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Filters of Parquet files are in one blob, those of ORC files in another."""
    build(table, "k", kinds=["bloom"])
    hit = {(SBBF, 1): [True, False, False], (ORC_BLOOM, 1): [False, False, True]}
    monkeypatch.setattr(damage, "damaged_units", lambda _: {key: np.array(flags) for key, flags in hit.items()})
    (entry,) = table.refresh().metadata.statistics
    with closing(sidecar.open_sidecar(table)) as opened:
        found = find_damage(opened, entry).units
    assert {key: flags.tolist() for key, flags in found.items()} == {(1, "bloom"): [True, False, True]}


def test_damage_is_not_copied(table: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(costs, "MERGED_AT_ONCE", 0)
    build(table, "k", kinds=["bloom"])
    damage_filters(table, 0)
    table.append(rows(3, 1))
    warnings = sidecar.refresh(table, engine="local").warnings
    assert any("damaged indexes were left out" in warning for warning in warnings)
    assert [refresh(table), covered(table, "k")] == ["written", 4]


@pytest.mark.parametrize("is_new", [False, True])
def test_what_a_merge_has_left_out_is_indexed_again(table: Any, is_new: bool) -> None:
    build(table, "k", kinds=["bloom"])
    for number in (3, 4):
        table.append(rows(number))
        build(table, "k", kinds=["bloom"])
    delta = len(sidecar.open_sidecar(table).segments) - 1
    damage_filters(table, delta)
    if is_new:
        table.append(rows(5))
    warnings = sidecar.refresh(table.refresh(), engine="local").warnings
    assert any("damaged indexes were left out" in warning for warning in warnings)
    files = len(list(table.refresh().scan().plan_files()))
    assert covered(table, "k") != files
    assert [refresh(table), refresh(table)] == ["written", "current"]
    assert covered(table, "k") == files


def test_columns_of_a_build_that_came_between_are_known_later(table: Any) -> None:
    other = table.catalog.load_table(table.name())
    done: list[Any] = []

    def interfere(what: str, step: int | None = None, total: int | None = None) -> None:
        if what == "slicing" and not done:
            done.append(None)
            build(other, "s")

    with sidecar.progress(interfere):
        build(table, "k")
    assert done
    table.append(rows(3))
    assert refresh(table) == "written"
    assert (covered(table, "k"), covered(table, "s")) == (4, 4)


@pytest.mark.parametrize("step", ["register: write", "register: check"])
@pytest.mark.parametrize("other", ["k with pages", "all of s"])
def test_indexes_of_a_build_that_came_between_are_known_later(table: Any, step: str, other: str) -> None:
    """Another kind of the same column, and files of another column that this build left behind."""
    build(table, "k", "s")
    table.append(rows(3))
    waiting = {step}

    def between(reached: str) -> None:
        if reached in waiting:
            waiting.clear()
            again = table.catalog.load_table(table.name())
            build(again, "k", kinds=["page-index"]) if other == "k with pages" else build(again, "s", full=True)

    with observe(between):
        build(table, "k")
    opened = sidecar.open_sidecar(table.refresh())
    state = intact_state_of(opened.puffin.metadata.properties)
    opened.close()
    assert state is not None
    assert not waiting
    if other == "k with pages":
        assert set(state.columns[1].kinds) == {"bloom", "theta", "page-index"}
    else:
        assert state.columns[2].left == {}


def test_limited_runs_come_to_an_end(table: Any) -> None:
    """A merge of filters of two rates would take the coarse one for all, and the files would be indexed again."""
    build(table, "k", kinds=["bloom"], fpp=0.05, save=True)
    with table.transaction() as transaction:
        transaction.set_properties({"sidecar.fpp": "0.001"})
    actions = [refresh(table, max_new_files=1) for _ in range(4)]
    assert actions == ["written", "written", "written", "current"]
    (segment,) = sidecar.open_sidecar(table.refresh()).segments
    assert (segment.bundles[1].toc.fpp, segment.num_files) == (0.001, 3)


def test_a_run_that_leaves_files_registers_no_count_of_the_others(table: Any) -> None:
    """Spark would take the count of a few files for that of the table."""
    build(table, "k")
    before = counts(table)[1]
    for number in (3, 4):
        table.append(rows(number))
    assert refresh(table, max_new_files=1) == "written"
    assert counts(table)[1] == before
    assert refresh(table, max_new_files=1) == "written"
    assert counts(table)[1] == ("161", None)


def test_files_that_could_not_be_counted_are_counted_later(table: Any) -> None:
    """The count has lost its old sketches, which are of another type, so that nothing else marks it as too low."""
    with table.update_schema() as update:
        update.add_column("i", IntegerType())
    before = {task.file.file_path for task in table.scan().plan_files()}
    table.append(rows(3).append_column("i", pa.array(range(40), pa.int32())))
    build(table, "i", save=True)
    (new,) = {task.file.file_path for task in table.scan().plan_files()} - before
    path = Path(local(new))
    with table.update_schema() as update:
        update.update_column("i", LongType())
    table.append(rows(4).append_column("i", pa.array(range(40, 80), pa.int64())))
    path.rename(path.with_suffix(".away"))
    report = sidecar.refresh(table, engine="local")
    assert (report.action, counts(table)[3][0]) == ("written", "40")
    assert list(report.files_failed) == [new]
    with pytest.raises(StorageError, match="no data file could be read"):
        sidecar.refresh(table, engine="local")
    path.with_suffix(".away").rename(path)
    assert [refresh(table), refresh(table)] == ["written", "current"]
    assert counts(table)[3][0] == "80"


def test_a_file_without_rows_is_indexed_once(table: Any) -> None:
    path = f"{table.location()}/data/empty.parquet"
    with pq.ParquetWriter(local(path), rows(0).schema):
        pass
    append_files(table, [parquet_file_to_data_file(table.io, table.metadata, path)])
    first = build(table, "k")
    assert build(table, "k").statistics_path == first.statistics_path
    table.overwrite(rows(0).slice(0, 0), overwrite_filter="k = 77777")  # a snapshot that changes no file
    assert [refresh(table), refresh(table)] == ["registered", "current"]


@pytest.mark.parametrize("most", [1, 2, 3])
def test_copies_of_a_file_in_one_commit_are_indexed_together(table: Any, most: int) -> None:
    build(table, "k")
    path = f"{table.location()}/data/copied.parquet"
    pq.write_table(rows(3).cast(schema_to_pyarrow(table.schema())), local(path))
    with table.transaction() as transaction, transaction.update_snapshot().fast_append() as append:
        for _ in range(4):
            append.append_data_file(parquet_file_to_data_file(table.io, table.metadata, path))
    table.append(rows(4))
    steps = [refresh(table, max_new_files=most) for _ in range(3)]
    assert steps == ["written", "written" if most == 1 else "current", "current"]
    found = sidecar.status(table.refresh(), min_coverage=100)
    assert (found.waiting.files, found.missed) == (0, [])
    assert [sidecar.scan(table, f"k = {key}").num_rows for key in (3007, 4007)] == [4, 1]
    assert counts(table) == {1: ("161", None)}
