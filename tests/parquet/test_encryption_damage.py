"""Encrypted files that are broken, or that somebody with the key wrote nonsense into: right rows or our error.

What tampering without the key is noticed, and where, is for :mod:`test_parquet_tamper`.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import cache
from io import BytesIO
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe
import pytest

import sidecar
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, Problem, SidecarError, UnsupportedFeatureError
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.encrypted.modules import (
    MAX_ORDINALS,
    Declaration,
    FileEncryption,
    Module,
    decode_declaration,
)
from sidecar.parquet.encrypted.plain_view import DecryptedSource, unlock
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file
from sidecar.parquet.thrift import (
    BINARY,
    BOOL,
    I16,
    I32,
    I64,
    LIST,
    STRUCT,
    Items,
    Struct,
    decode_struct,
    encode_padded,
    encode_struct,
)
from sidecar.parquet.verify.file import verify_file
from sidecar.questions.value_check import ValueCheck
from sidecar.reading.scanning import scan
from sidecar.storage.source import BytesSource, CountingSource
from tests.parquet.encrypted import opened, path_of

KEY = b"k" * 16
KEYS = EncryptionKeys(None, KEY)
ROWS = pa.table({"n": [1, 2, None, 2, 5] * 8, "t": ["a", "bb", "", None, "bb"] * 8})


@cache
def small_file(algorithm: str = "AES_GCM_V1", *, plaintext_footer: bool = False) -> bytes:
    properties = pe.create_encryption_properties(KEY, encryption_algorithm=algorithm, plaintext_footer=plaintext_footer)
    with TemporaryDirectory() as folder:
        bare, full = f"{folder}/bare", f"{folder}/full"
        pq.write_table(ROWS, bare, row_group_size=20, store_schema=False, encryption_properties=properties)
        sidecar.embed(bare, into=full, bloom=["n"], page_index=True, encryption_keys=KEYS)
        return Path(full).read_bytes()


def exercise(data: bytes) -> tuple[pa.Table | None, list[Problem]]:
    """Everything that reads one file: the rows, ``None`` after an error of ours, and what ``verify`` says.

    Any other error comes out.
    """
    with suppress(SidecarError):
        view = unlock(BytesSource(data), KEYS)
        problems = verify_file(view, ValueCheck())
        with suppress(SidecarError):
            inspect_file(view)
            return scan(view, "n = 2 or n > 4 or n is null or n < 2"), problems
        return None, problems
    return None, []


def test_the_sound_files_are_sound() -> None:
    for data in (small_file(), small_file("AES_GCM_CTR_V1"), small_file(plaintext_footer=True)):
        assert exercise(data) == (ROWS, [])


@pytest.mark.parametrize("algorithm", ["AES_GCM_V1", "AES_GCM_CTR_V1"])
@pytest.mark.parametrize("plaintext_footer", [False, True])
def test_any_byte_changed_gives_the_rows_or_our_error(algorithm: str, plaintext_footer: bool) -> None:
    data = small_file(algorithm, plaintext_footer=plaintext_footer)
    rng = random.Random(7)
    failed = 0
    for at in rng.sample(range(len(data)), 40):
        found, problems = exercise(data[:at] + bytes((data[at] ^ rng.randrange(1, 256),)) + data[at + 1 :])
        assert found is None or found == ROWS or algorithm == "AES_GCM_CTR_V1"
        failed += found is None or bool(problems)
    assert failed > 20
    for length in rng.sample(range(len(data)), 10):
        assert exercise(data[:length])[0] is None
        assert exercise(data[length:])[0] is None


def sealed_again(data: bytes, change: Callable[[bytes], bytes]) -> bytes:
    """The file with another footer, by somebody who has the key."""
    view = unlock(BytesSource(data), KEYS)
    assert isinstance(view, DecryptedSource)
    encryption = view.encryption
    start = encryption.footer_offset + len(encryption.crypto_metadata)
    plain = encryption.open_module(KEY, data[start:-8], Module.FOOTER)
    footer = encryption.crypto_metadata + encryption.encrypt_module(KEY, change(plain), Module.FOOTER)
    return data[: encryption.footer_offset] + footer + len(footer).to_bytes(4, "little") + b"PARE"


def test_nonsense_in_a_footer_that_authenticates() -> None:
    data = small_file()
    padded = sealed_again(data, lambda plain: plain + bytes(100))  # as some writers do
    assert exercise(padded) == (ROWS, [])
    rng = random.Random(3)

    def change(plain: bytes) -> bytes:
        at = rng.randrange(len(plain))
        return plain[:at] + bytes((plain[at] ^ 1 << rng.randrange(8),)) + plain[at + 1 :]

    assert sum(exercise(sealed_again(data, change))[0] is None for _ in range(120)) > 20


def chunks_of(footer: Struct) -> Iterator[tuple[int, Struct]]:
    for number, group in enumerate(footer.structs(4) or ()):
        for chunk in group.structs(1) or ():
            yield number, chunk


def with_footer(change: Callable[[Struct], None]) -> bytes:
    def changed(plain: bytes) -> bytes:
        footer, _ = decode_struct(plain)
        change(footer)
        return encode_struct(footer)

    return sealed_again(small_file(), changed)


def refused(change: Callable[[Struct], None], kind: type[SidecarError], match: str) -> None:
    with pytest.raises(kind, match=match):
        unlock(BytesSource(with_footer(change)), KEYS)


def test_what_contradicts_itself_in_a_footer_is_refused() -> None:
    def ordinals(footer: Struct) -> None:
        for number, group in enumerate(footer.structs(4) or ()):
            group.fields[7] = (I16, 1 - number)

    def another_column(footer: Struct) -> None:
        own = Struct({1: (LIST, Items(BINARY, [b"t"]))})
        for _, chunk in chunks_of(footer):
            chunk.fields[8] = (STRUCT, Struct({2: (STRUCT, own)}))

    def unknown_way(footer: Struct) -> None:
        for _, chunk in chunks_of(footer):
            chunk.fields[8] = (STRUCT, Struct({3: (STRUCT, Struct())}))

    def metadata_of_a_plain_column(footer: Struct) -> None:
        for _, chunk in chunks_of(footer):
            del chunk.fields[8]
            chunk.fields[9] = (BINARY, b"anything")

    refused(ordinals, DamagedFileError, "ordinal of a row group")
    refused(another_column, DamagedFileError, "names a different column")
    refused(unknown_way, UnsupportedFeatureError, "unknown way")
    refused(metadata_of_a_plain_column, DamagedFileError, "not encrypted")


def test_more_than_ordinals_can_count_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert MAX_ORDINALS == 32_767
    monkeypatch.setattr("sidecar.parquet.encrypted.footer.MAX_ORDINALS", 1)
    with pytest.raises(UnsupportedFeatureError, match="too many row groups"):
        unlock(BytesSource(small_file()), KEYS)


def test_a_module_that_lies_where_it_cannot_costs_what_asks_for_it() -> None:
    def moved(field: int, offset: int | None, length: int | None = None) -> bytes:
        """The filter (14) or column index (6) of ``n`` in the first row group stated to be elsewhere."""

        def change(footer: Struct) -> None:
            _, chunk = next(chunks_of(footer))
            place = chunk if field < 10 else chunk.fields[3][1]
            for number, value in ((field, offset), (field + 1, length)):
                if value is not None:
                    place.fields[number] = (I64 if number == field else I32, value)

        return with_footer(change)

    first = read_footer(unlock(BytesSource(small_file()), KEYS)).row_groups[0].columns
    inside = first[1].start + 10
    for data in (
        moved(14, 1),
        moved(14, -5),
        moved(14, 2**40),
        moved(14, inside),
        moved(14, first[0].start),
        moved(14, None, 2**30),
        moved(14, None, 20),
        moved(6, 1),
        moved(6, inside),
        moved(6, 2**62),
        moved(6, None, 2**31 - 1),
        moved(6, None, 8),
    ):
        view = unlock(BytesSource(data), KEYS)
        assert verify_file(view)
        with suppress(DamagedFileError):
            assert scan(view, "n = 2").num_rows == 16


def test_filters_without_a_stated_length_are_found() -> None:
    """Older writers leave the length out."""

    def change(footer: Struct) -> None:
        for _, chunk in chunks_of(footer):
            chunk.fields[3][1].fields.pop(15, None)

    stated, unstated = (unlock(BytesSource(data), KEYS) for data in (small_file(), with_footer(change)))
    for before, after in zip(read_footer(stated).row_groups, read_footer(unstated).row_groups, strict=True):
        (_, want), (_, found) = (
            next(read_bloom_filters(view, group.columns)) for view, group in ((stated, before), (unstated, after))
        )
        assert isinstance(want, FoundFilter)
        assert isinstance(found, FoundFilter)
        assert found.trusted
        assert found == want


def test_a_module_is_opened_in_its_place_alone() -> None:
    declaration = Declaration("AES_GCM_V1", None, b"12345678", False)
    one = FileEncryption("it", declaration, b"prefix", True, b"", KEY, 0, {})
    assert one.aad(Module.FOOTER) == b"prefix12345678\0"
    assert one.aad(Module.OFFSET_INDEX, 258, 3, 9) == b"prefix12345678\x07\x02\x01\x03\0"
    assert one.aad(Module.DATA_PAGE_HEADER, 1, 2, 3) == b"prefix12345678\x04\x01\0\x02\0\x03\0"
    assert one.aad(Module.DICTIONARY_PAGE, 1, 2, 3) == b"prefix12345678\x03\x01\0\x02\0"
    others = [
        replace(one, aad_prefix=b"prefi"),
        replace(one, declaration=replace(declaration, aad_file_unique=b"12345679")),
    ]
    for module in Module:
        sealed = one.encrypt_module(KEY, b"content", module, 1, 2, 3)
        assert len(sealed) == len(b"content") + one.overhead(module)
        assert one.open_module(KEY, sealed, module, 1, 2, 3) == b"content"
        for other in others:
            with pytest.raises(DamagedFileError):
                other.open_module(KEY, sealed, module, 1, 2, 3)
        for different in Module:
            places = [(2, 2, 3), (1, 3, 3), (1, 2, 4)] + ([(1, 2, 3)] if different != module else [])
            for place in places:
                if one.aad(different, *place) != one.aad(module, 1, 2, 3):
                    with pytest.raises(DamagedFileError, match=r"encrypted .*authentication failed"):
                        one.open_module(KEY, sealed, different, *place)
        for broken in (b"", sealed[:3], sealed[:20], sealed[:-1], sealed + b"x", b"\xff" * 4 + sealed[4:]):
            with pytest.raises(DamagedFileError, match="encrypted"):
                one.open_module(KEY, broken, module, 1, 2, 3)
    with pytest.raises(UnsupportedFeatureError, match="too many"):
        one.aad(Module.DATA_PAGE, 0, 0, MAX_ORDINALS + 1)


def test_pages_alone_are_under_ctr() -> None:
    ctr = FileEncryption("it", Declaration("AES_GCM_CTR_V1", None, b"", False), b"", True, b"", KEY, 0, {})
    under_ctr = {module for module in Module if ctr.overhead(module) == 16}
    assert under_ctr == {Module.DATA_PAGE, Module.DICTIONARY_PAGE}
    assert {ctr.overhead(module) for module in Module if module not in under_ctr} == {32}
    sealed = ctr.encrypt_module(KEY, b"content", Module.DATA_PAGE, 1, 2, 3)
    assert ctr.open_module(KEY, sealed, Module.DATA_PAGE, 9, 9, 9) == b"content"


@pytest.mark.parametrize("union", [None, Struct(), Struct({3: (STRUCT, Struct())})])
def test_unknown_algorithms_are_refused(union: Struct | None) -> None:
    with pytest.raises(SidecarError, match="algorithm"):
        decode_declaration(union)


def test_declarations_are_read() -> None:
    details = Struct({1: (BINARY, b"p"), 2: (BINARY, b"u"), 3: (BOOL, True)})
    found = decode_declaration(Struct({2: (STRUCT, details)}))
    assert found == Declaration("AES_GCM_CTR_V1", b"p", b"u", True)
    assert "b'p'" not in repr(found)


def test_a_structure_is_drawn_out_to_any_length() -> None:
    value = Struct({1: (I32, 5), 3: (BINARY, b"x")})
    short = len(encode_struct(value))
    for length in (short, *range(short + 5, short + 300), short + 16_390, short + 3_000_000):
        drawn_out = encode_padded(value, length)
        found, used = decode_struct(drawn_out)
        assert (len(drawn_out), used) == (length, length)
        assert (found.integer(1), found.binary(3)) == (5, b"x")
    for length in (short - 1, short + 1, short + 4):
        with pytest.raises(DamagedFileError):
            encode_padded(value, length)


def test_a_view_reads_any_range_as_it_reads_the_whole() -> None:
    for data in (small_file(), Path(path_of("j118_enc_gcmctr_plainfooter_aadsupplied")).read_bytes()):
        view = unlock(BytesSource(data), KEYS) if data[:4] == b"PARE" else None
        view = view or opened("j118_enc_gcmctr_plainfooter_aadsupplied", BytesSource(data))
        whole = view.read(0, view.size)
        assert len(whole) == view.size == len(data)
        assert whole[:4] == whole[-4:] == b"PAR1"
        rng = random.Random(1)
        for _ in range(150):
            start = rng.randrange(len(data) + 1)
            length = rng.randrange(min(len(data) - start, rng.choice((10, 1000, 100_000))) + 1)
            assert view.read(start, length) == whole[start : start + length]
    with pytest.raises(DamagedFileError):
        view.read(view.size - 3, 4)


def test_few_bytes_are_kept_of_a_large_chunk() -> None:
    for batch in (10, 300):  # pages of 1 MB; one page of 12 MB
        out = BytesIO()
        rows = pa.table({"x": pa.array([random.Random(i).randbytes(40_000) for i in range(300)])})
        options: dict[str, Any] = {"use_dictionary": False, "compression": "none", "write_batch_size": batch}
        properties = pe.create_encryption_properties(KEY)
        pq.write_table(rows, out, write_page_index=True, encryption_properties=properties, **options)
        counted = CountingSource(BytesSource(out.getvalue()))
        view = unlock(counted, KEYS)
        assert isinstance(view, DecryptedSource)
        chunk = read_footer(view).row_groups[0].columns[0]
        pages = [view.read(chunk.start + at, 1 << 18) for at in range(0, 11_000_000, 1 << 18)]
        kept = sum(map(len, view._cache.values()))
        assert kept == view._cached
        assert kept <= 8 << 20 or len(view._cache) == 1
        assert counted.bytes_read < 1.2 * view.size  # no page twice, though each is touched often
        assert b"".join(pages) == view.read(chunk.start, len(pages) << 18)
