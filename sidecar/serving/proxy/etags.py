"""Entity tags of load-table answers that a proxy has changed.

Our tag holds the upstream's tag and a digest of what our part of the answer depends on besides the table. When a client
sends it back, the upstream gets its own tag, and answers whether the table is the same. A tag that was made under other
settings, or by another version, is not sent on: the client then gets the whole answer.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import re

from sidecar.run import package_version
from sidecar.serving.settings import ServeSettings

_TAG = re.compile(rb'(?:W/)?"([\x21\x23-\x7e\x80-\xff]*)"')
_OURS = re.compile(rb"sidecar\.([0-9a-f]{16})\.([A-Za-z0-9_-]*)")


class EntityTags:
    """Makes tags, and finds the upstream's tags in them."""

    def __init__(self, settings: ServeSettings) -> None:
        decided_by = [package_version(), *settings.tables, "", *settings.storage]
        self._digest = hashlib.sha256(json.dumps(decided_by).encode()).hexdigest()[:16].encode()

    def ours(self, upstream: bytes) -> bytes:
        """Return our tag for an answer that has the upstream's tag ``upstream``. It is a weak one."""
        return b'W/"sidecar.' + self._digest + b"." + base64.urlsafe_b64encode(upstream).rstrip(b"=") + b'"'

    def upstreams(self, if_none_match: bytes) -> list[bytes]:
        """Return the upstream's tags in the tags of a header ``If-None-Match``. Tags that are not ours are left out."""
        found = []
        for tag in _TAG.findall(if_none_match):
            ours = _OURS.fullmatch(tag)
            if ours is None or ours[1] != self._digest:
                continue
            try:
                upstream = base64.urlsafe_b64decode(ours[2] + b"=" * (-len(ours[2]) % 4))
            except (binascii.Error, ValueError):
                continue
            if _TAG.fullmatch(upstream):  # a tag that a client made up does not go into a header
                found.append(upstream)
        return found
