"""sidecar adds Bloom filters, page indexes and distinct counts to an Iceberg table without rewriting its data.

A lookup then opens only the files that can hold the value.

    import sidecar

    table = sidecar.open_table("db.lineitem")                    # any catalog that pyiceberg knows
    sidecar.build(table, ["l_partkey", "l_comment"])             # index and register
    plan = sidecar.plan(table, "l_partkey = 42")                 # the files that can hold such rows
    rows = plan.to_arrow()                                       # the rows, as an Arrow table
    rows = sidecar.scan(table, "l_partkey = 42")                 # the same in one call

Only the public names are here. Each is loaded at its first use, so importing the package is cheap. The rooms and their
layers are in ARCHITECTURE.md. Start with :func:`sidecar.indexing.driver.build` and
:func:`sidecar.planning.planner.plan`.
"""

from __future__ import annotations

import logging
from importlib import import_module
from typing import Any

from sidecar import errors as errors
from sidecar import results as results

_HOMES = results.homes_of(__name__)

logging.getLogger(__name__).addHandler(logging.NullHandler())

__all__ = sorted([*_HOMES, "errors", "results"])


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sidecar' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return __all__
