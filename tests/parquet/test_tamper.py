"""Every module of encrypted files is changed, cut, swapped and replaced: noticed, and never a reason to drop rows.

What cannot be noticed is in ``test_tamper_unnoticed``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import pairwise
from pathlib import Path

import pytest

from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet.encrypted import plain_view
from sidecar.parquet.encrypted.modules import AES_GCM_CTR_V1, LENGTH_BYTES, SIGNATURE_BYTES, Module
from sidecar.parquet.footer import read_footer
from sidecar.reading.scanning import scan
from tests.memoized_pyiceberg import memoized
from tests.parquet.tamper_cases import (
    CTR,
    GCM,
    KEYS,
    PAGES,
    PREFIXED,
    SIGNED,
    UNIFORM,
    Part,
    Sealed,
    modules,
    opened,
    outcomes,
    raw,
    splice,
)

FILES = {GCM: KEYS, UNIFORM: PREFIXED, CTR: PREFIXED, SIGNED: KEYS}
every_file = pytest.mark.parametrize("name", FILES)
BODIES = (Module.DATA_PAGE, Module.DICTIONARY_PAGE)


@pytest.fixture(autouse=True)
def _each_footer_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decrypt and decode equal footers once: nearly all changes are before them."""
    keys: dict[str, Callable[..., object]] = {
        "unlock_footer": lambda name, tail, keys: (name, tail, id(keys)),
        "encode_padded": lambda metadata, length: (id(metadata), length),
        "footer_of": lambda source, offset, raw, metadata: (source.name, offset, raw),
    }
    for name, key in keys.items():
        monkeypatch.setattr(plain_view, name, memoized(getattr(plain_view, name), key))


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
    values = [v for v in scan(str(path), "true", [column], encryption_keys=keys)[column].to_pylist() if v]
    wanted = values[len(values) // 2].replace("'", "''")
    predicate = f"{column} = '{wanted}'"
    sound = scan(str(path), predicate, encryption_keys=keys)
    assert sound.num_rows
    for module in modules(data, keys):
        if module.chunk.leaf.path != column or module.part[2] == PAGES:
            continue
        for what, changed in tampered(data, module):
            path.write_bytes(changed)
            found = scan(str(path), predicate, encryption_keys=keys)
            assert found.equals(sound), f"{what} of {module}"
