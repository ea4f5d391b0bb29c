"""The harness of ``scripts/bench``: turns and medians, fits, results as JSON, the page, pictures, comparing, data."""

from __future__ import annotations

import itertools
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from xml.etree import ElementTree

import numpy as np
import pyarrow as pa
import pytest

from scripts.benchmarks.harness import data, guides, pictures, running
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.comparing import differences
from scripts.benchmarks.harness.fits import power_law
from scripts.benchmarks.harness.processes import Peak, cpu_of_tree, look, own_memory, peaks_of
from scripts.benchmarks.harness.report import write_report
from scripts.benchmarks.harness.results import (
    BenchmarkResult,
    Comparison,
    Curve,
    Row,
    SideTimes,
    at_least,
    at_most,
    read_results,
    to_json,
)
from scripts.benchmarks.harness.timing import Clock, Side, Taken, figure, take_turns
from scripts.benchmarks.harness.wording import markdown, shown

CURVE = Curve("plan in files", "files", "ms", ((10, 1.0), (100, 10.0), (1000, 1000.0)))


def example() -> BenchmarkResult:
    sides = (SideTimes("sidecar", 0.002, 0.001, 0.1, 0.0), SideTimes("a & b", 0.2, 0.3, 0.0, 0.0))
    return BenchmarkResult(
        "plan",
        "Plans <of> files.",
        {"cores": 2, "load": 0.1, "packages": {"numpy": "2"}},
        1.5,
        [
            Row("ratio", "a | b", 1.5, "x", 0.04, at_most(1.4), "note"),
            Row("speed", "", 7, "files"),
            Row("lost", "Rust", None, "", note="no cargo"),
        ],
        [Comparison("ratio", sides)],
        [CURVE],
    )


# --- timing -------------------------------------------------------------------------------------------------


def test_sides_take_turns_after_warm_ups() -> None:
    order: list[str] = []
    sides = {name: Side(lambda name=name: order.append(name)) for name in "ab"}
    times = take_turns(sides, 3, warm_ups=2)
    assert order == ["a", "b"] * 5
    assert [len(times.taken[name]) for name in "ab"] == [3, 3]


def test_a_quick_side_counts_with_the_median_of_its_repeats() -> None:
    told = iter([Taken(9, 9), Taken(1, 2), Taken(5, 3), Taken(2, 4)])
    times = take_turns({"a": Side(lambda: next(told), repeat=3)}, 1)
    assert times.taken["a"] == [Taken(2, 3)]


def test_what_comes_before_a_run_is_not_timed() -> None:
    events: list[str] = []

    class Recording(Clock):
        def time(self, run: Callable[[], Any]) -> tuple[Taken, Any]:
            events.append("start")
            run()
            events.append("stop")
            return Taken(1, 1), None

    side = Side(lambda: events.append("run"), before=lambda: events.append("before"), repeat=2)
    take_turns({"a": side}, 1, warm_ups=0, clock=Recording())
    assert events == ["before", "start", "run", "stop"] * 2


@pytest.mark.parametrize(("theirs", "turns"), [((2.0, 2.0, 2.0), 3), ((2.0, 2.2, 2.5), None)])
def test_more_turns_are_taken_while_the_ratios_are_far_apart(theirs: tuple[float, ...], turns: int | None) -> None:
    told = itertools.cycle(theirs)
    sides = {"ours": Side(lambda: Taken(1.0, 1.0)), "theirs": Side(lambda: Taken(next(told), 1.0))}
    times = take_turns(sides, 3, warm_ups=0, patience=60)
    if turns is None:  # quartiles of 0.4 and 0.5 around 0.4545, a spread of 0.22: 0.93 * 0.22 / sqrt(n) <= 0.02
        assert 95 <= len(times.taken["ours"]) <= 115
    else:
        assert len(times.taken["ours"]) == turns


def test_patience_ends_turns_that_never_agree() -> None:
    told = itertools.cycle([1.0, 2.0, 3.0])
    sides = {"ours": Side(lambda: (time.sleep(0.02), Taken(1.0, 1.0))[1]), "theirs": Side(lambda: Taken(next(told), 1))}
    assert 3 <= len(take_turns(sides, 3, warm_ups=0, patience=0.1).taken["ours"]) <= 6


def test_ratios_are_taken_within_turns() -> None:
    ours, theirs = iter([1.0, 2.0, 30.0]), iter([2.0, 4.0, 60.0])
    sides = {
        "ours": Side(lambda: Taken(next(ours), 1.0)),
        "theirs": Side(lambda: Taken(next(theirs), 4.0)),
        "copy": Side(lambda: Taken(0.0, 1.0)),
    }
    times = take_turns(sides, 3, warm_ups=0)
    assert times.ratio(["ours"], ["theirs", "copy"]) == figure([0.5, 0.5, 0.5])
    assert times.ratio(["theirs"], ["ours"]).spread == 0
    assert times.ratio(["ours"], ["theirs", "copy"], "cpu").median == 0.2
    assert times.of("ours").median == 2.0


