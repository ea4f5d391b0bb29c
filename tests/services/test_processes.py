"""Processes of servers are known by their id and their start, and none is left behind."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from scripts.servers import processes, services
from scripts.servers.processes import Begun, Process, ServerError, start, wait_until
from scripts.servers.services import Service

SLEEPER = [sys.executable, "-S", "-c", "import time; time.sleep(60)"]


def test_a_process_is_ended_by_its_id_and_start(tmp_path: Path) -> None:
    process = start(SLEEPER, tmp_path / "log")
    assert process.is_alive
    Process(process.pid, "another start").stop()
    assert process.is_alive
    process.stop()
    assert not process.is_alive


def refuse() -> None:
    raise ConnectionRefusedError


def test_a_server_that_does_not_answer_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processes, "START_SECONDS", 0)
    process = start(SLEEPER, tmp_path / "log")
    time.sleep(0.01)
    with pytest.raises(ServerError, match="does not answer"):
        wait_until(refuse, process, "it", tmp_path / "log")
    assert not process.is_alive


def test_a_server_that_ends_is_named(tmp_path: Path) -> None:
    process = start([sys.executable, "-S", "-c", ""], tmp_path / "log")
    with pytest.raises(ServerError, match="it ended"):
        wait_until(refuse, process, "it", tmp_path / "log")


def test_a_failed_start_leaves_no_process(tmp_path: Path) -> None:
    process = start(SLEEPER, tmp_path / "log")
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, process, "it", tmp_path / "log")
    assert not process.is_alive


def test_what_has_ended_does_not_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "FOLDER", tmp_path)
    process = start(SLEEPER, tmp_path / "log")
    service = services.Service(process, "a server", [], {"c": {"uri": "u"}})
    services._remember({"rest": service})
    assert services.running() == {"rest": service}
    assert (tmp_path / ".pyiceberg.yaml").stat().st_mode & 0o77 == 0
    process.stop()
    assert services.running() == {}


def sleeping(folder: Path, started: dict[str, Service], begun: Begun) -> Service:
    process = start(SLEEPER, folder.with_suffix(".log"))
    begun(process, folder)
    return Service(process, "a server", [str(folder)], {folder.name: {}})


def killed_while_starting(folder: Path, started: dict[str, Service], begun: Begun) -> Service:
    sleeping(folder, started, begun)
    folder.mkdir()
    raise KeyboardInterrupt


def test_servers_of_a_start_that_was_killed_do_not_run_and_are_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services, "FOLDER", tmp_path)
    monkeypatch.setattr(services, "STARTERS", {"one": sleeping, "two": killed_while_starting})
    with pytest.raises(KeyboardInterrupt):
        services.up()
    both = [service.process for service in services._remembered().values()]
    assert all(process.is_alive for process in both)
    assert list(services.running()) == ["one"]
    assert list(services.down()) == ["one"]
    assert len(both) == 2
    assert not any(process.is_alive for process in both)
    assert not (tmp_path / "two").exists()


def test_a_state_file_of_another_version_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(services, "FOLDER", tmp_path)
    for text in ("", "[]", '{"rest": {"pid": 1}}', '{"rest": [[1, "2", 3], "", [], {}]}'):
        (tmp_path / "state.json").write_text(text)
        with pytest.raises(ServerError, match=r"state\.json is not what this version writes"):
            services.running()
