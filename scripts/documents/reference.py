"""The reference of Python: the public names, the docstring of each, and pages that show them.

Sources are read, not imported, so that a check of all names takes no longer than their parsing.
"""

from __future__ import annotations

import ast
import re
from functools import cache
from pathlib import Path

from scripts.documents.pages import ROOT

PACKAGES = {"sidecar": "sidecar/__init__.pyi", "sidecar.results": "sidecar/results/__init__.pyi"}
"""Public packages, and the stubs that name what is in them."""
MODULES = {
    "sidecar.errors": r"[A-Z]\w*Error",
    "sidecar.integrations.airflow": r"[A-Za-z]\w*",
    "sidecar.integrations.dagster": r"[A-Za-z]\w*",
    "sidecar.integrations.dbt": r"[A-Za-z]\w*",
}
"""Public modules, and which of the names that they define are public."""
Place = tuple[str, str]
"""A module, and a name in it."""


def public_names() -> dict[str, dict[str, Place]]:
    """Return the public names by package or module, each with the place where it is defined."""
    found: dict[str, dict[str, Place]] = {}
    for package, stub in PACKAGES.items():
        text = (ROOT / stub).read_text("utf-8")
        lines = re.findall(r"^from (sidecar\.\S+) import (\w+) as (\w+)", text, re.MULTILINE)
        found[package] = {public: (module, name) for module, name, public in lines}
    for module, pattern in MODULES.items():
        found[module] = {name: (module, name) for name in _docstrings(module) if re.fullmatch(pattern, name)}
    return found


@cache
def _docstrings(module: str) -> dict[str, str | None]:
    """The docstrings of the classes, functions and constants that a module defines, by name."""
    path = ROOT / Path(*module.split("."))
    path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
    body = ast.parse(path.read_text("utf-8")).body
    found: dict[str, str | None] = {}
    for statement, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(statement, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            if not _is_overload(statement):
                found[statement.name] = ast.get_docstring(statement)
        elif isinstance(statement, ast.Assign | ast.AnnAssign):
            targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
            text = after.value.value if isinstance(after, ast.Expr) and isinstance(after.value, ast.Constant) else None
            found |= {target.id: text for target in targets if isinstance(target, ast.Name) and isinstance(text, str)}
    return found


def _is_overload(statement: ast.stmt) -> bool:
    return any("overload" in ast.unparse(one) for one in getattr(statement, "decorator_list", []))


def undocumented() -> list[str]:
    """Return the public names that have no docstring where they are defined."""
    return [
        f"{package}.{public}"
        for package, names in public_names().items()
        for public, (module, name) in names.items()
        if not _docstrings(module).get(name)
    ]


def reference_pages() -> dict[str, str]:
    """Return the pages of the reference as Markdown, by path in the site."""
    found = {}
    for package, names in public_names().items():
        parts = [f"# {package}\n"]
        for public, (module, name) in sorted(names.items(), key=lambda item: (item[0][0].isupper(), item[0])):
            heading = f"{package}.{public}" if package in PACKAGES else public
            options = f"    options:\n      heading: {heading}\n      toc_label: {public}\n"
            if package == "sidecar.results":  # a table of the attributes is enough
                options += "      members: false\n"
            parts.append(f"::: {module}.{name}\n{options}")
        found[f"reference/{package.removeprefix('sidecar.')}.md"] = "\n".join(parts)
    return found
