"""Fixtures for scans of plain files."""

from __future__ import annotations

from typing import Any

import pytest

from sidecar.parquet.encrypted import plain_view
from sidecar.reading import file_scanning
from tests.memoized_pyiceberg import memoized


@pytest.fixture
def each_footer_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decode equal footers of a test once, for tests that scan one file, or damage beside its footer, many times."""

    def footer_key(source: Any, tail: Any) -> Any:
        return source.name, source.size, tail

    for module, name, key in (
        (plain_view, "decode_footer", footer_key),
        (file_scanning, "read_shape", id),
        (file_scanning, "file_columns", lambda shape, file: (id(shape), file)),
    ):
        monkeypatch.setattr(module, name, memoized(getattr(module, name), key))
