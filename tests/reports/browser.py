"""A browser that is installed, and pictures of pages by it."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

BROWSERS = ("chromium", "chromium-headless-shell", "chromium-browser", "google-chrome", "chrome", "firefox")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason="no browser is installed")


def photograph(address: str, folder: Path) -> Path:
    """Let the browser draw the page at an address; return the picture, which is in ``folder``.

    Fails if a policy of the page keeps out a part of it, such as its style.
    """
    picture = folder / "page.png"
    flags = ["--headless", f"--screenshot={picture}", "--window-size=900,2400", "--enable-logging=stderr"]
    if "firefox" in str(BROWSER):
        flags = ["--headless", "--screenshot", str(picture), "--profile", str(folder)]
    elif os.geteuid() == 0:
        flags.append("--no-sandbox")
    done = subprocess.run([str(BROWSER), *flags, address], check=True, timeout=60, capture_output=True, text=True)
    assert "Content Security Policy" not in done.stderr
    return picture
