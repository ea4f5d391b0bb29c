"""The examples of the guide to catalogs run against the servers, as shown."""

from __future__ import annotations

import contextlib
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import NoSuchTableError

from tests.guide_examples import GUIDE, Session, examples

pytestmark = pytest.mark.services


def test_the_guide_to_catalogs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name in ("rest", "postgres", "s3"):
        with contextlib.suppress(NoSuchTableError):
            load_catalog(name).drop_table("shop.orders")
    blocks = [block._replace(needs="") for block in examples(GUIDE / "catalogs.md") if block.needs == "services"]
    assert {block.language for block in blocks} == {"python", "console"}
    Session(monkeypatch).run(blocks)
