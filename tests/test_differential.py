"""The comparison of two checkouts: nothing differs from itself, and what differs is told."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from scripts.torturing import differential, differential_answers
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
    assert {case["name"].split()[0] for case in found} == {"history", "segments", "moved", "encrypted"}
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
