"""Embedding into tables while others commit and storage fails: one commit, or nothing is left."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table

import sidecar
from sidecar.access import Access
from sidecar.embedding import rewritten_files
from sidecar.errors import (
    CommitConflictError,
    StorageError,
    UsageError,
)
from sidecar.iceberg import replace
from sidecar.iceberg.replace import CommitUnknownError
from sidecar.storage.locations import local_path
from tests.embedding.table_cases import (
    ARROW,
    FILES,
    ROWS,
    before_commit,
    data_files,
    embed,
    filters_of,
    on_disk,
    once,
    rows,
)

pytestmark = pytest.mark.usefixtures("no_pauses")


def other(catalog: Any, table: Table) -> Table:
    loaded: Table = catalog.load_table(table.name())
    return loaded


def test_a_concurrent_append_is_built_upon(table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    attempts = before_commit(monkeypatch, once(lambda: other(catalog, table).append(rows(9))))
    before = on_disk(table, ".avro")
    report = embed(table)
    assert report.attempts == len(attempts) == 2
    operations = table.inspect.snapshots()["operation"].to_pylist()
    assert operations == ["append"] * (FILES + 1) + ["replace"]
    expected = [row for part in (*range(FILES), 9) for row in rows(part).to_pylist()]
    assert sorted(map(repr, table.scan().to_arrow().to_pylist())) == sorted(map(repr, expected))
    assert len(report.replaced) == FILES
    # of the failed attempt nothing is left: two manifests a file and a list, and the append's two
    assert len(on_disk(table, ".avro") - before) == 2 * FILES + 1 + 2


def test_a_concurrent_change_of_other_files_is_built_upon(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Overwriting what was appended meanwhile leaves the replaced files alone."""

    def act() -> None:
        late = other(catalog, table)
        extra = pa.table({"k": [-1, -2], "s": ["a", "b"]}, schema=ARROW)
        late.append(extra)
        late.delete("k = -1")

    before_commit(monkeypatch, once(act))
    embed(table)
    assert table.scan().to_arrow().num_rows == FILES * ROWS + 1
    assert table.scan(row_filter="k < 0").to_arrow()["k"].to_pylist() == [-2]


