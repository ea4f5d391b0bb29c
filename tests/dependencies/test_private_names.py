"""No module but those of ``sidecar.dependencies`` uses a private name of another package."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from tests.syntax import tree_of

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"
ROOM = PACKAGE / "dependencies"
MODULES = sorted(path for path in PACKAGE.rglob("*.py") if path.parent != ROOM)
OF_NAMED_TUPLES = {"_asdict", "_fields", "_replace"}
"""Public, whatever their names say."""
ALLOWED = {
    "bundle/indexes/index_blob.py": {
        "_skipped_groups_reported"
    },  # an attribute of the package's own, set by its subclass
    "kernels/_jit.py": {
        "_cache",
        "_cache_file",
        "_cache_path",
        "_index_name",
    },  # numba's cache of kernels; asks before each use
}
"""Private names of others that may stay where they are, by module."""
OVERRIDES = {
    "iceberg/records/entries.py": {"_data"},  # a record decodes its values when they are looked at
    "planning/evaluators.py": {
        "_build_manifest_evaluator",
        "_build_partition_evaluator",
        "_build_residual_evaluator",
    },  # pyiceberg's planner calls these methods of its subclass
}
"""Private names of pyiceberg that a subclass defines, by module."""
BY_NAME = {"getattr", "hasattr", "setattr"}


def is_private(name: str) -> bool:
    return name.startswith("_") and not name.startswith("__")


def is_own(receiver: ast.expr) -> bool:
    """Whether an attribute is looked up in the instance or class of a method."""
    return ast.unparse(receiver) in ("self", "cls", "super()")


def used_of_others(tree: ast.AST) -> Iterator[str]:
    """Private names of a module that are imported from other packages, or looked up in a value."""
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and not (node.module or "").startswith("sidecar"):
            yield from (alias.name for alias in node.names if is_private(alias.name))
        elif isinstance(node, ast.Attribute) and is_private(node.attr) and not is_own(node.value):
            yield node.attr
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in BY_NAME:
            receiver, name, *_ = node.args
            if isinstance(name, ast.Constant) and is_private(name.value) and not is_own(receiver):
                yield name.value


def defined(tree: ast.AST) -> Iterator[str]:
    """Names that a module gives to functions, classes, variables, and to attributes of its own instances."""
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.ClassDef):
            yield node.name
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id
        elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store) and is_own(node.value):
            yield node.attr


def used_in_room() -> set[str]:
    return {name for path in ROOM.glob("*.py") for name in used_of_others(tree_of(path))}


def test_private_names_of_other_packages_are_used_in_one_room() -> None:
    found = {}
    for path in MODULES:
        tree = tree_of(path)
        if foreign := set(used_of_others(tree)) - set(defined(tree)) - OF_NAMED_TUPLES:
            found[str(path.relative_to(PACKAGE))] = foreign
    assert found == ALLOWED


def test_what_a_subclass_overrides_is_listed() -> None:
    """A name that the room uses is used by no other module, not even by one that has an override of it."""
    room, overrides = used_in_room(), dict[str, set[str]]()
    for path in MODULES:
        tree, module = tree_of(path), str(path.relative_to(PACKAGE))
        if "pyiceberg" not in path.read_text("utf-8"):
            continue
        methods = {node.name for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)}
        if module in OVERRIDES:
            overrides[module] = methods & room
        assert not set(used_of_others(tree)) & room, module
    assert overrides == OVERRIDES


def test_a_slip_is_found() -> None:
    tree = ast.parse("from pyiceberg.manifest import _open\nscan._planner\ngetattr(file, '_fs')\nself._mine\n")
    assert set(used_of_others(tree)) == {"_open", "_planner", "_fs"}
