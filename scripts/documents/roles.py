"""Shows docstrings of the package as Markdown: roles such as ``:class:`` go, and parameters become a list.

The attributes of a result become a table in the docstring of its class.
"""

from __future__ import annotations

import re
from typing import Any

import griffe

from scripts.documents.reference import public_names

_ROLE = re.compile(r":(?:class|func|meth|mod|data|attr|exc):`~?([^`]+)`")
_PARAMETERS = re.compile(r"(?<!\n)\n(?=``[\w*]+``(?:, ``[\w*]+``)*: )|\n\n(?=``[\w*]+``(?:, ``[\w*]+``)*: )")
"""Where the line of a parameter begins."""
_RESULTS = {f"{module}.{name}" for module, name in public_names()["sidecar.results"].values()}


class MarkdownDocstrings(griffe.Extension):
    """Changes each docstring when it was read."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        """Change the docstring of an object."""
        if obj.docstring is not None:
            text = _ROLE.sub(r"`\1`", obj.docstring.value)
            obj.docstring.value = _PARAMETERS.sub("\n\n- ", text)

    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        """Put the attributes of a result into its docstring."""
        if cls.path in _RESULTS and cls.docstring is not None:
            lines = [
                f"    {name} ({attribute.annotation}): {' '.join(attribute.docstring.value.split())}"
                for name, attribute in cls.members.items()
                if isinstance(attribute, griffe.Attribute) and attribute.is_public and attribute.docstring is not None
            ]
            if lines:
                cls.docstring.value += "\n\nAttributes:\n" + "\n".join(lines)
