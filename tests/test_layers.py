"""The rules of ARCHITECTURE.md about imports: layers point one way, heavy packages stay in their rooms."""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

from tests.syntax import tree_of

PACKAGE = Path(__file__).resolve().parents[1] / "sidecar"
LAYERS = [
    {"results"},
    {"errors"},
    {"run", "run_log", "failpoints"},
    {"dependencies"},
    {"storage"},
    {"crypto"},
    {"access"},
    {"engines"},
    {"kernels"},
    {"filters"},
    {"questions"},
    {"parquet", "orc", "puffin"},
    {"bundle"},
    {"data_files"},
    {"conversion"},
    {"files"},
    {"many_files"},
    {"iceberg"},
    {"planning", "indexing"},
    {"maintenance"},
    {"reading", "embedding"},
    {"reports"},
    {"spark", "serving"},
    {"cli", "integrations"},
]
RANK = {room: rank for rank, rooms in enumerate(LAYERS) for room in rooms}
BUILT_ON_TABLES = {
    "iceberg",
    "planning",
    "indexing",
    "maintenance",
    "reading",
    "embedding",
    "reports",
    "spark",
    "serving",
    "integrations",
}
ROOMS_OF = {
    "numba": {"kernels"},
    "pyspark": {"dependencies", "spark"},
    "rich": {"cli"},
    "typer": {"cli"},
    "starlette": {"serving"},
    "uvicorn": {"serving"},
    "httpx": {"serving"},
    "dagster": {"integrations"},
    "airflow": {"integrations"},
    "pyiceberg": {
        "dependencies",
        "storage",
        "access",
        "files",
        "many_files",
        "conversion",
        "engines",
        *BUILT_ON_TABLES,
    },
}
UPWARD = {
    ("engines", "spark"),
    ("iceberg", "spark"),
    ("indexing", "spark"),
    ("indexing", "reports"),
    ("planning", "reading"),
}
"""An engine is picked by name, and Spark's is loaded only then; so is a catalog of a given session. A build that
chooses its columns loads what advises. A plan hands over its rows, and loads what reads them only then."""

PLANNING = ("sidecar.planning.planner", "sidecar.reading.scanning")
MODULES = sorted(p for p in PACKAGE.rglob("*.py") if p != PACKAGE / "__init__.py")


def room_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


def imports(node: ast.AST, at_load: bool = True) -> Iterator[tuple[str, bool]]:
    """Each imported module, and whether that happens at load time: not in a function, not for types only."""
    for statement in ast.iter_child_nodes(node):
        if isinstance(statement, ast.Import):
            for alias in statement.names:
                yield alias.name, at_load
        elif isinstance(statement, ast.ImportFrom):
            assert statement.level == 0, "imports are absolute"
            yield statement.module or "", at_load
        elif not isinstance(statement, ast.expr):
            yield from imports(statement, at_load and not is_late(statement))


def is_late(statement: ast.AST) -> bool:
    """Whether the imports in a statement do not happen at load time."""
    if isinstance(statement, ast.If):
        return "TYPE_CHECKING" in ast.unparse(statement.test)
    return isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef)


@pytest.mark.parametrize("path", MODULES, ids=lambda p: str(p.relative_to(PACKAGE)))
def test_imports_respect_the_layers(path: Path) -> None:
    room = room_of(path)
    for name, at_load in imports(tree_of(path)):
        package, _, rest = name.partition(".")
        if package == "sidecar":
            other = rest.split(".")[0]
            if not other or other == room:  # the public API is for the outermost rooms
                assert other or room in ("cli", "integrations"), f"{room} imports the package's front door"
                continue
            below = RANK[other] < RANK[room]
            assert below or ((room, other) in UPWARD and not at_load), f"{room} imports {other}"
        elif package in ROOMS_OF:
            assert room in ROOMS_OF[package], f"{room} imports {package}"


@cache
def loaded_after_each(*modules: str) -> dict[str, set[str]]:
    """All modules that are loaded after each import, in a fresh process that makes the imports in this order."""
    script = "import sys\nfrom importlib import import_module\nfor name in sys.argv[1:]:\n"
    script += "    import_module(name)\n    print(*sys.modules)"
    command = [sys.executable, "-c", script, *modules]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    return dict(zip(modules, map(set, map(str.split, done.stdout.splitlines())), strict=True))


def loaded_by(module: str) -> set[str]:
    return loaded_after_each("sidecar", *PLANNING)[module]


@pytest.mark.parametrize("module", PLANNING)
def test_planning_compiles_nothing(module: str) -> None:
    loaded = loaded_by(module)
    assert not {"numba", "pyspark", "rich", "typer", "sidecar.kernels"} & loaded
    assert not {"pyiceberg.catalog.rest", "cryptography"} & loaded, "slows the first plan"


def test_a_refresh_with_nothing_to_do_loads_nothing_that_opens_segments() -> None:
    late = ("numba", "pyspark", "sidecar.bundle.s", "sidecar.bundle.filters", "sidecar.bundle.units", "sidecar.kernels")
    (loaded,) = loaded_after_each("sidecar.maintenance.refreshing").values()
    assert {name for name in loaded if name.startswith(late)} <= {
        "sidecar.bundle.sketches",
        "sidecar.bundle.sketches.count_marks",
    }


def test_a_plan_loads_what_few_plans_need_when_they_need_it() -> None:
    late = (
        "sidecar.orc",
        "sidecar.parquet",
        "sidecar.bundle.sketches",
        "sidecar.iceberg.records",
        "sidecar.planning.keys.key_pruning",
    )
    assert not [name for name in loaded_by("sidecar.planning.planner") if name.startswith(late)]


def test_no_command_looks_for_cycles_among_the_modules_that_a_plan_loads_nor_at_its_end() -> None:
    loaded = ["sidecar.cli.app", "sidecar.cli.plan", "sidecar.planning.planner", "pyiceberg.catalog.sql", "rich.table"]
    script = "import atexit, gc, sys\nfrom importlib import import_module\nfrom sidecar.cli import GARBAGE, main\n"
    script += "gc.set_threshold(GARBAGE)\nbefore = gc.get_stats()\n"
    script += "for name in sys.argv[1:]:\n    import_module(name)\nprint(gc.get_stats() == before)\n"
    script += "atexit.register(lambda: print(gc.get_freeze_count() > 100_000))\nsys.argv = ['sidecar', '-h']\nmain()"
    done = subprocess.run([sys.executable, "-c", script, *loaded], capture_output=True, text=True, check=True)
    assert (done.stdout.splitlines()[0], done.stdout.splitlines()[-1]) == ("True", "True")


def test_importing_the_package_is_cheap() -> None:
    packages = {name.split(".")[0] for name in loaded_by("sidecar")}
    assert not packages & {"numba", "numpy", "pyarrow", "pyiceberg", "pyspark", "xxhash", "typer", "rich"}
