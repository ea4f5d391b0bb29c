"""``python -m sidecar.cli`` is the console script ``sidecar``."""

from sidecar.cli import main

main()
