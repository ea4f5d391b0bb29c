"""The rules of ARCHITECTURE.md about imports: layers point one way, heavy packages stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "sidecar"
LAYERS = [
    {"errors"},
    {"source"},
    {"target"},
    {"crypto"},
    {"kernels"},
    {"filters"},
    {"questions"},
    {"parquet", "orc", "puffin"},
    {"bundle"},
    {"files", "convert"},
    {"iceberg"},
    {"planning", "indexing"},
    {"reading", "embedding"},
    {"spark"},
    {"cli"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
BUILT_ON_TABLES = {"iceberg", "planning", "indexing", "reading", "embedding", "spark"}
ROOMS_OF = {
    "numba": {"kernels"},
    "pyspark": {"spark"},
    "rich": {"cli"},
    "typer": {"cli"},
    "pyiceberg": {"source", "target", "files", "convert", *BUILT_ON_TABLES},
}
UPWARD = {("indexing", "spark"), ("planning", "reading")}
"""The driver picks an engine by name and loads Spark's only then. A plan hands over its rows, and loads what reads them
only then."""

MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(path: Path) -> Iterator[tuple[str, bool]]:
    """Each imported module, and whether that happens at load time: not in a function, not for types only."""
    tree = ast.parse(path.read_text())
    late = {
        id(inner)
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        or (isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test))
        for inner in ast.walk(node)
    }
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield alias.name, id(node) not in late
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            yield node.module or "", id(node) not in late


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_respect_the_layers(path: Path) -> None:
    room = room_of(path)
    for name, at_load in imports(path):
        package, _, rest = name.partition(".")
        if package == "sidecar":
            other = rest.split(".")[0]
            if not other or other == room:  # the public API is for the command line alone
                assert other or room == "cli", f"{room} imports the package's front door"
                continue
            below = RANK[other] < RANK[room]
            assert below or ((room, other) in UPWARD and not at_load), f"{room} imports {other}"
        elif package in ROOMS_OF:
            assert room in ROOMS_OF[package], f"{room} imports {package}"


def loaded_by(module: str) -> set[str]:
    script = f"import {module}, sys; print('\\n'.join(sys.modules))"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    return set(done.stdout.split())


@pytest.mark.parametrize("module", ["sidecar.planning.planner", "sidecar.reading.scanning"])
def test_planning_compiles_nothing(module: str) -> None:
    loaded = loaded_by(module)
    assert not {"numba", "pyspark", "rich", "typer", "sidecar.kernels"} & loaded


def test_importing_the_package_is_cheap() -> None:
    packages = {name.split(".")[0] for name in loaded_by("sidecar")}
    assert not packages & {"numba", "numpy", "pyarrow", "pyiceberg", "pyspark", "xxhash", "typer", "rich"}
