"""Every module of encrypted files is changed, cut, swapped and replaced: noticed, and never a reason to drop rows.

The files are parquet-java's. Modules are found here by the footer and their own lengths, not by what reads them.
The tests at the end pin what cannot be noticed; the guide to encryption lists it.
"""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import pytest

from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.embedding.file import embed_file, strip_file
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.encrypted.modules import AES_GCM_CTR_V1, LENGTH_BYTES, SIGNATURE_BYTES, Module
from sidecar.parquet.encrypted.plain_view import DecryptedSource, open_parquet
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer
from sidecar.parquet.page_index import read_column_index, read_offset_index
from sidecar.reading.file_scanning import scan_file
from sidecar.source import BytesSource

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
LEVELS_IN_CLEAR = DATA.parents[2] / "spec_vectors" / "published" / "parquet_java_encrypted_v2.parquet"
KEYS = EncryptionKeys(
    ExplicitKeys({b"kc1": b"1234567890123450", b"kc2": b"1234567890123451"}), footer_key=b"0123456789012345"
)
PREFIXED = dataclasses.replace(KEYS, aad_prefix=b"tester")
GCM = "j118_enc_gcm_encfooter"
UNIFORM = "j118_enc_gcm_uniform_dict"
CTR = "j118_enc_gcmctr_plainfooter_aadsupplied"
SIGNED = "variants/er_enc_pf_signed"
FILES = {GCM: KEYS, UNIFORM: PREFIXED, CTR: PREFIXED, SIGNED: KEYS}
every_file = pytest.mark.parametrize("name", FILES)

FILTER, COLUMN_INDEX, OFFSET_INDEX, PAGES = "filter", "column index", "offset index", "pages"
_PART_OF = {
    Module.BLOOM_FILTER_HEADER: FILTER,
    Module.BLOOM_FILTER_BITSET: FILTER,
    Module.COLUMN_INDEX: COLUMN_INDEX,
    Module.OFFSET_INDEX: OFFSET_INDEX,
}
BODIES = (Module.DATA_PAGE, Module.DICTIONARY_PAGE)

Part = tuple[int, int, str]
"""Row group, column, and what of it."""


class Sealed(NamedTuple):
    """A module of a file, its length included."""

    start: int
    end: int
    module: Module
    chunk: ColumnChunk

    @property
    def part(self) -> Part:
        return self.chunk.row_group, self.chunk.leaf.index, _PART_OF.get(self.module, PAGES)


def raw(name: str) -> bytes:
    return (DATA / f"{name}.parquet").read_bytes()


def opened(data: bytes, keys: EncryptionKeys) -> tuple[DecryptedSource, Footer]:
    view, footer = open_parquet(BytesSource(data, "it.parquet"), keys)
    assert isinstance(view, DecryptedSource)
    return view, footer


def modules(data: bytes, keys: EncryptionKeys) -> list[Sealed]:
    """All modules but that of the footer, in the order of the file."""
    view, footer = opened(data, keys)
    found: list[Sealed] = []
    for group in footer.row_groups:
        for chunk in group.columns:
            if (group.ordinal, chunk.leaf.index) not in view.encryption.columns:
                continue
            kinds = [Module.DICTIONARY_PAGE_HEADER, Module.DICTIONARY_PAGE] if chunk.dictionary_page_offset else []
            at, end = chunk.start, chunk.start + chunk.total_compressed_size
            while at < end:
                kind = kinds.pop(0) if kinds else None
                if kind is None:
                    kinds = [Module.DATA_PAGE]
                    kind = Module.DATA_PAGE_HEADER
                found.append(_module(data, at, kind, chunk))
                at = found[-1].end
            assert (at, kinds) == (end, [])
            for offset, kinds_there in (
                (chunk.bloom_filter_offset, (Module.BLOOM_FILTER_HEADER, Module.BLOOM_FILTER_BITSET)),
                (chunk.column_index_offset, (Module.COLUMN_INDEX,)),
                (chunk.offset_index_offset, (Module.OFFSET_INDEX,)),
            ):
                for kind in kinds_there if offset else ():
                    found.append(_module(data, offset or 0, kind, chunk))
                    offset = found[-1].end
    return sorted(found)


def _module(data: bytes, at: int, kind: Module, chunk: ColumnChunk) -> Sealed:
    length = int.from_bytes(data[at : at + LENGTH_BYTES], "little")
    return Sealed(at, at + LENGTH_BYTES + length, kind, chunk)


