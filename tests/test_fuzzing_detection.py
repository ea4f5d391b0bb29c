"""Bugs that are planted in the decoders: each still fits its module, and the fuzzers find some within few cases."""

from __future__ import annotations

from dataclasses import replace

import pytest

from scripts.fuzzing import detection
from scripts.fuzzing.decoders import FUZZERS
from scripts.fuzzing.detection import Detection, detect, print_table
from scripts.fuzzing.planted_bugs import BUGS, plant
from scripts.torturing import fuzz

SECONDS = 600.0
"""A find ends a run after about a second of CPU time, which can be long on a machine that does much else."""


def test_every_bug_fits_its_modules_and_has_a_decoder() -> None:
    assert len(BUGS) >= 20
    for bug in BUGS.values():
        assert bug.decoder in FUZZERS, bug.name
        sources: dict[str, str] = {}
        for change in bug.changes:
            source = sources.get(change.module) or change.path.read_text()
            sources[change.module] = change.changed(source)
            assert sources[change.module] != source
        for module, source in sources.items():
            compile(source, module, "exec")


def test_decoders_have_the_names_of_their_fuzzers() -> None:
    assert [fuzzer.name for fuzzer in FUZZERS.values()] == list(FUZZERS)


def test_a_change_that_fits_nowhere_is_an_error() -> None:
    change = replace(BUGS["seal"].changes[0], old="a text that the module does not have")
    with pytest.raises(ValueError, match="0 times"):
        change.changed(change.path.read_text())


def test_a_bug_is_not_planted_after_its_module_was_imported() -> None:
    with pytest.raises(RuntimeError, match="too late"):
        plant("page-checksum")


@pytest.mark.parametrize(
    ("bug", "found"),
    [("index-lists", "IndexError"), ("page-checksum", "wrong answer"), ("inflate-error", "zlib.error")],
)
def test_a_planted_bug_is_found(bug: str, found: str) -> None:
    result = detect(bug, 1, SECONDS)
    assert result.found == found
    assert 0 < result.cases < 500


def test_the_table_counts_what_is_found(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    found = {"seal": Detection("wrong answer", 3, 0.25), "own-blocks": Detection("", 70, 9.0)}
    monkeypatch.setattr(detection, "detect", lambda name, seed, seconds: found[name])
    assert print_table(1, 1.0, list(found)) == 1
    _, first, second, last = capsys.readouterr().out.splitlines()
    assert first.split() == ["seal", "sidecar-filter", "wrong", "answer", "3", "0.2"]
    assert second.split() == ["own-blocks", "sidecar-filter", "not", "found", "70", "9.0"]
    assert last == "found: 1 of 2"


def test_torture_gives_each_decoder_its_share(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    asked: list[tuple[list[str], int, float]] = []

    def note(names: list[str], seed: int, seconds: float, keep: object = None) -> int:
        asked.append((names, seed, seconds))
        return len(asked) - 1

    monkeypatch.setattr(fuzz, "prepare_process", lambda: None)
    monkeypatch.setattr(fuzz, "print_grid", note)
    assert fuzz.main(["--minutes", str(len(FUZZERS)), "--seed", "5"]) == 0
    assert fuzz.main([]) == 1
    assert asked == [(list(FUZZERS), 5, 60.0), (list(FUZZERS), 0, 600.0)]
