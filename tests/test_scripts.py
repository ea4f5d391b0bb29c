"""Names that scripts import from the package exist; type checks cover the package alone."""

from __future__ import annotations

import ast
import sys
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest

from scripts.version_runs import ENVIRONMENTS
from sidecar.dependencies.supported import PYSPARK

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


def test_what_the_demo_says_to_ask_can_be_pasted_at_80_columns(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv("OLDPWD", str(ROOT))
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.syspath_prepend(str(ROOT / "scripts" / "tpch"))
    demo = import_module("demo")
    monkeypatch.setattr(sys, "executable", str(ROOT / ".venv" / "bin" / "python"))
    demo.say_what_to_ask(demo.WORK / "sf0.1" / "lake")
    _, *lines = [line for line in capsys.readouterr().out.splitlines() if line]
    assert lines == [
        "export PYICEBERG_CATALOG__DEMO__URI=sqlite:///.work/demo/sf0.1/lake/cat.db",
        '.venv/bin/sidecar plan db.lineitem "l_partkey = 4242" --catalog demo',
    ]
    assert max(map(len, lines)) <= 80


def test_shares_for_other_versions_are_there_and_each_spark_has_an_environment() -> None:
    named = {path for environment in ENVIRONMENTS.values() for path in environment.share}
    assert {path for path in named if not (ROOT / path).exists()} == set()
    minors = range(PYSPARK.lowest[1], PYSPARK.below[1])
    sparks = [name for name in ENVIRONMENTS if name.startswith("spark-")]
    assert sparks == [f"spark-{PYSPARK.lowest[0]}.{minor}" for minor in minors]
    matrix = (ROOT / ".github" / "workflows" / "matrix.yml").read_text("utf-8")
    assert "spark: [" + ", ".join(f'"{name.removeprefix("spark-")}"' for name in sparks) + "]" in matrix
