"""Says that kernels are compiled, to the log and to whoever shows progress. It does not load numba."""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import wraps
from typing import Any, ParamSpec, TypeVar

log = logging.getLogger("sidecar.kernels")

COMPILING = "compiling kernels, once on this machine"

P = ParamSpec("P")
R = TypeVar("R")
Listener = Callable[[str, int, int], Any]

_listeners: list[Listener] = []
_logged: list[str] = []


def announces_compiling(function: Callable[P, R]) -> Callable[P, R]:
    """Have a call of ``function`` tell its argument ``progress`` when it compiles its first kernel.

    ``progress`` is called with :data:`COMPILING`, 0 and 1, from the thread that compiles. It is not called if all
    kernels are in the cache on disk.
    """

    @wraps(function)
    def announcing(*args: P.args, **kwargs: P.kwargs) -> R:
        listener: Any = kwargs.get("progress")
        if listener is None:
            return function(*args, **kwargs)
        _listeners.append(listener)
        try:
            return function(*args, **kwargs)
        finally:
            if listener in _listeners:
                _listeners.remove(listener)

    return announcing


def announce_compiling() -> None:
    """Log :data:`COMPILING` once in this process, and tell each listener once."""
    if not _logged:
        _logged.append(COMPILING)
        log.info(COMPILING)
    while _listeners:
        _listeners.pop()(COMPILING, 0, 1)