def test_the_spread_is_the_distance_of_the_quartiles_as_a_share_of_the_median() -> None:
    assert (figure([4.0]).median, figure([4.0]).spread) == (4.0, 0.0)
    found = figure([8.0, 9.0, 10.0, 11.0, 100.0])
    assert (found.median, found.spread) == (10.0, pytest.approx(0.2))


def test_cpu_time_of_ended_children_and_of_other_trees_counts() -> None:
    work = "sum(i * i for i in range(1_500_000))"
    taken, _ = Clock().time(lambda: subprocess.run([sys.executable, "-c", work], check=True))
    assert taken.cpu > 0.02
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {work!r}]); print(1, flush=True); input()"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as other:
        assert other.stdout is not None
        before = cpu_of_tree(os.getpid())
        taken, _ = Clock([other.pid]).time(other.stdout.readline)
        assert taken.cpu > 0.02
        assert cpu_of_tree(other.pid) >= taken.cpu - 0.05
        assert cpu_of_tree(os.getpid()) >= before
        other.communicate(b"\n")


def test_memory_is_that_of_the_process_and_its_descendants() -> None:
    hold = "x = bytearray(80_000_000); x[::4096] = b'1' * len(x[::4096]); print(1, flush=True); input()"
    nested = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {hold!r}])"
    with subprocess.Popen([sys.executable, "-c", nested], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        process.stdout.readline()
        peaks: dict[int, Peak] = {}
        look(process.pid, peaks)
        process.communicate(b"\n")
    driver, worker = sorted(peaks.values(), key=lambda peak: peak.role)
    assert (driver.role, worker.role) == ("driver", "worker")
    assert worker.num_bytes > 80_000_000 > driver.num_bytes
    assert own_memory()[0] <= own_memory()[1]


def test_memory_from_before_a_process_got_its_own_program_is_not_its_own() -> None:
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as worker:
        peaks = {worker.pid: Peak("java", 1 << 50)}
        look(os.getpid(), peaks)
        worker.communicate(b"\n")
    assert peaks[worker.pid].role == "worker"
    assert peaks[worker.pid].num_bytes < 1 << 40


def test_the_memory_of_a_command_that_fails_is_no_figure() -> None:
    with pytest.raises(subprocess.CalledProcessError):
        peaks_of([sys.executable, "-c", "raise SystemExit(3)"])


# --- fits ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("exponent", [0.0, 0.5, 1.0, 2.0])
def test_the_exponent_of_a_power_law_is_found(exponent: float) -> None:
    law = power_law([(x, 3 * x**exponent) for x in (10.0, 100.0, 1000.0)])
    assert (law.exponent, law.factor, law.fit) == (pytest.approx(exponent), pytest.approx(3), pytest.approx(1))
    assert law.at(50) == pytest.approx(3 * 50**exponent)


def test_a_curve_that_bends_has_another_exponent_in_its_last_decade() -> None:
    assert (CURVE.law.exponent, CURVE.last_law.exponent) == (pytest.approx(1.5), pytest.approx(2))
    x, y = np.log(np.array(CURVE.points)).T
    assert CURVE.law.fit == pytest.approx(np.corrcoef(x, y)[0, 1] ** 2)
    assert CURVE.law.exponent == pytest.approx(np.polyfit(x, y, 1)[0])


@pytest.mark.parametrize("points", [[(1.0, 2.0)], [(1.0, 2.0), (1.0, 3.0)], [(1.0, 0.0), (2.0, 1.0)]])
def test_no_power_law_fits(points: list[tuple[float, float]]) -> None:
    with pytest.raises(ValueError, match="power law"):
        power_law(points)


# --- results ------------------------------------------------------------------------------------------------


def test_verdicts() -> None:
    met = [Row("r", "", 1.4, "x", target=at_most(1.4)), Row("r", "", 6.0, "x", target=at_least(6))]
    missed = [Row("r", "", 1.41, "x", target=at_most(1.4)), Row("r", "", 5.9, "x", target=at_least(6))]
    assert [row.verdict for row in met + missed] == ["met", "met", "missed", "missed"]
    assert [row.verdict for row in example().rows] == ["missed", "", "not measured"]


def test_results_come_back_from_json_as_they_were(tmp_path: Path) -> None:
    path = tmp_path / "results.json"
    path.write_text(to_json([example()]))
    assert read_results(path) == {"plan": example()}
    assert '"exponent": 1.5' in path.read_text()
    assert '"verdict": "missed"' in path.read_text()


def test_figures_as_text() -> None:
    values = (0.0, 7, 12_345, 0.000123, 0.0456, 1.234, 12.34, 12_345.6)
    assert list(map(shown, values)) == ["0", "7", "12,345", "0.00012", "0.046", "1.23", "12.3", "12,346"]


def test_the_page_has_one_table_with_every_row() -> None:
    page = markdown([example(), BenchmarkResult("scan", "", failure="it broke")])
    table = [line for line in page.splitlines() if line.startswith("| ")]
    assert len(table) == 2 + 3 + 1
    assert "| plan | ratio (note) | a \\| b | 1.50 x | 4% | <= 1.4 | missed |" in table
    assert "| plan | lost (no cargo) | Rust | not measured |  |  | not measured |" in table
    assert "it broke" in table[-1]
    assert "![plan](plan.svg)" in page
    assert "![plan](plan-1.svg)" in page


def test_pictures_are_xml_with_a_bar_for_each_side_and_a_dot_for_each_point() -> None:
    bars = ElementTree.fromstring(pictures.bars(example()))
    shape = "{http://www.w3.org/2000/svg}"
    drawn = {r.get("class"): float(r.get("width", "")) for r in bars.iter(f"{shape}rect") if r.get("class") != "cpu"}
    assert drawn["ours"] == pytest.approx(drawn["peer"] / 100, abs=0.1)
    assert {"a & b", "Plans <of> files."} <= set(bars.itertext())
    curve = ElementTree.fromstring(pictures.curve(CURVE))
    dots = [(float(dot.get("cx", "")), float(dot.get("cy", ""))) for dot in curve.iter(f"{shape}circle")]
    assert len(dots) == 3
    steps = [dots[1][0] - dots[0][0], dots[2][0] - dots[1][0]]
    assert steps[0] == pytest.approx(steps[1], abs=0.2)  # decades are equally wide
    assert dots[0][1] > dots[1][1] > dots[2][1]


def test_a_report_keeps_other_benchmarks_and_removes_pictures_that_are_gone(tmp_path: Path) -> None:
    other = replace(example(), name="kernels", curves=[])
    write_report(tmp_path, [example(), other], ["kernels", "plan"])
    assert list(read_results(tmp_path / "results.json")) == ["kernels", "plan"]
    write_report(tmp_path, [replace(example(), comparisons=[], curves=[])], ["kernels", "plan"])
    assert {path.name for path in tmp_path.iterdir()} == {"results.json", "results.md", "kernels.svg"}
    assert read_results(tmp_path / "results.json")["kernels"] == other


# --- comparing ----------------------------------------------------------------------------------------------


def compared(**changed: object) -> list[str]:
    row = Row("what", "peer", 1.0, "x")
    old = {"plan": BenchmarkResult("plan", "", rows=[row]), "gone": example()}
    return differences(old, {"plan": BenchmarkResult("plan", "", rows=[replace(row, **changed)])})  # type: ignore[arg-type]


@pytest.mark.parametrize("figure", [1.0, 1.1, 1 / 1.1])
def test_what_differs_by_a_tenth_is_the_same(figure: float) -> None:
    assert compared(figure=figure) == []


def test_differences() -> None:
    assert compared(figure=1.5) == ["plan: what against peer: 1.00 x became 1.50 x (+50%)"]
    assert compared(figure=0.5) == ["plan: what against peer: 1.00 x became 0.500 x (-50%)"]
    assert compared(figure=-1.0) == ["plan: what against peer: 1.00 x became -1.00 x (-200%)"]
    assert compared(figure=None) == ["plan: what against peer: 1.00 x became not measured (measured by one side alone)"]
    assert compared(what="else") == [
        "plan: what against peer: only in the first",
        "plan: else against peer: only in the second",
    ]


def test_the_command_compares_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    old, new = tmp_path / "old.json", tmp_path / "new.json"
    old.write_text(to_json([example()]))
    slower = replace(example(), rows=[replace(example().rows[0], figure=2.0), *example().rows[1:]])
    new.write_text(to_json([slower]))
    assert running.main(["--compare", str(old), str(old)]) == 0
    assert "no figure differs" in capsys.readouterr().out
    assert running.main(["--compare", str(old), str(new)]) == 1
    assert "1.50 x became 2.00 x" in capsys.readouterr().out


# --- running ------------------------------------------------------------------------------------------------


def test_a_benchmark_keeps_rows_comparisons_and_curves(capsys: pytest.CaptureFixture[str]) -> None:
    bench = Bench(BenchmarkResult("plan", ""))
    sides = {"sidecar": lambda: Taken(1, 2), "peer": lambda: Taken(3, 2), "copy": lambda: Taken(1, 2)}
    times = bench.compare("a plan", sides, 3)
    bench.faster("a plan", times, "sidecar", "peer", at_least(2))
    bench.ratio("a plan", times, "sidecar", ["peer", "copy"], at_most(0.4), clock="cpu")
    bench.absent("a plan", RuntimeError("no cargo\nmore"), against="Rust")
    bench.curve("plan", "files", "s", CURVE.points)
    rows = bench.result.rows
    assert [(row.what, row.against, row.figure) for row in rows[:3]] == [
        ("a plan", "peer", 3.0),
        ("a plan (CPU)", "peer + copy", 0.5),
        ("a plan", "Rust", None),
    ]
    assert [row.verdict for row in rows[:3]] == ["met", "missed", "not measured"]
    assert rows[2].note == "no cargo"
    assert rows[3].figure == pytest.approx(1.5)
    assert [side.name for side in bench.result.comparisons[0].sides] == ["sidecar", "peer", "copy"]
    assert "3.00 x faster; target >= 2: met" in capsys.readouterr().out


def test_small_data_has_no_targets() -> None:
    bench = Bench(BenchmarkResult("plan", "", {"scale": "quick"}), "quick")
    bench.row("a plan", 9, "ms", at_most(8))
    assert [(row.target, row.verdict) for row in bench.result.rows] == [(None, "")]
    assert "not the usual ones (quick)" in markdown([bench.result])
    assert "not the usual" not in markdown([example()])
    assert [bench.size(3, quick=2), Bench(bench.result, "large").size(3, quick=2, large=4)] == [2, 4]
    assert Bench(bench.result, "large").size(3, quick=2) == 3


def test_a_benchmark_that_fails_leaves_what_it_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def measure(bench: Bench) -> None:
        bench.row("before", 1, "files")
        raise RuntimeError("it broke")

    monkeypatch.setitem(sys.modules, "scripts.benchmarks.plan", SimpleNamespace(__doc__="Plans.\n", measure=measure))
    assert running.run_one("plan", "quick", tmp_path / "result.json") == 1
    result = read_results(tmp_path / "result.json")["plan"]
    assert (result.title, result.failure, [row.what for row in result.rows]) == (
        "Plans.",
        "RuntimeError: it broke",
        ["before"],
    )
    assert result.machine["cores"] >= 1
    assert result.machine["packages"]["numpy"]


def test_every_name_is_a_module_with_a_measurement() -> None:
    names = {path.stem for path in Path(running.__file__).parents[1].glob("*.py")} - {"__init__", "__main__"}
    assert names == {*running.SUITE, *running.OTHERS}
    for name in names:
        assert (
            "\ndef measure(bench: Bench) -> None:\n"
            in Path(running.__file__).parents[1].joinpath(f"{name}.py").read_text()
        )


# --- data ---------------------------------------------------------------------------------------------------


def test_tables_are_made_once_and_found_as_they_were_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(data, "WORK", tmp_path)
    times = []

    def make(folder: Path, catalog: object) -> None:
        times.append(folder)
        catalog.create_table("db.t", pa.schema([("k", pa.int64())])).append(pa.table({"k": [1, 2]}))  # type: ignore[attr-defined]

    first = data.table("small", make)
    first.load_table("db.t").append(pa.table({"k": [3]}))
    assert first.load_table("db.t").scan().to_arrow().num_rows == 3
    files = len(list(data.folder_of(first).rglob("*.parquet")))
    again = data.table("small", make)
    assert again.load_table("db.t").scan().to_arrow().num_rows == 2
    assert (files, len(list(data.folder_of(again).rglob("*.parquet")))) == (2, 1)
    assert times == [data.folder_of(again)]


def test_data_that_was_left_half_made_or_was_moved_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data, "WORK", tmp_path / "old")

    def half(folder: Path) -> None:
        (folder / "half").touch()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        data.made("name", half)
    folder = data.made("name", lambda folder: (folder / "whole").touch())
    assert [path.name for path in folder.iterdir() if path.name != data.DONE] == ["whole"]
    (tmp_path / "old").rename(tmp_path / "new")
    monkeypatch.setattr(data, "WORK", tmp_path / "new")
    folder = data.made("name", lambda folder: (folder / "again").touch())
    assert [path.name for path in folder.iterdir() if path.name != data.DONE] == ["again"]


# --- guides -------------------------------------------------------------------------------------------------


def test_the_pages_have_the_committed_figures() -> None:
    """``scripts/bench --guides`` writes them."""
    assert list(guides.rewritten(guides.committed())) == []


def test_a_figure_that_was_not_measured_is_found() -> None:
    results = read_results(guides.RESULTS / "results.json")
    changed = [replace(row, figure=(row.figure or 0.0) * 3) for row in results["plan"].rows]
    measured = guides.Measured(results | {"plan": replace(results["plan"], rows=changed)})
    text = (data.ROOT / "README.md").read_text("utf-8")
    [passage] = [one for one in guides.PASSAGES if one.page == "README.md"]
    assert passage.replaced(text, measured) != text == passage.replaced(text, guides.Measured(results))
