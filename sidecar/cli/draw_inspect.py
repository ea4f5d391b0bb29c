"""How ``inspect`` looks: data files, Puffin files and tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from sidecar.cli import humane
from sidecar.cli.output import facts, table

if TYPE_CHECKING:
    from rich.console import Console


def data_file(to: Console, data: Any) -> None:
    """One line a filter of a data file."""


def puffin(to: Console, data: Any) -> None:
    """The blobs of a Puffin file, and each bundle's groups."""


def table_coverage(to: Console, data: Any) -> None:
    """Coverage of a table by column and kind."""
