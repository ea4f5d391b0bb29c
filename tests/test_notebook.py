"""The example notebook runs in Jupyter's kernel and shows what it shows in the repository."""

from __future__ import annotations

import re
from typing import Any

import nbclient
import nbformat

from tests.guide_examples import GUIDE

NOTEBOOK = GUIDE / "first-index.ipynb"
OTHERWISE = re.compile(r"\d{10,}|[0-9a-f]{8}-[0-9a-f-]{27}|'…[^']*'|file_size=\d+")
"""What differs from run to run: snapshot ids, names of files and the size of those that hold them."""


def shown(notebook: Any) -> list[list[str]]:
    """The text of each cell's outputs."""
    cells = [cell for cell in notebook.cells if cell.cell_type == "code"]
    return [[OTHERWISE.sub("*", str(one.get("data", one).get("text/plain"))) for one in cell.outputs] for cell in cells]


def test_the_notebook() -> None:
    stored = nbformat.read(NOTEBOOK, as_version=4)
    expected = shown(stored)
    nbclient.NotebookClient(stored, timeout=120).execute()
    assert shown(stored) == expected
    assert any("files_kept=1," in text for cell in expected for text in cell)
