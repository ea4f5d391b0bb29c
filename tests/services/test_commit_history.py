"""The oracle of ``scripts/torture commits`` finds each way in which a registration can be lost, and no other."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from scripts.torturing.commit_history import DATA_FILE, FILTERS, PATIENCE, History, Version, items
from scripts.torturing.commit_workers import TOKEN
from sidecar.puffin.writer import PuffinWriter

SNAPSHOT = 7
ALIVE = frozenset({SNAPSHOT})


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    """Statistics files: two of another engine, one of ours, and one of ours with both tokens."""
    contents: dict[str, tuple[str, ...]] = {
        "theirs": ("a",), "also theirs": ("b",), "ours": (),
        "merged": ("a",), "merged b": ("b",), "merged both": ("a", "b"),
    }  # fmt: skip
    for name, tokens in contents.items():
        with (tmp_path / name).open("wb") as stream:
            writer = PuffinWriter(stream, created_by="a test")
            for token in tokens:
                writer.add_blob(TOKEN, [1], SNAPSHOT, 1, b"x", None, {"token": token})
            writer.finish()
    return {name: str(tmp_path / name) for name in contents}


def walked(
    files: dict[str, str],
    names: Sequence[str | None],
    log: Sequence[dict[str, Any]] = (),
    live: frozenset[str] | None = None,
) -> History:
    """The history of one snapshot's entry, after a version without one. ``live`` are its data files."""
    by = [{"by": "other", "path": files[name]} for name in ("theirs", "also theirs")]
    entries = [{SNAPSHOT: files[name]} if name else {} for name in (None, *names)]
    versions = [Version(number, ALIVE, entry) for number, entry in enumerate(entries)]
    return History(versions, [*by, *log], lambda snapshot: live)


def test_only_data_files_of_the_snapshot_are_owed(files: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
    listed = {files["ours"]: frozenset({(DATA_FILE, "a"), (DATA_FILE, "b")}), files["theirs"]: frozenset()}
    monkeypatch.setattr("scripts.torturing.commit_history.items", listed.__getitem__)
    (lost,) = walked(files, ["ours", None], live=frozenset("a")).walk()
    assert lost.startswith("data file a of")
    assert len(walked(files, ["ours", None]).walk()) == 2, "not known which are live"


def test_what_is_merged_is_not_lost(files: dict[str, str]) -> None:
    history = walked(files, ["theirs", "merged", "merged"])
    assert history.walk() == []
    assert (history.replaced, history.repaid) == (1, 0)


def test_what_is_replaced_and_merged_later_is_not_lost(files: dict[str, str]) -> None:
    history = walked(files, ["theirs", "ours", "merged"])
    assert history.walk() == []
    assert history.repaid == 1


def test_what_our_commit_replaces_and_nobody_merges_is_lost(files: dict[str, str]) -> None:
    (lost,) = walked(files, ["theirs", "ours"]).walk()
    assert lost == f"token a of snapshot {SNAPSHOT} is lost since version 2"


def test_one_of_two_that_were_merged_is_lost_later(files: dict[str, str]) -> None:
    assert len(walked(files, ["merged both", "merged"]).walk()) == 1


def test_another_engine_may_replace_everything(files: dict[str, str]) -> None:
    assert walked(files, ["merged", "also theirs"]).walk() == []


def test_what_another_engine_replaced_is_not_owed_again(files: dict[str, str]) -> None:
    """Our commit merged what it had read; meanwhile the other engine has replaced that. Then ours merges the latter."""
    assert walked(files, ["theirs", "also theirs", "merged", "merged b"]).walk() == []
    (lost,) = walked(files, ["theirs", "also theirs", "merged", "merged"]).walk()
    assert lost.startswith("token b ")


def test_what_others_have_put_in_outlives_an_acknowledged_removal(files: dict[str, str]) -> None:
    log = [{"expired": [files["merged"]]}]
    assert len(walked(files, ["merged", None], log).walk()) == 1
    assert walked(files, ["merged", None, "merged"], log).walk() == []


def test_a_removal_that_nobody_was_told_of_loses_our_filters(files: dict[str, str], monkeypatch: Any) -> None:
    own = frozenset({("filters of field", "1")})
    monkeypatch.setattr("scripts.torturing.commit_history.items", lambda path: own if "ours" in path else items(path))
    assert len(walked(files, ["ours", None]).walk()) == 1
    assert walked(files, ["ours", None], [{"expired": [files["ours"]]}]).walk() == []
    assert walked(files, ["ours", None], [{"superseded": [SNAPSHOT]}]).walk() == []


def test_what_a_conflict_names_is_not_owed(files: dict[str, str]) -> None:
    log = [{"given_up": "build", "file": files["theirs"]}]
    assert walked(files, ["theirs", "ours"], log).walk() == []


def test_an_old_debt_outlives_its_snapshot(files: dict[str, str]) -> None:
    for versions, expected in ((2, 0), (PATIENCE + 2, 1)):
        history = walked(files, ["theirs", *["ours"] * versions])
        history.versions = [*history.versions, Version(versions + 2, frozenset(), {})]
        assert len(history.walk()) == expected


def test_what_is_in_a_file_of_ours(tmp_path: Path) -> None:
    from tests.maintenance.cases import rows
    from tests.tables import create_with_rows, new_catalog

    catalog = new_catalog(tmp_path, "c")
    table = create_with_rows(catalog, "db.t", [rows(), rows(5)], columns=["k", "s"])
    found = items(table.metadata.statistics[0].statistics_path)
    data = {task.file.file_path for task in table.scan().plan_files()}
    assert found == {("filters of field", n) for n in "12"} | {("data file", path) for path in data}
    assert FILTERS
