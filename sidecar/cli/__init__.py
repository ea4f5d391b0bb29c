"""The command line: one short module for each command, and one output interface for text and JSON.

No logic is here; commands call the public functions of other rooms. Nothing heavy is imported before a command runs:
``sidecar --help`` loads typer, and rich only to draw. Start with :mod:`sidecar.cli.app`.
"""

from __future__ import annotations

import atexit
import gc

GARBAGE = 300_000
"""New containers until Python looks for cycles among them. The modules that a plan loads make 200,000, which all stay:
with Python's own 700, looking through them takes a tenth of a command's first second."""


def main() -> None:
    """Entry point of the console script ``sidecar``."""
    gc.set_threshold(GARBAGE)
    atexit.register(gc.freeze)  # at the end of a process Python looks for cycles, too: for a third of a plan's time
    from sidecar.cli.app import app

    app(prog_name="sidecar")
