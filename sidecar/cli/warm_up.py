"""``sidecar warm-up``: compiles all kernels in advance."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from sidecar.cli.output import facts, output

if TYPE_CHECKING:
    from rich.console import Console

    from sidecar.results import WarmUpReport


def warm_up() -> None:
    """Compile all kernels now, so that no later build waits for it.

    Run it where an image is made, which keeps the machine code. The cache is in NUMBA_CACHE_DIR, else in the user's
    cache folder, else beside the package. Exit code 1 if none is writable. The output says how to remove it.

    \b
    Examples:
      sidecar warm-up
      sidecar warm-up --json
    """
    out = output()
    from sidecar import warm_up as compile_kernels

    report = compile_kernels()
    if report.folder is None:
        out.warn(["no cache folder is writable, so the machine code is lost: set NUMBA_CACHE_DIR"])
    out.result(report, draw, failed=report.folder is None)


def draw(to: Console, report: WarmUpReport) -> None:
    """Draw how many kernels were compiled, and where they are."""
    to.print(
        facts(
            [
                ("kernels", f"{report.kernels}, of which {report.compiled} were compiled now"),
                ("time", f"{report.seconds:.1f} s"),
                ("cache", report.folder or "none"),
                *([] if report.folder is None else [("to remove it", f"rm -r {shlex.quote(report.folder)}")]),
            ]
        )
    )
