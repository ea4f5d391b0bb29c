"""Puffin files in memory."""

from __future__ import annotations

from typing import Any

from sidecar.puffin.reader import PuffinReader
from sidecar.storage.source import BytesSource

BLOB = {"type": "t", "fields": [1], "snapshot-id": 2, "sequence-number": 3, "offset": 4, "length": 0}


def open_bytes(data: bytes, **options: Any) -> PuffinReader:
    return PuffinReader(BytesSource(data, "file.stats"), **options)
