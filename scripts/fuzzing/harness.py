"""Runs the cases of a fuzzer in forked children, and names each case that breaks a promise.

A child reads case after case. Its address space is limited, so too large a request fails in the case that makes it. A
timer of CPU time ends the child in a case that takes too long, and the parent goes on with a new one. The peak of
resident memory is taken anew in each case. What a case gives depends on the seed of the run and its number alone, so
every find can be repeated.
"""

from __future__ import annotations

import ctypes
import json
import math
import mmap
import os
import resource
import select
import signal
import struct
import sys
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError
from sidecar.errors import SidecarError
from sidecar.kernels.warming import warm_up

ADDRESSES = 512 << 20
"""Bytes of address space that a child may take more than at its start, touched or not."""

BATCH = 1500
"""Cases of one child: what it keeps in memory on purpose, such as caches, does not add up."""

SILENCE = 120
"""Seconds after which a child that does not finish a case is killed, even if it uses no CPU: it waits for ever."""

_STATE = struct.Struct("<QQQQ")
"""What a child shares with its parent: the number of its case, how many gave a value, how many our error, and the
most bytes of resident memory that a case took."""


@dataclass(frozen=True)
class Find:
    """A case that broke a promise."""

    number: int
    change: str
    what: str
    """The class of the exception, ``memory``, ``time`` or the signal that ended the child."""
    where: str
    """The innermost line of the package that was running."""
    detail: str

    @property
    def signature(self) -> tuple[str, str]:
        """What finds of one cause have in common."""
        return self.what, self.where


@dataclass
class Run:
    """What came of the cases of one fuzzer."""

    cases: int = 0
    values: int = 0
    errors: int = 0
    seconds: float = 0.0
    cpu: float = 0.0
    """CPU seconds of the children, which do not depend on what else the machine does."""
    memory: int = 0
    """The most bytes of resident memory that a case took."""
    finds: list[Find] = field(default_factory=list)

    @property
    def distinct(self) -> dict[tuple[str, str], Find]:
        """The first find of each cause."""
        found: dict[tuple[str, str], Find] = {}
        for find in self.finds:
            found.setdefault(find.signature, find)
        return found


def prepare_process() -> None:
    """Have Arrow use no threads, which a forked child would not have, and memory that the limits see.

    Kernels are loaded now: a child that compiles one would take memory and time that are not its case's.
    """
    warm_up()
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    pa.set_memory_pool(pa.system_memory_pool())


def run_cases(
    fuzzer: Fuzzer, seed: int, *, cases: int = 1 << 60, seconds: float = math.inf, stop_at_find: bool = False
) -> Run:
    """Read so many cases, or for so many seconds, whichever ends first; ``stop_at_find``: not beyond the first find."""
    fuzzer.warm_up()
    run, started = Run(), time.monotonic()
    while run.cases < cases and run.seconds < seconds and not (stop_at_find and run.finds):
        limits = _Limits(min(BATCH, cases - run.cases), started + seconds, stop_at_find)
        _one_child(fuzzer, seed, limits, run)
        run.seconds = time.monotonic() - started
    return run


class _Limits(NamedTuple):
    """How many cases a child reads, at most, and the time of the monotonic clock after which it begins no other one."""

    cases: int
    end: float
    stop_at_find: bool = False


def _one_child(fuzzer: Fuzzer, seed: int, limits: _Limits, run: Run) -> None:
    """Read a batch in a child, and add what came of it to ``run``."""
    shared = mmap.mmap(-1, _STATE.size)
    out, into = os.pipe()
    sys.stdout.flush()
    child = os.fork()
    if not child:
        os.close(out)
        _in_child(fuzzer, seed, run.cases, limits, shared, into)
    os.close(into)
    finds = _listen(out, child, shared)
    _, status, used = os.wait4(child, 0)
    run.cpu += used.ru_utime + used.ru_stime
    done, values, errors, memory = _STATE.unpack(shared)
    run.finds += finds
    run.values += values
    run.errors += errors
    run.memory = max(run.memory, memory)
    stopped = os.WIFSIGNALED(status) or os.WEXITSTATUS(status) != 0
    if stopped:
        run.finds.append(_end_of(fuzzer, seed, run.cases + done, status))
    run.cases += done + stopped


