"""Elements of a page. All text goes through here, so that no name of a table or column becomes markup."""

from __future__ import annotations

import re
from collections.abc import Collection
from xml.etree.ElementTree import Element, tostring

PageContent = Element | str

_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069\ud800-\udfff\ufffe\uffff]"
)
"""Characters that XML does not have, and those that change the direction of text."""


def safe(text: str) -> str:
    """Return a text without control characters."""
    return _UNSAFE.sub("\ufffd", text)


def element(tag: str, *content: PageContent, **attributes: object) -> Element:
    """Return an element. ``_`` at the end of an attribute's name is left out, and other ``_`` become ``-``."""
    named = {name.rstrip("_").replace("_", "-"): safe(str(value)) for name, value in attributes.items()}
    made = Element(tag, named)
    for part in content:
        if isinstance(part, Element):
            made.append(part)
        elif len(made):
            made[-1].tail = (made[-1].tail or "") + safe(part)
        else:
            made.text = (made.text or "") + safe(part)
    return made


def table_of(headings: list[str], rows: list[list[PageContent]], numbers: Collection[int] = ()) -> Element:
    """Return a table. Columns in ``numbers`` are aligned to the right."""

    def cell(tag: str, at: int, content: PageContent) -> Element:
        return element(tag, content, class_="number") if at in numbers else element(tag, content)

    head = element("tr", *(cell("th", at, text) for at, text in enumerate(headings)))
    body = [element("tr", *(cell("td", at, content) for at, content in enumerate(row))) for row in rows]
    return element("div", element("table", element("thead", head), element("tbody", *body)), class_="wide")


def as_html(root: Element) -> str:
    """Return the text of an element."""
    return tostring(root, encoding="unicode", method="html")
