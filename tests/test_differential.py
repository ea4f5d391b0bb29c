"""The comparison of two checkouts: nothing differs from itself, and what differs is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from scripts.torturing import differential, differential_answers
from scripts.torturing.differential_known import Known, as_this_code_answers
from scripts.torturing.differential_tables import as_json, make_cases
from sidecar import errors
from tests.guide_examples import ROOT


@pytest.fixture(scope="module")
def cases(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A table of each kind, asked a predicate each."""
    folder = tmp_path_factory.mktemp("differential")
    path = folder / "cases.jsonl"
    path.write_text("".join(f"{as_json(case)}\n" for case in make_cases(folder, 1, 1)))
    return path


def test_all_kinds_of_tables_are_made(cases: Path) -> None:
    found = [json.loads(line) for line in cases.read_text().splitlines()]
    assert {case["name"].split()[0] for case in found} == {"history", "searched", "segments", "moved", "encrypted"}
    damages = {what.split()[0] for case in found for what in case["metadata"]}
    assert damages == {"whole", "gone", "short", "one", "many", "hostile"}


def test_a_checkout_does_not_differ_from_itself(
    cases: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(errors, "reraise_foreign", False)  # as users have it: sidecars are damaged
    paths = tmp_path / "first.jsonl", tmp_path / "second.jsonl"
    for path in paths:
        differential_answers.main(cases, path)
    assert differential.compare(*paths, but=["facts.index_bytes_read"]) == 0
    shown = capsys.readouterr().out
    for feature in ("plans", "with files dropped by filters", "served", "searches", "warnings"):
        assert f"{feature}: " in shown
    assert "errors" not in shown


def test_each_code_is_asked_in_a_process_of_its_own(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "cases.jsonl").write_text("")
    assert differential.main([str(ROOT), "--folder", str(tmp_path)]) == 1, "nothing was compared"
    assert {path.name for path in tmp_path.iterdir()} == {"cases.jsonl", "other.jsonl", "this.jsonl"}
    assert "0 answers" in capsys.readouterr().out


def test_differences_are_told_by_their_kind(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before = {"kept": ["a"], "funnel": {"total": 2, "listed": 2}, "notes": []}
    answers = [before, before | {"kept": []}, before | {"funnel": {"total": 2, "listed": 1}}]
    paths = tmp_path / "other.jsonl", tmp_path / "this.jsonl"
    for path, given in zip(paths, ([before] * 3, answers), strict=True):
        path.write_text("".join(f"{json.dumps([['t', 'k = 1', n], one])}\n" for n, one in enumerate(given)))
    assert differential.compare(*paths) == 1
    shown = capsys.readouterr().out
    assert "3 answers to 1 predicates, 1 of them the same" in shown
    assert "1 differ in kept\n" in shown
    assert "1 differ in funnel.listed\n" in shown
    assert differential.compare(*paths, but=["kept", "funnel.listed"]) == 0


def plan_of(*paths: str, **parts: Any) -> dict[str, Any]:
    """A plan that keeps files of two row groups each, of three files."""
    funnel = {
        "total": 3,
        "listed": 3,
        "indexed": 3,
        "dropped": {"partition_or_bounds": 0, "filter": 3 - len(paths), "page_index": 0},
        "kept": len(paths),
        "kept_because": [["may match", len(paths)]],
        "row_groups": {"total": 6, "dropped": {"filter": 6 - 2 * len(paths), "page_index": 0}, "kept": 2 * len(paths)},
    }
    deletes = [repr(("delete", *["None"] * 15, 0))]
    return {
        "kept": [*paths],
        "tasks": [[path, deletes, "k = 1"] for path in paths],
        "row_groups": {path: [[0, 1], 2, 0, [[[0, 9]], [[0, 9]]]] for path in paths},
        "funnel": funnel,
        "notes": [],
        "warnings": [],
        "answered": [*paths],
        "manifests": {"total": 1, "listed": 0, "opened": 1, "deletes": {"total": 0, "opened": 0}},
        "reads": [3, 900],
        **parts,
    }


LOST = {
    "a file": plan_of("a"),
    "a row group": plan_of(
        "a", "b", row_groups={"a": [[0], 2, 1, [[[0, 9]], []]], "b": plan_of("b")["row_groups"]["b"]}
    ),
    "rows": plan_of("a", "b", row_groups={path: [[0, 1], 2, 0, [[[0, 5]], [[0, 9]]]] for path in "ab"}),
    "a delete file": plan_of("a", "b", tasks=[[path, [], "k = 1"] for path in "ab"]),
    "a residual": plan_of("a", "b", tasks=[["a", *plan_of("a")["tasks"][0][1:2], "k = 2"], plan_of("b")["tasks"][0]]),
}
KEYS = [["k != 1", None, way, what] for way in differential_answers.WAYS for what in ("whole", "twice", "one bit")]


@pytest.mark.parametrize("what", LOST)
@pytest.mark.parametrize(
    "key", [*KEYS, ["st.x is null", None, "usual", "whole"], ["k = 1", 7, "usual", "whole"]], ids=str
)
def test_no_cause_explains_what_is_lost(key: list[Any], what: str) -> None:
    known = Known()
    asked = known.asked(["t", *key], plan_of("a", "b"), LOST[what])
    assert as_this_code_answers(asked)[0] != LOST[what]


@pytest.mark.parametrize(
    ("key", "cause", "after"),
    [
        (KEYS[0], "reads", plan_of("a", reads=[2, 1000])),
        (
            KEYS[0],
            "fields_of_version_3",
            plan_of("a", tasks=[["a", [repr(("delete", *["None"] * 19, 0))], "k = 1"]]),
        ),
        (KEYS[0], "listed_once", plan_of("a", funnel=plan_of("a")["funnel"] | {"listed": 2, "indexed": 2})),
        (KEYS[0], "answered_and_kept", plan_of("a")),
        (KEYS[1], "listed_twice", plan_of("a", notes=["1 file was matched"])),
        (KEYS[2], "damage_that_is_met", plan_of("a", warnings=["a piece has a wrong checksum"])),
        (KEYS[2], "warnings_name_columns", plan_of("a", warnings=["locked; column k"])),
        (["st.x is null", None, "usual", "whole"], "nulls_of_structs", plan_of("a", "b")),
        (["k in (1)", 7, "usual", "whole"], "own_schema", {"error": "UnknownColumnError"}),
    ],
)
def test_each_cause_explains_what_it_is_for(key: list[Any], cause: str, after: dict[str, Any]) -> None:
    before = plan_of("a", answered=["a", "c"] if cause == "answered_and_kept" else ["a"])
    if cause == "warnings_name_columns":
        before["warnings"] = ["locked"]
    asked = replace(Known().asked(["t", *key], before, after), names_other_columns=cause == "own_schema")
    assert as_this_code_answers(asked) == (after, [cause])
    assert as_this_code_answers(replace(asked, before=after)) == (after, [])
