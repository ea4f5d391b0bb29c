"""The bounds of the first page of dictionary indices, which are found without ranking the dictionary."""

from __future__ import annotations

import struct
from collections.abc import Sequence

import numpy as np
import pytest

from sidecar.errors import DamagedFileError
from sidecar.filters.encoding import Encoding
from sidecar.filters.leaf import Annotation, Leaf
from sidecar.parquet import value_bounds
from sidecar.parquet.bounds import Ordering
from sidecar.parquet.dictionary import decode_dictionary
from sidecar.parquet.pages import RLE_DICTIONARY
from sidecar.parquet.value_bounds import PageFolder, PageValues

NAN, NEGATIVE_NAN = struct.pack("<I", 0x7FC00000), struct.pack("<I", 0xFFC00000)


def floats(*values: float) -> list[bytes]:
    return [struct.pack("<f", value) for value in values]


def folder_of(physical: str, ordering: Ordering, entries: Sequence[bytes]) -> PageFolder:
    length = len(entries[0]) if physical == "FIXED_LEN_BYTE_ARRAY" else None
    leaf = Leaf(0, ("v",), None, physical, length, Annotation(), Encoding.parse("int32"), 0, 0)
    prefixed = [struct.pack("<I", len(entry)) + entry for entry in entries]
    data = b"".join(prefixed if physical == "BYTE_ARRAY" else entries)
    folder = PageFolder(leaf, ordering)
    folder.set_dictionary(decode_dictionary(np.frombuffer(data, np.uint8), len(entries), leaf))
    return folder


def add(folder: PageFolder, indices: Sequence[int]) -> PageValues:
    """Add a page with a run of one value for each index."""
    runs = b"".join(bytes([1 << 1, index]) for index in indices)
    return folder.add(RLE_DICTIONARY, len(indices), np.frombuffer(b"\x08" + runs, np.uint8))


CASES = {
    "integers": ("INT32", Ordering("signed", 4), [struct.pack("<i", n) for n in (7, -90, 5, 80, -3, 6)]),
    "unsigned": ("INT32", Ordering("unsigned", 4), [struct.pack("<I", n) for n in (7, 1 << 31, 5, 0, 1 << 30, 6)]),
    "floats": ("FLOAT", Ordering("float", 4), [*floats(2.5, -8, -0.0, 9, 0.0), NAN]),
    "only zeros and NaN": ("FLOAT", Ordering("float", 4), [*floats(0.0, -8, -0.0, 9), NAN, NEGATIVE_NAN]),
    "texts": ("BYTE_ARRAY", Ordering("bytes", None), [b"m", b"a", b"k", b"z", b"", b"kk"]),
    "decimals of any length": (
        *("BYTE_ARRAY", Ordering("decimal", None)),
        [n.to_bytes(3, "big", signed=True) for n in (7, -90, 5, 80, -3, 6)],
    ),
    "decimals of one length": (
        *("FIXED_LEN_BYTE_ARRAY", Ordering("decimal", 3)),
        [n.to_bytes(3, "big", signed=True) for n in (7, -90, 5, 80, -3, 6)],
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_page_has_the_same_bounds_whether_it_is_the_first_or_not(name: str) -> None:
    """Entries 1 and 3 are outside of what the page has."""
    physical, ordering, entries = CASES[name]
    for indices in ([0, 2, 4, 2, 5], [4, 2], [5, 5, 5], [0]):
        later = folder_of(physical, ordering, entries)
        add(later, [1, 3])
        expected, found = add(later, indices), add(folder_of(physical, ordering, entries), indices)
        assert found == expected
        assert {found.lower, found.upper} <= {entries[index] for index in indices}


def test_bounds_are_the_least_and_the_greatest_value() -> None:
    texts = folder_of(*CASES["texts"])
    page = add(texts, [0, 2, 5])
    assert (page.lower, page.upper, page.data_bytes) == (b"k", b"m", 4)
    numbers = add(folder_of(*CASES["integers"]), [0, 2, 4])
    assert (numbers.lower, numbers.upper) == (struct.pack("<i", -3), struct.pack("<i", 7))
    nothing_else = add(folder_of(*CASES["only zeros and NaN"]), [4, 4, 5])
    assert (nothing_else.lower, nothing_else.upper, nothing_else.nan_count) == (NEGATIVE_NAN, NAN, 3)
    zeros = add(folder_of(*CASES["only zeros and NaN"]), [0, 2, 4, 4])
    assert (zeros.lower, zeros.upper, zeros.nan_count) == (*floats(-0.0, 0.0), 2)


def test_an_index_beyond_the_dictionary_is_damage() -> None:
    with pytest.raises(DamagedFileError, match="index is too large"):
        add(folder_of(*CASES["texts"]), [0, 6])


def test_a_dictionary_is_ranked_once_and_not_for_one_page(monkeypatch: pytest.MonkeyPatch) -> None:
    ranked, ranks = [], value_bounds._Binaries.ranks
    monkeypatch.setattr(value_bounds._Binaries, "ranks", lambda keys: ranked.append(keys) or ranks(keys))
    texts = folder_of(*CASES["texts"])
    add(texts, [0, 2])
    assert ranked == []
    add(texts, [1, 2])
    add(texts, [3])
    assert len(ranked) == 1


@pytest.mark.parametrize("count", [1, 5, 64, 70_000])
@pytest.mark.parametrize("runs", [b"", b"\x80\x80\x10"], ids=["without runs", "with a run"])
def test_indices_without_bits_all_refer_to_the_first_entry(count: int, runs: bytes) -> None:
    """Java writers store the indices of a dictionary of one entry in no bits."""
    folder, data = folder_of(*CASES["texts"]), np.frombuffer(b"\x00" + runs, np.uint8)
    for _ in ("first", "later"):
        page = folder.add(RLE_DICTIONARY, count, data)
        assert (page.lower, page.upper, page.data_bytes) == (b"m", b"m", count)
