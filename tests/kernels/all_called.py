"""A pytest plugin: the run fails if its tests call no kernel of some module, or not all of them."""

from __future__ import annotations

from importlib import import_module
from pkgutil import iter_modules
from typing import Any

import sidecar.kernels
from sidecar.kernels._jit import KERNELS


def pytest_sessionfinish(session: Any) -> None:
    for module in iter_modules(sidecar.kernels.__path__):
        import_module(f"sidecar.kernels.{module.name}")
    missing = [f"{kernel.__module__}.{kernel.__name__}" for kernel in KERNELS if not kernel._loaded]
    if missing:
        print(f"no test called {', '.join(missing)}")
        session.exitstatus = 1
