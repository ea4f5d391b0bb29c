"""The types of results, and the names of what is in them. Each is loaded at its first use."""

from __future__ import annotations

import re
from importlib import import_module
from pkgutil import get_data
from typing import Any


def homes_of(package: str) -> dict[str, str]:
    """Return the modules of a package's public names. Type checkers read them from the same stub.

    The package may be in an archive.
    """
    stub = (get_data(package, "__init__.pyi") or b"").decode()
    return {name: module for module, name in re.findall(r"^from (sidecar\.\S+) import (\w+) as", stub, re.MULTILINE)}


_HOMES = homes_of(__name__)

__all__ = sorted(_HOMES)


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sidecar.results' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
