"""Processes by the kernel's own count: the CPU time and the largest resident set of a process and its descendants."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Peak:
    """The largest resident set of a process."""

    role: str
    """``driver`` for the process that was started, ``java``, or ``worker``."""
    num_bytes: int


def cpu_of_tree(pid: int) -> float:
    """Return the seconds of CPU that a living process and its descendants have taken, ended ones too."""
    parents, ticks = {}, {}
    for number, fields in _stats():
        parents[number] = int(fields[1])
        ticks[number] = sum(map(int, fields[11:15]))  # utime, stime, and those of children that were waited for
    return sum(taken for number, taken in ticks.items() if _descends(number, pid, parents)) / TICKS


def _stats() -> Iterator[tuple[int, list[str]]]:
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            text = path.read_text()
        except OSError:  # it ended
            continue
        yield int(path.parent.name), text.rpartition(")")[2].split()


def _descends(number: int, ancestor: int, parents: dict[int, int]) -> bool:
    while number not in (0, ancestor):
        number = parents.get(number, 0)
    return number == ancestor


def own_memory() -> tuple[int, int]:
    """Return the bytes of this process's resident set (VmRSS), and the most it has been (VmHWM)."""
    status = _status(Path("/proc/self/status"))
    return _bytes_of(status, "VmRSS"), _bytes_of(status, "VmHWM")


def peaks_of(command: list[str]) -> list[Peak]:
    """Run a command; return the largest resident set of it and of each of its descendants, the largest first.

    They are read ten times a second (``VmHWM``, which never falls). Raises ``CalledProcessError`` if the command fails.
    """
    process = subprocess.Popen(command)
    peaks: dict[int, Peak] = {}
    while process.poll() is None:
        look(process.pid, peaks)
        time.sleep(0.1)
    if process.returncode:
        raise subprocess.CalledProcessError(process.returncode, command)
    return sorted(peaks.values(), key=lambda peak: -peak.num_bytes)


def look(driver: int, peaks: dict[int, Peak]) -> None:
    """Bring the peaks of a process and its descendants up to date, by their numbers."""
    parents, found = {}, {}
    for path in Path("/proc").glob("[0-9]*/status"):
        try:
            status = _status(path)
        except OSError:  # it ended
            continue
        if "VmHWM" in status:
            number = int(status["Pid"])
            parents[number] = int(status["PPid"])
            found[number] = status["Name"].strip(), _bytes_of(status, "VmHWM")
    for number, (name, num_bytes) in found.items():
        if _descends(number, driver, parents):
            role = "driver" if number == driver else "java" if name == "java" else "worker"
            before = peaks.get(number)
            # A process that Java has just forked still has Java's name and memory.
            known = before.num_bytes if before and before.role == role else 0
            peaks[number] = Peak(role, max(num_bytes, known))


def _status(path: Path) -> dict[str, str]:
    return dict(line.split(":", 1) for line in path.read_text().splitlines())


def _bytes_of(status: dict[str, str], name: str) -> int:
    return int(status[name].split()[0]) * 1024
