"""Reads the address of a table out of the path of a request.

The raw path is read, before anything is decoded: a namespace may have ``/`` in its name, and levels of a namespace are
joined by a separator that servers choose. Paths are passed on as they came, never put together again.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from urllib.parse import unquote, unquote_to_bytes

from sidecar.serving.answers import Identifier
from sidecar.serving.protocol.errors import RefusedRequestError

SEPARATOR = "\x1f"
"""Joins the levels of a namespace, unless a server says otherwise."""
_PART_ENDS = re.compile(rb"[/\\?#]")
_PATH = re.compile(
    r"/v1(?:/(?P<prefix>[^?]+?))?/namespaces/(?P<namespace>[^/?]+)/tables/(?P<table>[^/?]+)(?:/(?P<rest>[^?]*))?"
)
_TABLES = re.compile(r"/v1(?:/[^?]+?)?/namespaces/[^/?]+/(?:tables|register)")


@dataclass(frozen=True)
class TablePath:
    """The address of a table, and the rest of the path, which names the request."""

    table_path: str
    """The raw path of the table itself, from ``/v1`` on."""
    prefix: str
    """The part of the path between ``/v1`` and ``/namespaces``; empty if there is none."""
    identifier: Identifier
    rest: str
    """The rest of the path after the table's name, such as ``plan`` or ``plan/abc``; empty if the table itself is asked
    for."""

    @property
    def place(self) -> Identifier:
        """The prefix and the identifier, the key under which facts of a table are kept: prefixes are different
        catalogs."""
        return (self.prefix, *self.identifier)


def table_path(raw_path: str) -> TablePath | None:
    """Return the parts of a path that names a table; ``None`` for any other path.

    Raises :class:`RefusedRequestError` for a namespace with an empty level.
    """
    found = _PATH.fullmatch(raw_path)
    if found is None:
        return None
    rest = found["rest"]
    whole = raw_path if rest is None else raw_path[: -len(rest) - 1]
    levels = unquote(found["namespace"]).split(SEPARATOR)
    if not all(levels):
        raise RefusedRequestError("a level of the namespace is empty")
    return TablePath(whole, found["prefix"] or "", (*levels, unquote(found["table"])), rest or "")


def makes_tables(raw_path: str) -> bool:
    """Whether a POST to a path creates or registers a table, and is answered as the load of a table is."""
    return _TABLES.fullmatch(raw_path) is not None


def leads_elsewhere(path: bytes) -> bool:
    """Whether a path has a part that is ``.`` or ``..`` after it was decoded up to two times."""
    for _ in range(3):
        if any(part.partition(b";")[0] in (b".", b"..") for part in _PART_ENDS.split(path)):
            return True
        path = unquote_to_bytes(path)
    return False
