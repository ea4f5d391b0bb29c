"""The command line: one short module for each command, and one output interface for text and JSON.

No logic is here; commands call the public functions of other rooms. Nothing heavy is imported before a command runs:
``sidecar --help`` loads typer, and rich only to draw. Start with :mod:`sidecar.cli.app`.
"""

from __future__ import annotations

import gc

GARBAGE = 100_000
"""New containers until Python looks for cycles among them. With Python's own 700, looking through the modules that a
command loads takes a tenth of its first second."""


def main() -> None:
    """Entry point of the console script ``sidecar``."""
    gc.set_threshold(GARBAGE)
    from sidecar.cli.app import app

    app(prog_name="sidecar")
