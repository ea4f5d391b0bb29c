"""The pages of the site: which file of the repository becomes which, and links that lead there.

Nothing is written anew: a page is a file of the repository, and a link to another such file leads to its page.
"""

from __future__ import annotations

import json
import os
import re
from pathlib import Path, PurePosixPath
from typing import Any

ROOT = Path(__file__).resolve().parents[2]
GUIDE = ROOT / "sidecar" / "guide"
FIXED = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "ARCHITECTURE.md": "developers/architecture.md",
    "spec_vectors/SPEC.md": "developers/spec.md",
    "CONTRIBUTING.md": "developers/contributing.md",
    ".github/SECURITY.md": "developers/security.md",
}
"""By path in the repository, the page."""
FOLDERS = {
    "sidecar/guide": "guide",
    ".github/design": "developers",
    ".github/pictures": "pictures",
    "scripts/bench-results": "benchmarks",
}
"""Folders whose Markdown, notebooks and pictures are all in the site."""
GROUPS = {
    "Tables": ["tables", "plan-and-scan", "find", "statistics", "advise", "catalogs"],
    "Every day": ["upkeep", "schedule"],
    "Engines": ["serve", "spark"],
    "Files": ["files", "embedding", "orc", "conversions", "encryption"],
    "To know": ["trust", "limits"],
    "Reference": ["python", "commands"],
}
"""Guides by part of the navigation. Those that are in none come at the end of the first."""

_LINK = re.compile(r"(\]\()([^)#\s]*)(#[^)\s]*)?(\))")
_FENCE = re.compile(r"^(```\w+) [^\n]+$", re.MULTILINE)


class BrokenLink(Exception):
    """A page links to what is not in the site."""


def pages() -> dict[str, str]:
    """Return the page of each file that is in the site, by its path in the repository."""
    found = {source: page for source, page in FIXED.items() if (ROOT / source).exists()}
    for folder, target in FOLDERS.items():
        for path in sorted((ROOT / folder).rglob("*")):
            if path.suffix in (".md", ".ipynb", ".svg"):
                name = path.relative_to(ROOT / folder).as_posix().replace(".ipynb", ".md")
                found[path.relative_to(ROOT).as_posix()] = f"{target}/{name}"
    return found


def text_of(source: str, places: dict[str, str]) -> str:
    """Return a Markdown file or a notebook as its page has it. Raises :class:`BrokenLink`."""
    text = (ROOT / source).read_text("utf-8")
    if source.endswith(".ipynb"):
        text = _of_notebook(json.loads(text))
    here = PurePosixPath(places[source]).parent

    def moved(link: re.Match[str]) -> str:
        before, target, anchor, after = link[1], link[2], link[3] or "", link[4]
        if not target or ":" in target:
            return link[0]
        path = os.path.normpath(PurePosixPath(source).parent / target)
        if path not in places and (ROOT / path).is_dir():
            path = next((known for known in places if known.startswith(f"{path}/") and known.endswith(".md")), path)
        if path not in places:
            raise BrokenLink(f"{source} links to {target}, which is not in the site")
        return f"{before}{os.path.relpath(places[path], here)}{anchor}{after}"

    outside = re.split(r"(^```.*?^```$)", text, flags=re.MULTILINE | re.DOTALL)
    parts = [part if part.startswith("```") else _LINK.sub(moved, part) for part in outside]
    return _FENCE.sub(r"\1", "".join(parts))  # the second word says where an example runs


def _of_notebook(content: dict[str, Any]) -> str:
    """The cells of a notebook as Markdown, each with what it printed."""
    parts = []
    for cell in content["cells"]:
        source = "".join(cell["source"])
        parts.append(source if cell["cell_type"] == "markdown" else f"```python\n{source}\n```")
        for output in cell.get("outputs", []):
            printed = output.get("text") or output.get("data", {}).get("text/plain", "")
            parts.append(f"```text\n{''.join(printed)}\n```")
    return "\n\n".join(parts) + "\n"


def navigation(places: dict[str, str], reference: list[str]) -> list[dict[str, object]]:
    """Return the navigation: guides in groups, the reference, benchmarks, and pages for developers."""
    guides = [path.stem for path in sorted(GUIDE.iterdir()) if path.suffix in (".md", ".ipynb")]
    placed = {name for names in GROUPS.values() for name in names}
    groups: list[dict[str, object]] = []
    for title, names in GROUPS.items():
        more = [name for name in guides if name not in placed] if not groups else []
        groups.append({title: [f"guide/{name}.md" for name in [*names, *more] if name in guides]})
    last = groups[-1]
    last["Reference"] = [*list(last["Reference"]), *reference]  # type: ignore[call-overload]
    inside = [page for page in places.values() if page.endswith(".md")]
    benchmarks = sorted((page for page in inside if page.startswith("benchmarks/")), key=lambda page: page.count("/"))
    developers = [page for page in inside if page.startswith("developers/")]
    return [
        {"sidecar": "index.md"},
        *groups,
        {"Benchmarks": [{PurePosixPath(page).parent.name: page} for page in benchmarks]},
        {"Developers": [*developers, *(page for page in inside if page == "changelog.md")]},
    ]
