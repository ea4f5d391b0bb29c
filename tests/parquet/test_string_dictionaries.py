"""Dictionaries of strings are checked to their last byte, some values at a time."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from sidecar.errors import DamagedFileError
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.parquet import dictionary
from sidecar.parquet.dictionary import decode_dictionary

STRINGS = Leaf(0, ("s",), None, "BYTE_ARRAY", None, Annotation(), Encoding.parse("byte_array"), 0, 0)


@pytest.mark.parametrize("count", range(10))
def test_values_are_found_and_other_bytes_refused(count: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dictionary, "_SPANS", 4)
    values = [bytes([65 + number]) * (7 * number % 11) for number in range(count)]
    body = b"".join(len(value).to_bytes(4, "little") + value for value in values)
    page = decode_dictionary(np.frombuffer(body, np.uint8), count, STRINGS)
    data, starts, lengths = page.spans
    assert [data[at : at + n].tobytes() for at, n in zip(starts, lengths, strict=True)] == values
    assert page.to_arrow(STRINGS) == pa.array(values, pa.binary())
    for other in {body + b"\0", body + bytes(4), body[:-1]} - {body}:
        with pytest.raises(DamagedFileError):
            decode_dictionary(np.frombuffer(other, np.uint8), count, STRINGS)
