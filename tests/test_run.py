"""Progress: who is told what, from which thread."""

from __future__ import annotations

import re
import threading
from importlib.metadata import PackageNotFoundError
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

import sidecar
from sidecar.engines.work import LocalWork
from sidecar.puffin.writer import _created_by
from sidecar.run import COMPILING, ReportingThreads, announce_compiling, package_version, report_progress
from sidecar.serving.proxy.etags import EntityTags
from sidecar.serving.settings import ServeSettings

PACKAGE = Path(__file__).resolve().parents[1] / "sidecar"


@pytest.fixture
def told() -> list[tuple[Any, ...]]:
    return []


def test_only_the_block_is_told(told: list[tuple[Any, ...]]) -> None:
    with sidecar.progress(lambda *step: told.append(step)):
        report_progress("listing")
        with sidecar.progress(lambda *step: None):
            report_progress("unheard")
        report_progress("files", 1, 2)
    report_progress("late")
    assert told == [("listing", None, None), ("files", 1, 2)]


def test_threads_of_the_package_report(told: list[tuple[Any, ...]]) -> None:
    with (
        sidecar.progress(lambda *step: told.append((*step, threading.current_thread().name))),
        ReportingThreads(1, "worker") as pool,
    ):
        pool.submit(report_progress, "files", 1, 2).result()
        assert list(pool.map(report_progress, ["more"])) == [None]
    assert [(what, thread.startswith("worker")) for what, *_, thread in told] == [("files", True), ("more", True)]


@pytest.mark.parametrize("threads", [1, 3])
def test_steps_of_one_of_many_files_are_not_reported(threads: int, told: list[tuple[Any, ...]]) -> None:
    def work(item: int) -> int:
        report_progress("row groups", item, 9)
        return item

    with sidecar.progress(lambda *step: told.append(step)):
        assert list(LocalWork(threads).run(work, [5, 6, 7])) == [5, 6, 7]
    assert told == [("files", number, 3) for number in (1, 2, 3)]


def test_what_a_callback_runs_is_not_reported(told: list[tuple[Any, ...]]) -> None:
    def callback(*step: object) -> None:
        told.append(step)
        report_progress("again")

    with sidecar.progress(callback):
        report_progress("files", 1, 1)
    assert told == [("files", 1, 1)]


def test_compiling_is_told_once_also_from_a_thread_that_works_on_one_file(told: list[tuple[Any, ...]]) -> None:
    def work(_: int) -> None:
        announce_compiling()

    with sidecar.progress(lambda *step: told.append(step)):
        list(LocalWork(2).run(work, [1, 2]))
        announce_compiling()
    assert [step for step in told if step[0] == COMPILING] == [(COMPILING, 0, 1)]


def test_an_error_of_a_callback_ends_the_work() -> None:
    def callback(*step: object) -> None:
        raise RuntimeError("stop")

    with sidecar.progress(callback), pytest.raises(RuntimeError, match="stop"):
        list(LocalWork(1).run(str, [1, 2]))
    report_progress("nobody is told")


def test_all_pools_of_threads_report() -> None:
    own = {path.name for path in PACKAGE.rglob("*.py") if re.search(r"\bThreadPoolExecutor\b", path.read_text())}
    assert own == {"run.py"}


def test_a_package_without_a_distribution_has_no_version(monkeypatch: pytest.MonkeyPatch) -> None:
    """As from an archive: files name their writer, and the server makes its tags, all the same."""
    monkeypatch.setattr("importlib.metadata.version", Mock(side_effect=PackageNotFoundError("lakehouse-sidecar")))
    monkeypatch.setattr("sidecar.puffin.writer.package_version", package_version.__wrapped__)
    monkeypatch.setattr("sidecar.serving.proxy.etags.package_version", package_version.__wrapped__)
    assert _created_by() == "sidecar, run from its source"
    tags = EntityTags(ServeSettings(tables=("db.*",)))
    assert tags.upstreams(tags.ours(b'"x"')) == [b'"x"']
