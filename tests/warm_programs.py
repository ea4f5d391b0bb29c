"""``sidecar`` and ``python FILE`` for shells of tests: children of one process that has imported what they import.

A new process imports for a second before it works. A child has the arguments, variables, folder and streams of its
caller. ``tests/cli/test_wheel.py`` runs the console script from nothing.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import runpy
import select
import shlex
import signal
import socket
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable
from functools import cache
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
IMPORTED = ("pandas", "pyarrow.dataset", "pyiceberg.catalog.sql", "sidecar.cli.app", "sidecar.indexing.stage_one.tasks")


@cache
def programs() -> Path:
    """The folder of the programs, for the PATH. The process behind them ends with this one."""
    folder = Path(tempfile.mkdtemp(prefix="warm-"))  # not a test's own: the path of a socket must be short
    python, place = shlex.quote(sys.executable), folder / "socket"
    call = f"exec {python} -IS {shlex.quote(str(ROOT / 'tests' / 'warm_call.py'))} {shlex.quote(str(place))}"
    (folder / "sidecar").write_text(f'#!/bin/sh\n{call} sidecar "$@"\n')
    (folder / "python").write_text(f'#!/bin/sh\ncase $1 in *.py) {call} python "$@" ;; esac\nexec {python} "$@"\n')
    for name in ("sidecar", "python"):
        (folder / name).chmod(0o755)
    with socket.socket(socket.AF_UNIX) as listening:
        listening.bind(str(place))
        listening.listen()
        server = subprocess.Popen(
            [sys.executable, "-m", "tests.warm_programs", str(listening.fileno())],
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            stdin=subprocess.PIPE,
            pass_fds=[listening.fileno()],
        )
    atexit.register(server.communicate)
    return folder


def serve(listening: socket.socket) -> None:
    """Fork a child for each call, until the process that started this one is gone."""
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for children: they answer their callers themselves
    for name in IMPORTED:
        import_module(name)
    gc.freeze()
    while listening in select.select([listening, sys.stdin], [], [])[0]:
        caller, _ = listening.accept()
        if os.fork() == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            listening.close()
            code = run(caller)
            caller.sendall(bytes([code]))
            os._exit(code)
        caller.close()


def run(caller: socket.socket) -> int:
    """Run what :mod:`tests.warm_call` asks for, as a new process would, and return its exit code."""
    from pyiceberg.utils.config import Config

    length, streams, _, _ = socket.recv_fds(caller, 8, 3)
    for stream, of_caller in enumerate(streams):
        os.dup2(of_caller, stream)
        os.close(of_caller)
    with caller.makefile("rb") as sent:
        (program, *arguments), variables, folder = json.loads(sent.read(int.from_bytes(length, "little")))
    os.environ.clear()
    os.environ.update(variables)
    os.chdir(folder)
    import_module("pyiceberg.catalog")._ENV_CONFIG = Config()  # type: ignore[attr-defined]  # it read its parent's
    return exit_code_of(lambda: start(program, arguments))


def start(program: str, arguments: list[str]) -> None:
    from sidecar.cli import main

    if program == "sidecar":
        sys.argv = [program, *arguments]
        main()
    else:
        sys.argv = arguments
        sys.path[0] = str(Path(arguments[0]).resolve().parent)
        runpy.run_path(arguments[0], run_name="__main__")


def exit_code_of(program: Callable[[], None]) -> int:
    """Run it to its end, with what Python does at the end of a process."""
    code: object = None
    try:
        program()
    except SystemExit as ended:
        code = ended.code
    except BaseException:
        traceback.print_exc()
        code = 1
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    if isinstance(code, str):
        print(code, file=sys.stderr, flush=True)
    return code if isinstance(code, int) else int(code is not None)


if __name__ == "__main__":
    serve(socket.socket(fileno=int(sys.argv[1])))