def outcomes(
    data: bytes, keys: EncryptionKeys, chunks: set[tuple[int, int]] | None = None
) -> dict[Part, str | DamagedFileError]:
    """What each part of encrypted chunks holds, as a digest, or the error that says it was tampered with."""
    view, footer = opened(data, keys)
    readers: dict[str, Callable[[ColumnChunk], object]] = {
        FILTER: lambda chunk: (f := read_bloom_filter(view, chunk)) and f.filter.to_bytes(),
        COLUMN_INDEX: lambda chunk: (
            read_column_index(view, footer, chunk)
            and view.read(chunk.column_index_offset or 0, chunk.column_index_length or 0)
        ),
        OFFSET_INDEX: lambda chunk: (
            read_offset_index(view, footer, chunk)
            and view.read(chunk.offset_index_offset or 0, chunk.offset_index_length or 0)
        ),
        PAGES: lambda chunk: view.read(chunk.start, chunk.total_compressed_size),
    }
    found: dict[Part, str | DamagedFileError] = {}
    for row_group, column in view.encryption.columns if chunks is None else chunks:
        chunk = footer.row_groups[row_group].columns[column]
        for part, read in readers.items():
            try:
                found[row_group, column, part] = hashlib.sha256(repr(read(chunk)).encode()).hexdigest()
            except DamagedFileError as error:
                found[row_group, column, part] = error
    return found


def expect_noticed(
    data: bytes,
    keys: EncryptionKeys,
    sound: dict[Part, str | DamagedFileError],
    touched: set[Part],
    what: str,
) -> None:
    """The touched parts raise with their place; others, those of one more chunk too, are as they were."""
    every = sorted({part[:2] for part in sound})
    found = outcomes(data, keys, {part[:2] for part in touched} | {every[len(what) % len(every)]})
    for part, now in found.items():
        before = sound[part]
        if part not in touched:
            assert now == before, f"{what}: {part} changed without being touched: {now}"
            continue
        assert isinstance(now, DamagedFileError), f"{what}: {part} was tampered with, and is read"
        assert (now.file, bool(now.column), now.offset is None) == ("it.parquet", True, False), f"{what}: {now!r}"