def _in_child(fuzzer: Fuzzer, seed: int, first: int, limits: _Limits, shared: mmap.mmap, into: int) -> None:
    pages = _resident_pages()[0]
    limit = pages * resource.getpagesize() + ADDRESSES
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    values = errors = done = memory = 0
    while done < limits.cases and time.monotonic() < limits.end:
        _STATE.pack_into(shared, 0, done, values, errors, memory)
        signal.setitimer(signal.ITIMER_PROF, fuzzer.seconds)
        case = fuzzer.case_number(seed, first + done)
        _forget_peak()
        before = _resident_pages()[1] * resource.getpagesize()
        find, is_value = _one_case(fuzzer, case, first + done)
        taken = _peak() - before
        memory = max(memory, taken)
        if find is None and taken > fuzzer.memory:
            find = _too_much(fuzzer, case, first + done, taken)
        if find is None:
            values, errors = values + is_value, errors + (not is_value)
        else:
            os.write(into, json.dumps(vars(find)).encode() + b"\n")
        done += 1
        if find is not None and (find.what == "memory" or limits.stop_at_find):
            break  # what the case has left in memory would hide what later ones take
    _STATE.pack_into(shared, 0, done, values, errors, memory)
    os._exit(0)


def _one_case(fuzzer: Fuzzer, case: Case, number: int) -> tuple[Find | None, bool]:
    """Read one case. Returns the find, if it is one, and whether the decoder gave a value."""
    try:
        fuzzer.read(case)
    except SidecarError as error:
        if not isinstance(error.__cause__, MemoryError):
            return None, False
        return _find(number, case.change, "memory", error), False
    except WrongAnswerError as error:
        return _find(number, case.change, "wrong answer", error), False
    except MemoryError as error:
        return _find(number, case.change, "memory", error), False
    except BaseException as error:
        kind = type(error)
        what = f"{kind.__module__}.{kind.__name__}".removeprefix("builtins.")
        return _find(number, case.change, what, error), False
    return None, True


def _find(number: int, change: Change, what: str, error: BaseException) -> Find:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if f"{os.sep}sidecar{os.sep}" in frame.filename] or frames
    name = Path(ours[-1].filename).parts[-2:]
    where = f"{'/'.join(name)}:{ours[-1].lineno} {ours[-1].name}"
    return Find(number, change.value, what, where, f"{type(error).__name__}: {error}"[:500])


def _too_much(fuzzer: Fuzzer, case: Case, number: int, taken: int) -> Find | None:
    most = fuzzer.memory_of(case)
    if taken <= most:
        return None
    return Find(number, case.change.value, "memory", "", f"{taken >> 20} MiB, at most {most >> 20}")


def _forget_peak() -> None:
    """Have the peak of resident memory begin anew, or that of one case, or of its making, would count for the next.

    Memory that is free, but that C's allocator keeps, is given back: what is in it later would not add to the peak.
    """
    with suppress(OSError, AttributeError):  # another C library may have no such function
        ctypes.CDLL(None).malloc_trim(0)
    with suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")


def _peak() -> int:
    """The peak of resident memory of this process, in bytes."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


def _listen(out: int, child: int, shared: mmap.mmap) -> list[Find]:
    """Collect the finds of a child until it ends, and end it if it stands still."""
    data, seen, since = b"", -1, time.monotonic()
    while True:
        ready, _, _ = select.select([out], [], [], 1.0)
        if ready:
            piece = os.read(out, 1 << 16)
            if not piece:
                break
            data += piece
        done = _STATE.unpack(shared)[0]
        if done != seen:
            seen, since = done, time.monotonic()
        elif time.monotonic() - since > SILENCE:
            os.kill(child, signal.SIGKILL)
    os.close(out)
    lines = [line for line in data.split(b"\n") if line]
    return [Find(**json.loads(line)) for line in lines]


def _end_of(fuzzer: Fuzzer, seed: int, number: int, status: int) -> Find:
    change = fuzzer.case_number(seed, number).change.value
    if os.WIFSIGNALED(status):
        name = signal.Signals(os.WTERMSIG(status)).name
        what = "time" if name in ("SIGPROF", "SIGKILL") else name
        return Find(number, change, what, "", f"the process was ended by {name}")
    return Find(number, change, "exit", "", f"the process ended with status {os.WEXITSTATUS(status)}")


def _resident_pages() -> tuple[int, int]:
    """Pages of this process: all, and those in memory."""
    total, resident, *_ = Path("/proc/self/statm").read_bytes().split()
    return int(total), int(resident)


def repeat(fuzzer: Fuzzer, seed: int, number: int) -> tuple[Any, Find | None]:
    """Read one case in this process. Returns it and the find, if it is one."""
    case = fuzzer.case_number(seed, number)
    find, _ = _one_case(fuzzer, case, number)
    return case, find
