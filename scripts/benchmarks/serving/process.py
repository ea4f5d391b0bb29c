"""``sidecar serve`` as a process of its own."""

from __future__ import annotations

import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager

from scripts.servers.processes import free_ports

START_SECONDS = 60


@contextmanager
def server() -> Iterator[tuple[str, int]]:
    """Serve the catalog ``bench`` of the environment, and yield the address and the process id."""
    (port,) = free_ports(1)
    address = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "sidecar.cli", "serve", "--catalog", "bench", "--port", str(port)]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(START_SECONDS * 10):
            try:
                urllib.request.urlopen(f"{address}/healthz", timeout=1).close()
                break
            except OSError:
                time.sleep(0.1)
        yield address, process.pid
    finally:
        process.terminate()
        process.wait(START_SECONDS)
