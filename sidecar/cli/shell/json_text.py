"""JSON text of results. Control characters are escapes, so that no terminal obeys what a file has in it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from sidecar.errors import is_hidden


def to_json(data: object, indent: int | None = None) -> str:
    """``data`` as JSON; values that JSON does not know become text."""
    text = json.dumps(plain(data), indent=indent, ensure_ascii=False, allow_nan=False)
    return text if text.isprintable() else "".join(map(_json_escape, text))


def _json_escape(character: str) -> str:
    """A hidden character as a JSON escape. Other characters stay, and so do the line breaks of the layout."""
    if character == "\n" or not is_hidden(character):
        return character
    return json.dumps(character)[1:-1]


def plain(value: object) -> Any:
    """``value`` as JSON knows it: times, decimals and infinite numbers as text, bytes as hexadecimal digits."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [plain(v) for v in value]
    if isinstance(value, bool | int | str) or value is None:
        return value
    if isinstance(value, float):
        return value if value - value == 0 else str(value)  # JSON has no NaN and no infinity
    if isinstance(value, bytes | bytearray | memoryview):
        return bytes(value).hex()
    if hasattr(value, "isoformat"):
        return value.isoformat()
    if hasattr(value, "item"):  # a NumPy scalar
        return plain(value.item())
    return str(value)
