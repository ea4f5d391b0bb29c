"""Changes of encrypted files that cannot be noticed; the guide to encryption lists them."""

from __future__ import annotations

import dataclasses
import functools
import itertools
from pathlib import Path

import pytest

from sidecar.crypto.keys import EncryptionKeys
from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.errors import DamagedFileError
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, Module
from sidecar.parquet.footer import read_footer
from sidecar.reading.scanning import scan
from sidecar.storage.source import BytesSource
from tests.parquet.tamper_cases import (
    CTR,
    DATA,
    FILTER,
    GCM,
    KEYS,
    PREFIXED,
    SIGNED,
    UNIFORM,
    module_at,
    modules,
    opened,
    outcomes,
    raw,
    splice,
)

LEVELS_IN_CLEAR = DATA.parents[2] / "spec_vectors" / "published" / "parquet_java_encrypted_v2.parquet"


def test_changed_page_bodies_under_ctr_are_not_noticed() -> None:
    """A checksum in the page's header notices what is changed by chance; whoever knows CRC-32 changes it in step."""
    data = raw(CTR)
    sound = outcomes(data, PREFIXED)
    body = next(m for m in modules(data, PREFIXED) if m.module is Module.DATA_PAGE)
    bits = f"{0x104C11DB7:033b}"[:40].ljust(40, "0")  # a multiple of the polynomial leaves the CRC as it is
    pattern = bytes(int(bits[at : at + 8][::-1], 2) for at in range(0, 40, 8))
    at = body.end - 40
    by_chance = outcomes(splice(data, (at, bytes((data[at] ^ 1,)))), PREFIXED)[body.part]
    assert isinstance(by_chance, DamagedFileError)
    xored = bytes(old ^ new for old, new in zip(data[at : at + 5], pattern, strict=True))
    on_purpose = outcomes(splice(data, (at, xored)), PREFIXED)[body.part]
    assert isinstance(on_purpose, str)
    assert on_purpose != sound[body.part]


def test_changed_levels_of_data_pages_v2_by_parquet_java_are_not_noticed() -> None:
    """They are in clear in front of the encrypted values. As above, the checksum notices what is changed by chance."""
    data, keys = LEVELS_IN_CLEAR.read_bytes(), EncryptionKeys(None, footer_key=b"0123456789012345")
    _, footer = opened(data, keys)
    leaf = footer.leaf("s")
    assert leaf is not None
    chunk = footer.row_groups[0].columns[leaf.index]
    body = module_at(data, chunk.start, Module.DATA_PAGE_HEADER, chunk).end
    levels = data[body + 1 : body + 14]  # of 100 entries, the lowest bit first; a run's header is in front of them
    assert (data[body], levels[:2]) == (0x1B, b"\xb6\x6d"), "null, value, value, null, ..."

    def read(changed: bytes) -> list[str | None]:
        place = (body + 1, changed)
        rows: list[str | None] = scan(opened(splice(data, place), keys)[0], "true", ["s"])["s"].to_pylist()
        return rows

    before = read(levels)
    with pytest.raises(DamagedFileError, match="checksum"):
        read(b"\xb5" + levels[1:])
    after = read(_with_as_many_values(levels))
    assert after != before
    assert [v for v in after if v] == [v for v in before if v], "values are where they were, nulls are not"
    values = body + 14 + LENGTH_BYTES + 12  # behind the length and the nonce
    with pytest.raises(DamagedFileError):
        opened(splice(data, (values, bytes((data[values] ^ 1,)))), keys)[0].read(chunk.start, 400)


def _with_as_many_values(levels: bytes) -> bytes:
    """Other levels with as many ones and the same CRC-32, which a multiple of its polynomial leaves as it is."""
    number = int.from_bytes(levels, "little")
    for factor, shift in itertools.product(range(3, 64), range(60)):
        multiple = functools.reduce(int.__xor__, (0x104C11DB7 << i for i in range(6) if factor >> i & 1))
        changed = number ^ int(f"{multiple:b}"[::-1], 2) << shift
        if changed.bit_count() == number.bit_count() and changed < 1 << 100:
            return changed.to_bytes(len(levels), "little")
    raise AssertionError("no such levels")


def test_another_file_in_the_place_is_noticed_by_its_prefix_alone() -> None:
    other = dataclasses.replace(PREFIXED, aad_prefix=b"employees.part1")
    with pytest.raises(DamagedFileError):
        opened(raw(UNIFORM), other)  # stores "tester"
    unchecked = dataclasses.replace(PREFIXED, aad_prefix=None)
    opened(raw(UNIFORM), unchecked)  # nothing was expected: whatever file lies there is read


def test_an_older_filter_of_the_same_file_is_not_noticed(tmp_path: Path) -> None:
    """Embedding keeps the file's id, which data pages are bound to; so what it replaces still authenticates."""
    source, bare = tmp_path / "source.parquet", tmp_path / "bare.parquet"
    source.write_bytes(raw(GCM))
    strip(str(source), str(bare), encryption_keys=KEYS)
    versions = []
    for name in ("older", "newer"):
        path = tmp_path / f"{name}.parquet"
        embed(str(bare), into=str(path), bloom=["str"], encryption_keys=KEYS)
        versions.append(path.read_bytes())
    older, newer = versions
    found = [(m, n) for m, n in zip(modules(older, KEYS), modules(newer, KEYS), strict=True) if m.part[2] == FILTER]
    assert found
    for before, now in found:
        assert before[:3] == now[:3]
        assert older[before.start : before.end] != newer[now.start : now.end], "nonces must be fresh"
        newer = splice(newer, (now.start, older[before.start : before.end]))
    assert not any(isinstance(outcome, DamagedFileError) for outcome in outcomes(newer, KEYS).values())


def test_a_plaintext_footer_without_keys_is_not_checked() -> None:
    data = raw(SIGNED)
    _, footer = opened(data, KEYS)
    at = data.index(footer.created_by.encode() if footer.created_by else b"", footer.offset)
    changed = splice(data, (at, bytes((data[at] ^ 1,))))
    assert read_footer(BytesSource(changed)).created_by != footer.created_by
    with pytest.raises(DamagedFileError, match="signature"):
        opened(changed, KEYS)
