"""How thorough tests with many cases are: ``SIDECAR_THOROUGH=5 scripts/test`` runs five times as many of them."""

from __future__ import annotations

import os

TIMES = int(os.environ.get("SIDECAR_THOROUGH", "1"))


TABLES, NIGHTS = map(int, os.environ.get("SIDECAR_NIGHTLY", "3x6").split("x"))
"""Tables and nights of the nightly job: ``SIDECAR_NIGHTLY=20x10 scripts/test tests/maintenance/test_nightly.py``."""


def cases(number: int) -> range:
    """So many cases, or some times as many."""
    return range(number * TIMES)


def one_in(number: int) -> int:
    """The step of a walk that looks at one byte in ``number``, or at more of them."""
    return max(1, number // TIMES)
