"""Reads the lines that servers write about plans."""

from __future__ import annotations

import json
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from sidecar.serving.operations import observed


class _Kept(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[dict[str, Any]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(json.loads(record.getMessage()))


@contextmanager
def plan_lines() -> Iterator[list[dict[str, Any]]]:
    """The lines about plans that are made in the block."""
    kept = _Kept()
    observed.log.addHandler(kept)
    try:
        yield kept.lines
    finally:
        observed.log.removeHandler(kept)
