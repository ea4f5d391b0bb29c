"""Kills a process when it enters a system call that changes a file: also where no step has a name.

``strace`` is attached to a child, lists the calls of a run, and delivers SIGKILL at the entry of a chosen one.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from random import Random
from typing import NamedTuple

from tests.faults.kill_grid import GRID, Prepared, prepared
from tests.faults.killing import NAMES, Run, wait_for

CHANGES = (
    "openat", "mkdir", "write", "pwrite64", "writev", "copy_file_range", "sendfile", "ftruncate", "fsync", "fdatasync",
    "link", "linkat", "rename", "renameat", "renameat2", "unlink", "unlinkat", "rmdir", "close",
)  # fmt: skip
"""System calls that change files, or say that one is complete."""
_LINE = re.compile(r"(?P<thread>\d+) +(?P<call>\w+)\((?P<rest>.*)")
_WRITING = ("O_CREAT", "O_WRONLY", "O_RDWR", "O_TRUNC")


class SystemCall(NamedTuple):
    """A call, and how many of its kind its thread has made, this one included."""

    name: str
    number: int


def has_strace() -> bool:
    """Whether processes can be traced here."""
    return shutil.which("strace") is not None


def traced(run: Run, options: Sequence[str]) -> bool:
    """Do ``run`` in a child that strace watches. Whether a signal killed it."""
    reading, writing = os.pipe()
    child = os.fork()
    if not child:
        try:
            os.close(writing)
            os.read(reading, 1)  # until strace watches
            run()
        finally:
            os._exit(0)
    os.close(reading)
    tracer = subprocess.Popen(["strace", "-f", "-qq", "-p", str(child), *options], stderr=subprocess.DEVNULL)
    try:
        while "TracerPid:\t0" in Path(f"/proc/{child}/status").read_text():
            if tracer.poll() is not None:
                raise AssertionError(f"strace cannot watch a process: exit status {tracer.returncode}")
            time.sleep(0.001)
        os.write(writing, b"1")
        return wait_for(child, "the end of a traced run")
    finally:
        os.close(writing)
        tracer.wait()


def changes_of(run: Run, place: Path, log: Path) -> list[SystemCall]:
    """The system calls of a run that change files in ``place``, in order, those of several threads once."""
    traced(run, ["-y", "-s", "0", "-e", f"trace={','.join(CHANGES)}", "-o", str(log)])
    count, found = Counter[tuple[str, str]](), dict[SystemCall, None]()
    for line in log.read_text(errors="replace").splitlines():
        matched = _LINE.match(line)
        if matched is None:
            continue  # the second half of an interrupted line, or an exit
        thread, call, rest = matched.groups()
        count[thread, call] += 1
        is_change = str(place) in rest or call in ("rename", "unlink", "link", "mkdir", "rmdir")
        if is_change and (call != "openat" or any(flag in rest for flag in _WRITING)):
            found[SystemCall(call, count[thread, call])] = None
    return list(found)


def is_killed_at(run: Run, call: SystemCall) -> bool:
    """Kill a child at the entry of a system call; ``False`` if it ended before."""
    inject = f"inject={call.name}:signal=KILL:when={call.number}"
    return traced(run, ["-e", f"trace={call.name}", "-e", inject, "-o", os.devnull])


def kill_at_system_calls(
    names: Sequence[str], folder: Path, seconds: float, random: Random, harm: list[str], show: Callable[[str], object]
) -> None:
    """Kill operations at system calls in random order, until each was the last one or the time is over.

    The time begins when all system calls are listed. What is wrong after a kill is added to ``harm``.
    """
    points: list[tuple[str, Prepared, SystemCall]] = []
    for name in names:
        for one in prepared(GRID[name], folder / name.replace(" ", "-")):
            place = one.folder.parent / "place"
            one.put(place)
            calls = changes_of(partial(one.operation.run, place), place, folder / "strace.log")
            assert calls, f"{name} changes nothing"
            points += [(name, one, call) for call in calls]
    random.shuffle(points)
    deadline = time.monotonic() + seconds
    kills, tried = Counter[str](), 0
    for name, one, call in points:
        if time.monotonic() > deadline:
            break
        place = one.folder.parent / "place"
        one.put(place)
        tried += 1
        kills[name] += is_killed_at(partial(one.operation.run, place), call)
        try:
            one.operation.check(place)
        except Exception as error:
            harm.append(f"{name}, killed at {call.name} number {call.number}: {error!r}")
    for name in names:
        show(f"{name:<{NAMES}} {kills[name]:>6,} kills at system calls")
    show(f"{tried:,} of {len(points):,} system calls that change files, {kills.total():,} kills; harm: {len(harm)}")
