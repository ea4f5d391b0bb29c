"""The page about a table that the server shows, in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.reports.browser import NARROW, needs_browser, shown
from tests.serving.proxy.conftest import Proxied


@needs_browser
def test_a_browser_shows_the_page_of_the_server(proxied: Proxied, tmp_path: Path) -> None:
    page = f"{proxied.url}/sidecar/v1/wh/namespaces/db/tables/"
    drawn = shown(f"{page}t/report", tmp_path, NARROW)
    assert [text for text in drawn.errors if "favicon" not in text] == []
    assert drawn.pictures > 0
    assert drawn.overflow <= 0
    assert "db.t" in drawn.text
    missing = shown(f"{page}none/report", tmp_path)
    assert missing.pictures == 0
    assert "does not let you load the table" in missing.text
