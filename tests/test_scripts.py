"""Names that scripts import from the package exist; type checks cover the package alone."""

from __future__ import annotations

import ast
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SCRIPTS = sorted([*(ROOT / "scripts").rglob("*.py"), *(ROOT / "spec_vectors").rglob("*.py")])


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_names_that_scripts_import_are_there(script: Path) -> None:
    for node in ast.walk(ast.parse(script.read_text("utf-8"))):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "sidecar":
            module = import_module(node.module or "")
            for alias in node.names:
                found = hasattr(module, alias.name) or find_spec(f"{node.module}.{alias.name}")
                assert found, f"{script.name} imports {alias.name} from {node.module}"