def splice(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    changed = bytearray(data)
    for at, piece in changes:
        changed[at : at + len(piece)] = piece
    assert len(changed) == len(data)
    return bytes(changed)


def tampered(data: bytes, module: Sealed) -> Iterator[tuple[str, bytes]]:
    """The file with one module changed in six ways: length, nonce, ciphertext, tag; cut short; zeros."""
    for what, at in (
        ("length", module.start),
        ("nonce", module.start + LENGTH_BYTES),
        ("ciphertext", module.start + LENGTH_BYTES + 12),
        ("tag", module.end - 1),
    ):
        yield what, splice(data, (at, bytes((data[at] ^ 1,))))
    shorter = module.end - module.start - LENGTH_BYTES - 1
    yield "truncated", splice(data, (module.start, shorter.to_bytes(LENGTH_BYTES, "little")))
    yield "zeroed", splice(data, (module.start, bytes(module.end - module.start)))


def noticeable(data: bytes, keys: EncryptionKeys) -> list[Sealed]:
    """Modules in which a change can be noticed: not page bodies under CTR."""
    view, _ = opened(data, keys)
    skipped = BODIES if view.encryption.algorithm == AES_GCM_CTR_V1 else ()
    return [module for module in modules(data, keys) if module.module not in skipped]


@every_file
def test_the_footer_of_a_file_is_the_one_that_its_plain_view_has(name: str) -> None:
    view, footer = opened(raw(name), FILES[name])
    assert read_footer(view) == footer


@every_file
def test_a_changed_module_is_noticed(name: str) -> None:
    data, keys = raw(name), FILES[name]
    sound = outcomes(data, keys)
    seen = set()
    for module in noticeable(data, keys):
        seen.add(module.module)
        ways = list(tampered(data, module))
        assert len(ways) == 6
        for what, changed in ways:
            expect_noticed(changed, keys, sound, {module.part}, f"{what} of {module}")
    assert seen >= {
        Module.DATA_PAGE_HEADER,
        Module.BLOOM_FILTER_HEADER,
        Module.BLOOM_FILTER_BITSET,
        Module.COLUMN_INDEX,
    }


@every_file
def test_neighbours_that_change_places_are_noticed(name: str) -> None:
    data, keys = raw(name), FILES[name]
    sound = outcomes(data, keys)
    swapped = 0
    for first, second in pairwise(modules(data, keys)):
        if first.end != second.start:
            continue
        pieces = data[second.start : second.end] + data[first.start : first.end]
        expect_noticed(
            splice(data, (first.start, pieces)), keys, sound, {first.part, second.part}, f"{first}, {second}"
        )
        swapped += 1
    assert swapped > 70


@every_file
def test_modules_of_other_columns_and_row_groups_are_noticed(name: str) -> None:
    """Any two modules of one type and length change places."""
    data, keys = raw(name), FILES[name]
    sound = outcomes(data, keys)
    all_modules = noticeable(data, keys)
    across = {"column": 0, "row group": 0, "page": 0}
    for module in all_modules:
        for other in all_modules:
            same = other.module is module.module and other.end - other.start == module.end - module.start
            if not same or other.start <= module.start:
                continue
            columns, groups = (
                (module.chunk.leaf.index, other.chunk.leaf.index),
                (module.chunk.row_group, other.chunk.row_group),
            )
            kind = "column" if len(set(columns)) == 2 else "row group" if len(set(groups)) == 2 else "page"
            across[kind] += 1
            changed = splice(
                data,
                (module.start, data[other.start : other.end]),
                (other.start, data[module.start : module.end]),
            )
            expect_noticed(changed, keys, sound, {module.part, other.part}, f"{module} and {other}")
    assert min(across["column"], across["row group"]) > 0
    assert sum(across.values()) > 100


def test_modules_of_another_file_with_the_same_keys_are_noticed() -> None:
    """Files of one schema, one set of keys and one algorithm: they differ in their file ids."""
    ours, theirs = raw(GCM), raw(CTR)
    sound = outcomes(ours, KEYS)
    by_place = {(m.part, m.module): m for m in modules(theirs, PREFIXED) if m.module not in BODIES}
    replaced = 0
    for module in modules(ours, KEYS):
        other = by_place.get((module.part, module.module))
        if other is None or other.end - other.start != module.end - module.start:
            continue
        changed = splice(ours, (module.start, theirs[other.start : other.end]))
        expect_noticed(changed, KEYS, sound, {module.part}, str(module))
        replaced += 1
    assert replaced > 20


@every_file
def test_footers_are_noticed(name: str) -> None:
    """Any byte behind the body, but for what says in clear which key it needs, and how a file is encrypted."""
    data, keys = raw(name), FILES[name]
    view, _ = opened(data, keys)
    start = view.encryption.footer_offset
    for at in [*range(start, len(data), 37), len(data) - 9, len(data) - 9 - SIGNATURE_BYTES]:
        try:
            changed, _ = opened(splice(data, (at, bytes((data[at] ^ 1,)))), keys)
        except SidecarError:
            continue
        # what authenticates nothing may change without consequence: the names of fields that are not known
        assert at < start + 40, f"byte {at} of the footer was changed, and is believed"
        assert read_footer(changed).raw == read_footer(view).raw


@every_file
def test_no_rows_are_lost_by_a_tampered_index(name: str, tmp_path: Path) -> None:
    """A filter or page index that does not authenticate drops nothing: the scan has its rows, and warns."""
    data, keys = raw(name), FILES[name]
    path = tmp_path / "it.parquet"
    path.write_bytes(data)
    column = "str"
    values = [v for v in scan_file(str(path), "true", [column], encryption_keys=keys)[column].to_pylist() if v]
    wanted = values[len(values) // 2].replace("'", "''")
    predicate = f"{column} = '{wanted}'"
    sound = scan_file(str(path), predicate, encryption_keys=keys)
    assert sound.num_rows
    for module in modules(data, keys):
        if module.chunk.leaf.path != column or module.part[2] == PAGES:
            continue
        for what, changed in tampered(data, module):
            path.write_bytes(changed)
            found = scan_file(str(path), predicate, encryption_keys=keys)
            assert found.equals(sound), f"{what} of {module}"


# What cannot be noticed. Each is in the list of the guide to encryption.


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
    body = _module(data, chunk.start, Module.DATA_PAGE_HEADER, chunk).end
    levels = data[body + 1 : body + 14]  # of 100 entries, the lowest bit first; a run's header is in front of them
    assert (data[body], levels[:2]) == (0x1B, b"\xb6\x6d"), "null, value, value, null, ..."

    def read(changed: bytes) -> list[str | None]:
        place = (body + 1, changed)
        rows: list[str | None] = scan_file(opened(splice(data, place), keys)[0], "true", ["s"])["s"].to_pylist()
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
    strip_file(str(source), str(bare), encryption_keys=KEYS)
    versions = []
    for name in ("older", "newer"):
        path = tmp_path / f"{name}.parquet"
        embed_file(str(bare), str(path), bloom=["str"], encryption_keys=KEYS)
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
