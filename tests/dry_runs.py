"""Dry runs held against the runs that follow: the same report and sizes, and nothing changed on the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

from sidecar.errors import SidecarError

Tree = dict[str, tuple[int, bytes | None]]


def tree(folder: Path) -> Tree:
    """Every file and folder below ``folder``: its modification time, and the bytes of a file."""
    return {
        str(path.relative_to(folder)): (
            path.stat().st_mtime_ns,
            path.read_bytes() if path.is_file() else None,
        )
        for path in [folder, *folder.rglob("*")]
    }


@contextmanager
def unchanged(folder: Path) -> Iterator[None]:
    """Assert that nothing below ``folder`` is changed, also after an error."""
    before = tree(folder)
    try:
        yield
    finally:
        assert tree(folder) == before


def without_flag(data: Any) -> Any:
    """Plain data of a report without times and the flag of a dry run."""
    if isinstance(data, dict):
        return {name: without_flag(v) for name, v in data.items() if name not in ("seconds", "dry_run")}
    return [without_flag(item) for item in data] if isinstance(data, list) else data


def plain(report: Any) -> Any:
    return [one.to_dict() for one in report] if isinstance(report, list) else report.to_dict()


def assert_promised(folder: Path, run: Callable[[bool], Any]) -> Any:
    """Call ``run`` dry and then for real; both reports are the same. Return the second one."""
    with unchanged(folder):
        promised = run(True)
    done = run(False)
    for report, flag in ((promised, True), (done, False)):
        assert {one.dry_run for one in (report if isinstance(report, list) else [report])} == {flag}
    assert without_flag(plain(promised)) == without_flag(plain(done))
    return done


def assert_same_error(folder: Path, run: Callable[[bool], Any]) -> SidecarError:
    """Call ``run`` dry and then for real; both raise the same. Return the second error."""
    errors: list[SidecarError] = []
    for dry in (True, False):
        with unchanged(folder) if dry else nullcontext():
            try:
                run(dry)
            except SidecarError as error:
                errors.append(error)
    first, second = errors
    assert first.to_dict() == second.to_dict()
    return second
