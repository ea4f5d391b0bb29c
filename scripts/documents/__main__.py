"""Builds the site: ``python -m scripts.documents``. Everything goes into ``.work/docs``."""

from __future__ import annotations

import shutil
import sys
from typing import Any

import yaml
from mkdocs.commands.build import build
from mkdocs.config import load_config

from scripts.documents.pages import ROOT, navigation, pages, text_of
from scripts.documents.reference import reference_pages, undocumented

WORK = ROOT / ".work" / "docs"
STYLE = """[data-md-color-scheme="default"] { --md-default-fg-color--light: rgba(0, 0, 0, .62); }
[data-md-color-scheme="slate"] { --md-code-bg-color: #20232b; --md-typeset-a-color: #7aa5f0; }
.md-grid { max-width: 76rem; }
.md-typeset table:not([class]) th { min-width: 2.5rem; }
"""
"""Colours by which all text has the contrast of WCAG AA, which those of the theme miss narrowly in code; room for code
and tables."""
SETTINGS: dict[str, Any] = {
    "site_name": "sidecar",
    "docs_dir": str(WORK / "pages"),
    "site_dir": str(WORK / "site"),
    "strict": True,
    "use_directory_urls": True,
    "validation": {
        "nav": {"omitted_files": "warn", "not_found": "warn", "absolute_links": "warn"},
        "links": {"not_found": "warn", "anchors": "warn", "absolute_links": "warn", "unrecognized_links": "warn"},
    },
    "theme": {
        "name": "material",
        "font": False,  # no page asks another server for anything
        "features": ["navigation.sections", "navigation.top", "search.highlight", "content.code.copy", "toc.follow"],
        "palette": [
            {
                "media": f"(prefers-color-scheme: {scheme})",
                "scheme": name,
                "primary": "indigo",
                "accent": "indigo",
                "toggle": {"icon": icon, "name": words},
            }
            for scheme, name, icon, words in (
                ("light", "default", "material/weather-night", "Dark"),
                ("dark", "slate", "material/weather-sunny", "Light"),
            )
        ],
    },
    "extra": {"generator": False},
    "extra_css": ["style.css"],
    "plugins": [
        "search",
        {
            "mkdocstrings": {
                "handlers": {
                    "python": {
                        "paths": [str(ROOT)],
                        "options": {
                            "docstring_style": "google",
                            "filters": ["!^_"],
                            "extensions": [str(ROOT / "scripts" / "documents" / "roles.py")],
                            "heading_level": 2,
                            "line_length": 80,
                            "members_order": "source",
                            "separate_signature": True,
                            "show_bases": False,
                            "show_if_no_docstring": True,
                            "show_root_heading": True,
                            "show_signature_annotations": True,
                            "show_source": False,
                        },
                    }
                }
            }
        },
    ],
    "markdown_extensions": [
        "tables",
        {"toc": {"permalink": True, "toc_depth": 3}},
        {"pymdownx.highlight": {"use_pygments": True}},
        "pymdownx.superfences",
    ],
}


def write_pages() -> None:
    """Write the pages of the site and its configuration."""
    shutil.rmtree(WORK, ignore_errors=True)
    places, reference = pages(), reference_pages()
    for source, page in places.items():
        target = WORK / "pages" / page
        target.parent.mkdir(parents=True, exist_ok=True)
        if page.endswith(".md"):
            target.write_text(text_of(source, places), "utf-8")
        else:
            shutil.copyfile(ROOT / source, target)
    for page, text in reference.items():
        target = WORK / "pages" / page
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(text, "utf-8")
    (WORK / "pages" / "style.css").write_text(STYLE, "utf-8")
    settings = SETTINGS | {"nav": navigation(places, list(reference))}
    (WORK / "mkdocs.yml").write_text(yaml.safe_dump(settings, sort_keys=False), "utf-8")


def main() -> int:
    """Build the site; return the exit code."""
    if missing := undocumented():
        print("these public names have no docstring:", *missing, sep="\n  ", file=sys.stderr)
        return 1
    write_pages()
    build(load_config(str(WORK / "mkdocs.yml")))
    print(f"the site is in {WORK / 'site'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
