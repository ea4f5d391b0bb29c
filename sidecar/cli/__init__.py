"""The command line: one short module for each command, and one output interface for text and JSON.

No logic is here; commands call the public functions of other rooms. Nothing heavy is imported before a command runs:
``sidecar --help`` loads typer, and rich only to draw. Start with :mod:`sidecar.cli.app`.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script ``sidecar``."""
    from sidecar.cli.app import app

    app(prog_name="sidecar")
