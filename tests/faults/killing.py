"""Kills a process (SIGKILL) at a step of a run. Every step has a name, and every name is of one kind.

The steps are those that the code announces, and the requests by which pyiceberg changes the store and the catalog.
"""

from __future__ import annotations

import os
import re
import shutil
import signal
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path

from sidecar.failpoints import observe
from tests.faults.harness import requests

Run = Callable[[], object]

REQUESTS = {
    "close": "store: close",
    "closed": "store: closed",
    "delete": "store: delete",
    "deleted": "store: deleted",
    "commit": "catalog: commit",
    "committed": "catalog: committed",
}
"""Names of the requests of :class:`tests.object_store.FolderIO` that change something, before and after the change."""
KINDS = {
    "before write": (
        "target: create", "register: write", "build: write new segment", "segments: merge", "replace: write",
    ),
    "half written": ("target: half written", "build: segments written"),
    "written": (
        "target: written", "target: publish", "target: published", "register: written", "store: close", "store: closed",
    ),
    "before commit": ("register: commit", "change entries: commit", "declare: commit", "replace: commit"),
    "commit sent": ("catalog: commit", "catalog: metadata", "catalog: metadata written"),
    "answer lost": ("catalog: committed",),
    "before delete": ("gc: delete", "store: delete"),
    "other": (
        "build: index", "build: register", "register: check", "change entries: check", "refresh: build",
        "refresh: register again", "refresh: unregister", "embed: files written", "embed: committed",
        "expire: decided", "expire: done", "gc: list", "gc: load", "gc: list again", "gc: load again", "gc: done",
        "store: deleted",
    ),
}  # fmt: skip
"""The kinds of steps, and the names of those of each kind."""
KIND_OF = {step: kind for kind, steps in KINDS.items() for step in steps}
RANDOM = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}|[0-9]{12,19}")
"""UUIDs, names of temporary files, ids of snapshots, times."""
LONGEST = 60.0
"""Seconds after which a child that was not killed counts as hanging."""


@contextmanager
def watched(note: Callable[[str], object]) -> Iterator[None]:
    """Have ``note`` called with the name of each step of a run."""

    def on_request(request: str, location: str) -> None:
        name = REQUESTS.get(request)
        if name is not None and location.endswith(".metadata.json"):
            name = {"close": "catalog: metadata", "closed": "catalog: metadata written"}[request]
        if name is not None:
            note(name)

    with requests(on_request), observe(note):
        yield


def steps_of(run: Run) -> list[str]:
    """The steps of a run that nobody kills, in order."""
    seen: list[str] = []
    with watched(seen.append):
        run()
    return seen


def killed_at(run: Run, number: int) -> str | None:
    """Kill a child process that does ``run`` before it gets past the step of this number, counted from 0.

    The name of the step; ``None`` if the child ended before.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            left = [number]

            def count(step: str) -> None:
                left[0] -= 1
                if left[0] == -1:
                    os.write(writing, step.encode())
                    os.kill(os.getpid(), signal.SIGKILL)

            with watched(count):
                run()
        finally:
            os._exit(0)
    os.close(writing)
    try:
        was_killed = wait_for(child, f"step {number}")
        return os.read(reading, 1000).decode() if was_killed else None
    finally:
        os.close(reading)


def killed_when(run: Run, is_time: Callable[[], bool]) -> bool:
    """Kill a child process that does ``run`` as soon as it ``is_time``. ``False`` if the child ended before."""
    child = os.fork()
    if not child:
        try:
            run()
        finally:
            os._exit(0)
    return wait_for(child, "it was time to kill it", is_time)


def wait_for(child: int, where: str, is_time: Callable[[], bool] = lambda: False) -> bool:
    """Whether a signal ended the child: its own, or ours when it ``is_time``.

    Raises :class:`AssertionError` if it hangs.
    """
    deadline = time.monotonic() + LONGEST
    while True:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.WIFSIGNALED(status)
        is_late = time.monotonic() > deadline
        if is_late or is_time():
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
            if is_late:
                raise AssertionError(f"the child hangs before {where}")
            return True
        time.sleep(0.002)


def put(prepared: Path, place: Path) -> None:
    """Make ``place`` the same as ``prepared``. Files are links, but for databases: nothing else changes in place."""

    def link(source: str, target: str) -> None:
        if source.endswith(".db"):
            shutil.copy2(source, target)
        else:
            os.link(source, target)

    shutil.rmtree(place, ignore_errors=True)
    shutil.copytree(prepared, place, copy_function=link)


def state_of(place: Path) -> frozenset[object]:
    """What is in a folder: names and contents, but for random numbers in them.

    Files whose numbers cannot be taken out count by their length, their first and their last bytes.
    """
    found = set[object]()
    for path in place.rglob("*"):
        name = RANDOM.sub(b"", str(path.relative_to(place)).encode())
        data = path.read_bytes() if path.is_file() else b""
        is_text = path.suffix in (".db", ".json")
        found.add((name, RANDOM.sub(b"", data) if is_text else (len(data), data[:8], data[-8:])))
    return frozenset(found)


def row_of(name: str, steps: Iterable[str]) -> str:
    """The line of the grid for an operation: how many of its steps are of each kind. Steps of Spark have none."""
    count = Counter(KIND_OF.get(step, "other") for step in steps)
    cells = [f"{count[kind] or '':>{len(kind)}}" for kind in KINDS]
    return f"|{name:<{NAMES}}|{'|'.join(cells)}|{count.total():>5}|"


NAMES = 19
"""Columns for the names of operations."""
HEADER = f"""\
|{"operation":<{NAMES}}|{"|".join(KINDS)}|kills|
|{"-" * NAMES}|{"|".join("-" * (len(kind) - 1) + ":" for kind in KINDS)}|----:|"""
"""The head of the grid."""