@pytest.mark.parametrize("change", ["delete", "overwrite", "empty"])
def test_a_concurrent_change_of_a_replaced_file_aborts_and_leaves_nothing(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    actions: dict[str, Callable[[Table], Any]] = {
        "delete": lambda late: late.delete(f"k = {rows(1)['k'][0].as_py()}"),
        "overwrite": lambda late: late.overwrite(rows(7), f"k = {rows(1)['k'][0].as_py()}"),
        "empty": lambda late: late.delete("k >= 0"),
    }
    after: dict[str, Any] = {}

    def act() -> None:
        late = other(catalog, table)
        actions[change](late)
        mine = {path for path in on_disk(table) if "-sidecar-" in path.name}
        assert len(mine) == FILES
        after["files"] = on_disk(table) - mine
        after["metadata"] = late.metadata_location
        after["rows"] = late.scan().to_arrow().sort_by("k")

    before_commit(monkeypatch, once(act))
    with pytest.raises(CommitConflictError, match="another commit"):
        embed(table)
    table.refresh()
    assert table.metadata_location == after["metadata"]
    assert on_disk(table) == after["files"]
    assert table.scan().to_arrow().sort_by("k") == after["rows"]
    assert named_avro(table) == on_disk(table, ".avro")


def named_avro(table: Table) -> set[Path]:
    """Manifests and manifest lists that some snapshot of the table names."""
    named = set()
    for snapshot in table.snapshots():
        named.add(snapshot.manifest_list)
        named |= {manifest.manifest_path for manifest in snapshot.manifests(table.io)}
    return {Path(local_path(path) or "") for path in named}


def test_commits_that_keep_coming_end_in_a_conflict_and_leave_nothing(
    table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    attempts = before_commit(monkeypatch, lambda _: other(catalog, table).append(rows(9)))
    with pytest.raises(CommitConflictError, match="other commits interfered with all 6 attempts"):
        embed(table)
    assert len(attempts) == replace.ATTEMPTS
    table.refresh()
    assert len(on_disk(table)) == FILES + replace.ATTEMPTS
    assert not [path for path in on_disk(table) if "-sidecar-" in path.name]


def test_a_commit_to_another_branch_is_no_conflict(table: Table, catalog: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """It takes our sequence number, so the snapshot cannot be added as it is."""
    table.manage_snapshots().create_branch(table.current_snapshot().snapshot_id, "b").commit()  # type: ignore[union-attr]
    before_commit(monkeypatch, once(lambda: other(catalog, table).append(rows(9), branch="b")))
    report = embed(table)
    assert report.attempts == 2
    assert len(report.replaced) == FILES
    assert table.scan().to_arrow().num_rows == FILES * ROWS


def test_the_branchs_retention_survives(table: Table) -> None:
    from pyiceberg.table.update import SetSnapshotRefUpdate

    snapshot = table.current_snapshot()
    assert snapshot is not None
    kept = {"max-snapshot-age-ms": 86_400_000, "min-snapshots-to-keep": 7, "max-ref-age-ms": 99_000_000}
    head = SetSnapshotRefUpdate.model_validate(
        {"ref-name": "main", "type": "branch", "snapshot-id": snapshot.snapshot_id, **kept}
    )
    with table.transaction() as transaction:
        transaction._apply((head,), ())
    embed(table)
    main = table.metadata.refs["main"].model_dump(by_alias=True)
    assert {key: main[key] for key in kept} == kept


# --- storage and catalogs that fail ------------------------------------------------------------------------------


class Failing:
    """A FileIO under which the creation of files fails, from the n-th of some ending on."""

    def __init__(self, inner: Any, ending: str, after: int) -> None:
        self._inner, self._ending, self._left = inner, ending, after

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def new_output(self, location: str) -> Any:
        if location.endswith(self._ending):
            self._left -= 1
            if self._left < 0:
                raise OSError("disk full")
        return self._inner.new_output(location)


def assert_untouched(table: Table, before: tuple[Any, ...]) -> None:
    table.refresh()
    assert (table.metadata_location, on_disk(table), on_disk(table, ".avro")) == before


def state(table: Table) -> tuple[Any, ...]:
    return table.metadata_location, on_disk(table), on_disk(table, ".avro")


@pytest.mark.parametrize("after", [0, 1, 3])
@pytest.mark.parametrize("threads", [1, 3])
def test_storage_that_fails_at_a_data_file_leaves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, after: int, threads: int
) -> None:
    before, made = state(table), itertools.count()
    create = Access.create

    def failing(access: Access, path: str) -> Any:
        if next(made) >= after:
            raise StorageError("cannot create the file: disk full", file=path)
        return create(access, path)

    monkeypatch.setattr(Access, "create", failing)
    with pytest.raises(StorageError, match="disk full"):
        embed(table, threads=threads)
    assert_untouched(table, before)


@pytest.mark.parametrize("after", [0, 1, 4, 8])
def test_storage_that_fails_at_a_manifest_leaves_nothing(
    table: Table, monkeypatch: pytest.MonkeyPatch, after: int
) -> None:
    """Manifests are 0 to 7, the manifest list is 8."""
    before = state(table)
    reload = replace.reload_table

    def reloaded(of: Table) -> Table:
        now = reload(of)
        now.io = Failing(now.io, ".avro", after)
        return now

    monkeypatch.setattr(replace, "reload_table", reloaded)
    with pytest.raises(StorageError, match="cannot write the manifests: OSError: disk full"):
        embed(table)
    assert_untouched(table, before)


@pytest.mark.parametrize("error", [KeyboardInterrupt(), RuntimeError("progress")], ids=repr)
def test_an_interruption_leaves_nothing(table: Table, error: BaseException) -> None:
    before = state(table)

    def progress(what: str, done: int | None, total: int | None) -> None:
        assert (what, total) == ("files", FILES)
        if done == 2:
            raise error

    with sidecar.progress(progress), pytest.raises(type(error)):
        embed(table)
    assert_untouched(table, before)


def test_progress_counts_the_files(table: Table) -> None:
    seen: list[Any] = []
    with sidecar.progress(lambda *told: seen.append(told)):
        embed(table)
    assert seen[:FILES] == [("files", done, FILES) for done in range(1, FILES + 1)]
    assert seen[FILES:] == [("listing files", None, None)]  # of the refresh


def failing_commit(monkeypatch: pytest.MonkeyPatch, error: BaseException, *, lands: bool) -> list[str]:
    """The catalog raises; ``lands``: after it did what it was asked for. Gives the snapshot ids tried."""
    tried: list[str] = []
    commit = replace.ReplaceProducer.commit

    def failing(self: Any) -> None:
        tried.append(self.snapshot_id)
        if lands:
            commit(self)
        raise error

    monkeypatch.setattr(replace.ReplaceProducer, "commit", failing)
    return tried


@pytest.mark.parametrize(
    "error", [ConnectionError("reset"), KeyboardInterrupt(), CommitFailedException("409")], ids=repr
)
def test_a_commit_that_seemed_to_fail_is_found_in_the_table(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    tried = failing_commit(monkeypatch, error, lands=True)
    report = embed(table)
    assert [report.snapshot_id] == tried
    assert table.scan().to_arrow().num_rows == FILES * ROWS
    assert all(filters_of(file) for file in data_files(table))


@pytest.mark.parametrize("error", [ConnectionError("reset"), KeyboardInterrupt()], ids=repr)
def test_files_of_a_commit_of_unknown_outcome_are_kept_and_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, error: BaseException
) -> None:
    failing_commit(monkeypatch, error, lands=False)
    with pytest.raises(
        CommitUnknownError,
        match=r"may still take effect, so the new files were kept.*-sidecar-.* and 3 more",
    ):
        embed(table)
    assert len(on_disk(table)) == 2 * FILES
    assert len(on_disk(table, ".avro")) == 2 * FILES + 2 * FILES + 1


def test_a_second_interrupt_deletes_no_file_of_a_commit(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first one came after the catalog had taken the commit, the second one while sidecar asks about it."""
    tried = failing_commit(monkeypatch, KeyboardInterrupt(), lands=True)
    load = replace.reload_table

    def interrupted(of: Table) -> Table:
        if tried:
            raise KeyboardInterrupt
        return load(of)

    monkeypatch.setattr(replace, "reload_table", interrupted)
    with pytest.raises(CommitUnknownError, match="may still take effect, so the new files were kept"):
        embed(table)
    table.refresh()
    assert table.scan().to_arrow().num_rows == FILES * ROWS
    assert all(filters_of(file) for file in data_files(table))


def test_a_refused_commit_leaves_nothing(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from pyiceberg.exceptions import ForbiddenError

    before = state(table)
    failing_commit(monkeypatch, ForbiddenError("no"), lands=False)
    with pytest.raises(StorageError, match="refused the commit: ForbiddenError"):
        embed(table)
    assert_untouched(table, before)


def test_new_files_that_cannot_be_deleted_are_named(
    table: Table, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def refuse(location: str) -> None:
        raise PermissionError(location)

    monkeypatch.setattr(table.io, "delete", refuse)

    def progress(*told: Any) -> None:
        raise RuntimeError("stop")

    with sidecar.progress(progress), pytest.raises(RuntimeError, match="stop"):
        embed(table)
    assert "new files could not be deleted, such as" in caplog.text
    assert "-sidecar-" in caplog.text
    fail_reading_back(monkeypatch)
    with pytest.raises(StorageError, match=r"no answer.*new files could not be deleted.*-sidecar-"):
        embed(table)


def fail_reading_back(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: Any) -> None:
        raise StorageError("no answer")

    monkeypatch.setattr(rewritten_files.SuccessorWriter, "_read_back", fail)


def test_refused_writes_show_their_cause_and_no_file_that_does_not_exist(
    table: Table, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: Any) -> Any:
        raise StorageError("the store refuses to write")

    def keep(location: str) -> None:
        raise PermissionError(location)

    monkeypatch.setattr(Access, "create", refuse)
    monkeypatch.setattr(table.io, "delete", keep)
    with pytest.raises(StorageError) as error:
        embed(table)
    assert str(error.value) == "the store refuses to write"


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("commit.retry.num-retries", "often"),
        ("write.py-location-provider.impl", "no.such.Provider"),
        ("schema.name-mapping.default", '{"a": 1}'),
    ],
)
def test_properties_that_pyiceberg_cannot_read_are_named(table: Table, name: str, text: str) -> None:
    before = state(table)
    table.metadata.properties[name] = text
    sound = table.catalog.load_table
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(table.catalog, "load_table", lambda _: with_property(sound(table.name()), name, text))
        with pytest.raises(UsageError, match=f"the table property {name} makes no sense"):
            embed(table)
        with pytest.raises(UsageError, match=f"the table property {name} makes no sense"):
            sidecar.build(table, ["k"], engine="local")
    assert_untouched(table.refresh(), before)


def with_property(table: Table, name: str, text: str) -> Table:
    table.metadata.properties[name] = text
    return table


def test_a_name_mapping_without_names_maps_nothing(table: Table) -> None:
    table.metadata.properties["schema.name-mapping.default"] = '[{"field-id": 1}, {"names": ["s"], "field-id": 2}]'
    assert len(embed(table, refresh=False).replaced) == FILES
