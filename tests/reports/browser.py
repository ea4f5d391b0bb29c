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
    smallest: Math.min(...[...document.querySelectorAll("body *")].filter(one => one.checkVisibility()).map(one => {
        const size = parseFloat(getComputedStyle(one).fontSize), picture = one.closest("svg");
        return picture ? size * picture.getBoundingClientRect().width / picture.viewBox.baseVal.width : size;
    })),
})"""

_FAINT = """(() => {
    const parts = colour => colour.match(/[\\d.]+/g).map(Number);
    const light = ([r, g, b]) => [r, g, b].map(part => part / 255).map(
        part => part <= 0.04045 ? part / 12.92 : ((part + 0.055) / 1.055) ** 2.4
    ).reduce((sum, part, at) => sum + part * [0.2126, 0.7152, 0.0722][at], 0);
    const under = one => {
        for (; one; one = one.parentElement) {
            const [r, g, b, opacity = 1] = parts(getComputedStyle(one).backgroundColor);
            if (opacity === 1) return [r, g, b];
            if (opacity > 0) throw new Error("a background that is half transparent");
        }
        return canvas;
    };
    const ground = document.body.appendChild(document.createElement("i"));
    ground.style.backgroundColor = "Canvas";  // what a browser shows by its colour scheme where a page says nothing
    const canvas = parts(getComputedStyle(ground).backgroundColor);
    ground.remove();
    const found = [];
    const texts = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
    while (texts.nextNode()) {
        const one = texts.currentNode.parentElement, style = getComputedStyle(one);
        if (!texts.currentNode.data.trim() || !one.checkVisibility() || one.closest("title")) continue;
        const both = [light(parts(one.closest("svg") ? style.fill : style.color)), light(under(one))];
        const ratio = (Math.max(...both) + 0.05) / (Math.min(...both) + 0.05);
        if (ratio < 4.5) found.push(ratio.toFixed(2) + ": " + texts.currentNode.data.trim());
    }
    return found;
})()"""
"""Texts whose contrast is below that of WCAG AA, by the colours that the browser has computed."""


@dataclass(frozen=True)
class Shown:
    """What a browser shows of a page."""

    text: str
    pictures: int
    """Drawings that have a width."""
    overflow: int
    """Pixels of the page that are beside the window."""
    smallest: float
    """Pixels of the smallest text, also of that in drawings."""
    faint: list[str]
    """Texts with too little contrast, light or dark."""
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
        faint = []
        for scheme in ("light", "dark"):
            feature = {"name": "prefers-color-scheme", "value": scheme}
            browser.call("Emulation.setEmulatedMedia", features=[feature])
            faint += [f"{scheme}, {text}" for text in browser.value(_FAINT)]
        return Shown(**browser.value(_FACTS), faint=faint, errors=browser.errors)


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

    def value(self, expression: str) -> Any:
        """What an expression of JavaScript is in the page."""
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True)
        assert "exceptionDetails" not in answer, answer
        return answer["result"]["value"]

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
            try:
                process.wait(3)
            except subprocess.TimeoutExpired:  # it hears no signal at times
                process.kill()
                process.wait(20)
