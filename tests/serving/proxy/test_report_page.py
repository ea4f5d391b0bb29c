"""The page about a table that the server shows, in a browser."""

from __future__ import annotations

from pathlib import Path

from tests.reports.browser import needs_browser, photograph
from tests.serving.proxy.conftest import Proxied


@needs_browser
def test_a_browser_draws_the_page_of_the_server(proxied: Proxied, tmp_path: Path) -> None:
    page = f"{proxied.url}/sidecar/v1/wh/namespaces/db/tables/"
    drawn = photograph(f"{page}t/report", tmp_path).stat().st_size
    missing = photograph(f"{page}none/report", tmp_path).stat().st_size
    assert drawn > 2 * missing > 0
