"""Waiting for threads, on machines that have much else to do as well."""

from __future__ import annotations

import time
from collections.abc import Callable


def wait_until(happened: Callable[[], bool]) -> None:
    """Come back as soon as it has happened, or after a minute."""
    end = time.monotonic() + 60
    while not happened() and time.monotonic() < end:
        time.sleep(0.01)
