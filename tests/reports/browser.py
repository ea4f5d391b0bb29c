"""A browser that is installed, and what it shows of a page, by Chromium's own protocol over two pipes."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import pytest

BROWSERS = ("chromium-headless-shell", "chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER = next(filter(None, map(shutil.which, BROWSERS)), None)
needs_browser = pytest.mark.skipif(BROWSER is None, reason=f"none of {', '.join(BROWSERS)} is installed")

NARROW, WIDE = 380, 900
"""Pixels of a telephone and of a window."""

_FACTS = """({
    text: document.body.innerText,
    pictures: [...document.querySelectorAll("svg")].filter(one => one.getBoundingClientRect().width > 20).length,
    overflow: document.documentElement.scrollWidth - document.documentElement.clientWidth,
})"""


@dataclass(frozen=True)
class Shown:
    """What a browser shows of a page."""

    text: str
    pictures: int
    """Drawings that have a width."""
    overflow: int
    """Pixels of the page that are beside the window."""
    errors: list[str]
    """What the console says: broken policies, missing files, exceptions."""


def shown(address: str, folder: Path, width: int = WIDE) -> Shown:
    """Open the page at an address in a window of so many pixels. ``folder`` is the browser's."""
    with _started(folder) as browser:
        target = browser.call("Target.createTarget", url="about:blank")["targetId"]
        browser.session = browser.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log"):
            browser.call(f"{domain}.enable")
        browser.call("Emulation.setDeviceMetricsOverride", width=width, height=900, deviceScaleFactor=1, mobile=False)
        browser.call("Page.navigate", url=address)
        browser.wait("Page.loadEventFired")
        found = browser.call("Runtime.evaluate", expression=_FACTS, returnByValue=True)["result"]["value"]
        return Shown(**found, errors=browser.errors)


class _Browser:
    """Sends commands, and keeps what the console says meanwhile."""

    def __init__(self, reads: Any, writes: Any) -> None:
        self._reads, self._writes = reads, writes
        self._numbers = count(1)
        self._events: list[str] = []
        self._rest = b""
        self.session: str | None = None
        self.errors: list[str] = []

    def call(self, method: str, **parameters: Any) -> dict[str, Any]:
        number = next(self._numbers)
        session = {} if self.session is None else {"sessionId": self.session}
        message = {"id": number, "method": method, "params": parameters, **session}
        self._writes.write(json.dumps(message).encode() + b"\0")
        while (answer := self._next()).get("id") != number:
            pass
        assert "error" not in answer, answer
        result: dict[str, Any] = answer["result"]
        return result

    def wait(self, event: str) -> None:
        while event not in self._events:
            self._next()

    def _next(self) -> dict[str, Any]:
        while b"\0" not in self._rest:
            read = os.read(self._reads.fileno(), 1 << 16)
            assert read, "the browser has ended"
            self._rest += read
        raw, _, self._rest = self._rest.partition(b"\0")
        message: dict[str, Any] = json.loads(raw)
        self._events.append(message.get("method", ""))
        if message.get("method") == "Log.entryAdded":
            self.errors.append(message["params"]["entry"]["text"])
        elif message.get("method") in ("Runtime.exceptionThrown", "Runtime.consoleAPICalled"):
            self.errors.append(json.dumps(message["params"]))
        return message


@contextmanager
def _started(folder: Path) -> Iterator[_Browser]:
    (to_read, writes), (reads, to_write) = os.pipe(), os.pipe()
    flags = ["--headless", "--remote-debugging-pipe", f"--user-data-dir={folder / 'profile'}", "--disable-gpu"]
    flags += ["--no-sandbox"] if os.geteuid() == 0 else []
    script = f'exec "$0" "$@" 3<&{to_read} 4>&{to_write} 2>/dev/null'
    process = subprocess.Popen(["bash", "-c", script, str(BROWSER), *flags], pass_fds=(to_read, to_write))
    os.close(to_read)
    os.close(to_write)
    with open(reads, "rb", 0) as answers, open(writes, "wb", 0) as commands:
        try:
            yield _Browser(answers, commands)
        finally:
            process.terminate()
            process.wait(20)
