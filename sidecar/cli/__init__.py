"""The command line: one short module a command; text and JSON behind one output interface.

Nothing heavy is imported before a command runs: ``sidecar --help`` loads typer, and rich only to draw.
"""

from __future__ import annotations


def main() -> None:
    """Entry point of the console script ``sidecar``."""
    from sidecar.cli.app import app

    app(prog_name="sidecar")
