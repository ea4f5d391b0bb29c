"""Bars in the terminal, and paths that are whole in the narrowest one."""

from __future__ import annotations

import io
import re
from types import SimpleNamespace
from typing import Any

import pytest

import sidecar
from sidecar.cli import plan, probe, verify
from sidecar.cli.output import facts
from sidecar.cli.shell import pictures
from sidecar.cli.shell.console import PathConsole
from sidecar.errors import Problem
from sidecar.results import Funnel, ProbedFile, ProbedFiles, ProbedRowGroup, Verification

LONG = "s3://bucket/" + "folder with spaces/" * 9 + "part-00000.parquet"


class Screen(io.TextIOWrapper):
    """A stream that is a terminal, or says so not."""

    def __init__(self, encoding: str, terminal: bool) -> None:
        self.raw_bytes = io.BytesIO()
        super().__init__(self.raw_bytes, encoding=encoding)
        self.terminal = terminal

    def isatty(self) -> bool:
        return self.terminal

    def text(self) -> str:
        self.flush()
        return self.raw_bytes.getvalue().decode(self.encoding)


def screen(
    monkeypatch: pytest.MonkeyPatch, width: int = 80, encoding: str = "utf-8", terminal: bool = True
) -> tuple[PathConsole, Screen]:
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.delenv("FORCE_COLOR", raising=False)
    stream = Screen(encoding, terminal)
    return PathConsole(file=stream, width=width, highlight=False, emoji=False), stream


def plain(text: str) -> str:
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def planned(kept: list[str], rows: dict[str, Any]) -> sidecar.Plan:
    nothing: Any = None  # no table and no predicate: they are not drawn
    tasks: Any = [SimpleNamespace(file=SimpleNamespace(file_path=path)) for path in kept]
    counts = {"total": 10_000, "listed": 10_000, "indexed": 10_000, "kept": 1}
    funnel = Funnel(**counts, dropped_by_metadata=7_500, dropped_by_filter=2_499, kept_because={"may match": 1})
    costs: dict[str, Any] = {"seconds": 0.1, "index_reads": 1, "index_bytes_read": 10}
    return sidecar.Plan(nothing, 1, nothing, tasks, funnel, row_groups=rows, **costs)


PART = SimpleNamespace(total=4, kept=[1], num_rows=1000, may_match=125)
FUNNEL = """\
in the snapshot              ████████████████████████████████████████  10,000 files
after partitions and bounds  ██████████                                 2,500 files
after filters                ▏                                              1 file
after page indexes           ▏                                              1 file
in these files               ████████████████████████████████████████   1,000 rows
may match                    █████                                        125 rows
"""


def test_the_funnel_of_a_plan_is_a_picture_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch)
    plan.draw(to, planned([LONG], {LONG: PART}))
    assert plain(stream.text()).startswith(FUNNEL)
    assert "\x1b[36m" in stream.text()


def test_a_pipe_gets_no_picture_and_no_colour(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch, terminal=False)
    plan.draw(to, planned([LONG], {LONG: PART}))
    assert stream.text().startswith("in the snapshot")
    assert "█" not in stream.text()
    assert "\x1b" not in stream.text()


def test_no_colour_is_honoured(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    to, stream = screen(monkeypatch)
    plan.draw(to, planned([LONG], {LONG: PART}))
    assert "█" in stream.text()
    assert not re.search(r"\x1b\[[0-9;]*3\d", stream.text())


def test_a_terminal_without_unicode_gets_ascii(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch, encoding="ascii")
    for line in pictures.funnel(to, [("all", 100, "files"), ("left", 1, "files"), ("none", 0, "files")]):
        to.print(line)
    assert plain(stream.text()).splitlines() == [
        f"all   {'#' * 40}  100 files",
        f"left  #{' ' * 39}    1 file",
        f"none  {' ' * 40}    0 files",
    ]


def test_a_funnel_draws_each_number_against_the_first_of_its_unit(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch, 120)
    stages = [("all", 8, "files"), ("left", 1, "files"), ("in these files", 50_027, "rows"), ("match", 24_027, "rows")]
    for line in pictures.funnel(to, stages):
        to.print(line)
    assert plain(stream.text()).splitlines() == [
        "all             ████████████████████████████████████████       8 files",
        "left            █████                                          1 file",
        "in these files  ████████████████████████████████████████  50,027 rows",
        "match           ███████████████████▎                      24,027 rows",
    ]


def test_rows_are_drawn_only_if_those_of_all_files_are_known(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch)
    plan.draw(to, planned([LONG, f"{LONG}.2"], {LONG: PART}))
    assert "in these files" not in stream.text()


@pytest.mark.parametrize(
    ("share", "expected"),
    [(0, ""), (1e-9, "▏"), (0.5, "████"), (0.52, "████▏"), (1, "████████")],
)
def test_a_bar_is_empty_only_for_nothing(share: float, expected: str) -> None:
    assert pictures.bar(share, 8) == expected


def test_the_fill_of_a_filter_has_a_bar_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    to, _ = screen(monkeypatch)
    assert pictures.fill(to, 0.5) == "[cyan]████[/]░░░░   50 %"
    pipe, _ = screen(monkeypatch, terminal=False)
    assert pictures.fill(pipe, 0.5) == "50 %"
    assert pictures.fill(to, None) == "–"
    narrow, _ = screen(monkeypatch, encoding="ascii")
    assert pictures.fill(narrow, 0.5) == "[cyan]####[/]....   50 %"


def wrong(file: str) -> Verification:
    return Verification((), {}, checked=1, problems=[Problem(file, None, None, "wrong " * 40)])


@pytest.mark.parametrize("width", [20, 80, 200])
def test_paths_are_whole_however_narrow_the_terminal_is(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    unit = ProbedRowGroup(file=LONG, row_group=0, might_contain=True, reason="")
    probed = ProbedFile(LONG, 1, True, "", 1, 1, [unit])
    drawings = [
        lambda to: to.print(facts([("file", LONG), ("size", "1 kB")])),
        lambda to: verify.draw(to, wrong(LONG)),
        lambda to: plan.draw(to, planned([LONG], {})),
        lambda to: probe.draw(to, ProbedFiles((probed,), {}, column="k")),
        lambda to: to.print(LONG.replace(" ", "_")),
    ]
    for draw in drawings:
        to, stream = screen(monkeypatch, width)
        draw(to)
        assert "part-00000.parquet" in plain(stream.text())
        text = plain(stream.text()).replace("_", " ")
        assert LONG in text or LONG.rpartition("/")[0] in text


def test_a_table_is_no_wider_than_the_terminal_where_that_is_enough(monkeypatch: pytest.MonkeyPatch) -> None:
    to, stream = screen(monkeypatch, 60)
    verify.draw(to, wrong("a.parquet"))
    assert max(map(len, plain(stream.text()).splitlines())) <= 60
