"""The browser that draws pages in tests, where one is installed."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome", "firefox")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
LEAST_BYTES = 10_000
"""A picture with fewer bytes shows an empty page."""

needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")


def assert_drawn(address: str, folder: Path) -> None:
    """Let the browser draw a page, and check that it shows something and that no policy has kept its style out."""
    picture = folder / "page.png"
    flags = ["--headless", f"--screenshot={picture}", "--window-size=900,2400", "--enable-logging=stderr"]
    if "firefox" in str(BROWSER):
        flags = ["--headless", "--screenshot", str(picture), "--profile", str(folder)]
    elif os.geteuid() == 0:
        flags.append("--no-sandbox")
    done = subprocess.run([str(BROWSER), *flags, address], check=True, timeout=60, capture_output=True, text=True)
    assert "Content Security Policy" not in done.stderr
    assert picture.stat().st_size > LEAST_BYTES
