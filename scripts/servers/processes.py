"""Processes that outlive the command that starts them, and that a later command ends by their id."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Callable
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import NamedTuple

START_SECONDS = 60
STOP_SECONDS = 3
"""What a server has to end in peace; then it is killed. Nothing that it stores is kept."""


class ServerError(Exception):
    """A server that did not start, or cannot be installed; the message says what to do."""


class Process(NamedTuple):
    """A process, by its id and by when it started: ids are used again."""

    pid: int
    started: str

    @staticmethod
    def of(pid: int) -> Process:
        """The process that has this id now."""
        return Process(pid, _started(pid))

    @property
    def is_alive(self) -> bool:
        return bool(self.started) and _started(self.pid) == self.started

    def stop(self) -> None:
        """End the process, and wait until it is gone."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + STOP_SECONDS
            if self.is_alive:
                os.kill(self.pid, number)
            while self.is_alive and time.monotonic() < until:
                _reap(self.pid)
                time.sleep(0.05)


NO_PROCESS = Process(0, "")
"""Stands for a process that is not there yet."""

Begun = Callable[..., None]
"""Takes the process of a server as soon as there is one, and the folders that go with it."""


def _started(pid: int) -> str:
    """When the process started, as the system writes it; empty if there is none, or it has ended."""
    stat = Path(f"/proc/{pid}/stat")
    if stat.parent.parent.joinpath("self").exists():
        try:
            state, *rest = stat.read_text().rpartition(")")[2].split()
        except OSError:
            return ""
        return "" if state == "Z" else rest[18]
    found = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = found.stdout.strip().partition(" ")
    return "" if state.startswith("Z") else started.strip()


def _reap(pid: int) -> None:
    """Take note of the end of a process, if it is a child of this one."""
    with suppress(ChildProcessError):
        os.waitpid(pid, os.WNOHANG)


def start(command: list[str], log: Path, *, user: str | None = None, folder: Path | None = None) -> Process:
    """Start a server in a session of its own, which no terminal ends; what it prints goes to the file ``log``."""
    with log.open("ab") as out:
        child = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=out,
            start_new_session=True,
            user=user,
            extra_groups=[] if user else None,
            cwd=folder,
        )
    return Process.of(child.pid)


def free_ports(count: int) -> list[int]:
    """Ports of this machine that nothing listens at."""
    with ExitStack() as stack:
        sockets = [stack.enter_context(socket.create_server(("127.0.0.1", 0))) for _ in range(count)]
        return [one.getsockname()[1] for one in sockets]


def wait_until(answers: Callable[[], object], process: Process, name: str, log: Path) -> None:
    """Return when ``answers`` raises no OSError any more. After any other error, the process is ended.

    Raises:
        ServerError: if the process ends, or does not answer in time.
    """
    until = time.monotonic() + START_SECONDS
    try:
        while True:
            try:
                answers()
            except OSError as error:
                if not process.is_alive:
                    raise ServerError(f"{name} ended while it was starting: read {log}") from error
                if time.monotonic() > until:
                    raise ServerError(f"{name} does not answer after {START_SECONDS} s: read {log}") from error
                time.sleep(0.1)
            else:
                return
    except BaseException:
        process.stop()
        raise
