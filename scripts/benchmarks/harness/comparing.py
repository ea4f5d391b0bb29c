"""What differs between two files of results."""

from __future__ import annotations

from collections.abc import Mapping

from scripts.benchmarks.harness.results import BenchmarkResult, Row
from scripts.benchmarks.harness.wording import cell

TOLERANCE = 0.10
Key = tuple[str, str, str]


def differences(
    old: Mapping[str, BenchmarkResult], new: Mapping[str, BenchmarkResult], tolerance: float = TOLERANCE
) -> list[str]:
    """Return a line for each figure that differs by more than ``tolerance``, or that one side does not have.

    Benchmarks that only one side ran are left out.
    """
    shared = set(old) & set(new)
    before, after = ({key: row for key, row in _rows(side) if key[0] in shared} for side in (old, new))
    lines = []
    for key in [*before, *(key for key in after if key not in before)]:
        name = f"{key[0]}: {key[1]}" + (f" against {key[2]}" if key[2] else "")
        if key not in before or key not in after:
            lines.append(f"{name}: only in the {'first' if key in before else 'second'}")
        elif change := _change(before[key].figure, after[key].figure, tolerance):
            lines.append(f"{name}: {cell(before[key])} became {cell(after[key])} ({change})")
    return lines


def _rows(results: Mapping[str, BenchmarkResult]) -> list[tuple[Key, Row]]:
    return [((name, row.what, row.against), row) for name, result in results.items() for row in result.rows]


def _change(old: float | None, new: float | None, tolerance: float) -> str:
    if old is None or new is None:
        return "" if old is new else "measured by one side alone"
    near = max(abs(old), abs(new)) <= (1 + tolerance) * min(abs(old), abs(new))
    if near and (old > 0) == (new > 0):
        return ""
    return "it was 0" if old == 0 else f"{(new - old) / abs(old):+.0%}"
