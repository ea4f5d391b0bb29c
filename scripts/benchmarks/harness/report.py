"""Writes results: ``results.json``, ``results.md`` and the pictures, in one folder."""

from __future__ import annotations

from pathlib import Path

from scripts.benchmarks.harness import pictures
from scripts.benchmarks.harness.results import BenchmarkResult, read_results, to_json
from scripts.benchmarks.harness.wording import markdown, picture_names

RESULTS, PAGE = "results.json", "results.md"


def write_report(folder: Path, new: list[BenchmarkResult], order: list[str]) -> None:
    """Write ``new`` beside the results of other benchmarks that the folder has, in the order of the names ``order``."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / RESULTS
    results = (read_results(path) if path.exists() else {}) | {result.name: result for result in new}
    known = [results[name] for name in order if name in results]
    for result in new:
        for old in [*folder.glob(f"{result.name}.svg"), *folder.glob(f"{result.name}-[0-9]*.svg")]:
            old.unlink()
        for name, at in picture_names(result):
            picture = pictures.bars(result) if at is None else pictures.curve(result.curves[at])
            (folder / name).write_text(picture, "utf-8")
    (folder / PAGE).write_text(markdown(known), "utf-8")
    path.write_text(to_json(known), "utf-8")
