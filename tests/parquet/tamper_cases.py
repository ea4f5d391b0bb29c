"""Encrypted files by parquet-java, their modules, and what reading says of changed ones.

Modules are found here by the footer and their own lengths, not by what reads them.
"""

from __future__ import annotations

import dataclasses
import hashlib
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import DamagedFileError
from sidecar.parquet.bloom import read_bloom_filter
from sidecar.parquet.encrypted.modules import LENGTH_BYTES, Module
from sidecar.parquet.encrypted.plain_view import DecryptedSource, open_parquet
from sidecar.parquet.footer import ColumnChunk, Footer
from sidecar.storage.source import BytesSource
from tests.parquet.single_indexes import read_column_index, read_offset_index

DATA = Path(__file__).resolve().parents[1] / "data" / "parquet"
KEYS = EncryptionKeys(
    ExplicitKeys({b"kc1": b"1234567890123450", b"kc2": b"1234567890123451"}), footer_key=b"0123456789012345"
)
PREFIXED = dataclasses.replace(KEYS, aad_prefix=b"tester")
GCM = "j118_enc_gcm_encfooter"
UNIFORM = "j118_enc_gcm_uniform_dict"
CTR = "j118_enc_gcmctr_plainfooter_aadsupplied"
SIGNED = "variants/er_enc_pf_signed"

FILTER, COLUMN_INDEX, OFFSET_INDEX, PAGES = "filter", "column index", "offset index", "pages"
_PART_OF = {
    Module.BLOOM_FILTER_HEADER: FILTER,
    Module.BLOOM_FILTER_BITSET: FILTER,
    Module.COLUMN_INDEX: COLUMN_INDEX,
    Module.OFFSET_INDEX: OFFSET_INDEX,
}

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
                found.append(module_at(data, at, kind, chunk))
                at = found[-1].end
            assert (at, kinds) == (end, [])
            for offset, kinds_there in (
                (chunk.bloom_filter_offset, (Module.BLOOM_FILTER_HEADER, Module.BLOOM_FILTER_BITSET)),
                (chunk.column_index_offset, (Module.COLUMN_INDEX,)),
                (chunk.offset_index_offset, (Module.OFFSET_INDEX,)),
            ):
                for kind in kinds_there if offset else ():
                    found.append(module_at(data, offset or 0, kind, chunk))
                    offset = found[-1].end
    return sorted(found)


def module_at(data: bytes, at: int, kind: Module, chunk: ColumnChunk) -> Sealed:
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


def splice(data: bytes, *changes: tuple[int, bytes]) -> bytes:
    changed = bytearray(data)
    for at, piece in changes:
        changed[at : at + len(piece)] = piece
    assert len(changed) == len(data)
    return bytes(changed)
