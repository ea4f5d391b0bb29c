"""Rewriting footers while storage fails and where footers are damaged or lie: our error, and nothing is left."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from sidecar.errors import DamagedFileError, SidecarError, StorageError, UnsupportedFeatureError
from sidecar.parquet.embed import GroupIndexes, embed
from sidecar.parquet.footer import read_footer
from sidecar.parquet.thrift import BINARY, I32, STRUCT, Struct, encode_struct
from sidecar.storage.source import BytesSource, Source
from sidecar.storage.target import create_target
from tests.parquet.embed_cases import FILTER, assert_same_pages, everything_kept, nothing, rewritten, written


class FailingSource:
    """Storage that fails at the ``number``-th read."""

    def __init__(self, inner: Source, number: int) -> None:
        self.name, self.inner, self.left = inner.name, inner, number

    @property
    def size(self) -> int:
        return self.inner.size

    def read(self, offset: int, length: int) -> bytes:
        self.left -= 1
        if self.left < 0:
            raise StorageError("the network is down", file=self.name)
        return self.inner.read(offset, length)

    def close(self) -> None:
        pass


@pytest.mark.parametrize("placement", ["end", "row-group"])
def test_storage_that_fails_at_any_read_leaves_nothing(tmp_path: Path, placement: str) -> None:
    source = written(write_page_index=True)
    footer = read_footer(source)
    number = 0
    while True:
        failing = FailingSource(source, number)
        try:
            with create_target(str(tmp_path / "file")) as target:
                embed(failing, footer, target, everything_kept(footer), placement=placement)
            break
        except StorageError:
            assert list(tmp_path.iterdir()) == []
        number += 1
    assert number > 5
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_indexes_that_fail_leave_nothing(tmp_path: Path) -> None:
    def broken() -> Iterator[GroupIndexes]:
        yield GroupIndexes({0: FILTER})
        raise DamagedFileError("no more")

    source = written()
    with pytest.raises(DamagedFileError, match="no more"), create_target(str(tmp_path / "file")) as target:
        embed(source, read_footer(source), target, broken())
    assert list(tmp_path.iterdir()) == []


def test_a_chunk_outside_the_file_is_damage() -> None:
    source = written()
    footer = read_footer(source)
    chunk = (footer.metadata.structs(4) or [])[1].structs(1) or []
    meta = chunk[0].struct(3)
    assert meta is not None
    meta.fields[7] = (meta.fields[7][0], footer.offset)
    data = encode_struct(footer.metadata)
    broken = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
    with pytest.raises(DamagedFileError, match="outside the file's body"):
        rewritten(broken, nothing)


def test_index_places_that_lie_do_no_harm() -> None:
    """Offsets of filters that point into pages, at each other or past the end: the pages stay what they are."""
    source = written(write_page_index=True)
    draw = random.Random(5)
    for _ in range(200):
        footer = read_footer(source)
        for group in footer.metadata.structs(4) or ():
            for chunk in group.structs(1) or ():
                meta = chunk.struct(3)
                assert meta is not None
                offset, length = draw.randrange(-10, source.size + 50), draw.randrange(-5, 4000)
                meta.fields[14], meta.fields[15] = (6, offset), (I32, length)
        data = encode_struct(footer.metadata)
        lying = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
        for placement in ("end", "row-group"):
            result, new, _ = rewritten(lying, nothing, placement)
            assert_same_pages(lying, read_footer(lying), result, new)


def test_any_damage_of_the_footer_is_our_error_or_a_file() -> None:
    source = written(200, 2, write_page_index=True)
    whole = source.read(0, source.size)
    footer = read_footer(source)
    draw = random.Random(6)
    done = 0
    for _ in range(1500):
        data = bytearray(whole)
        data[draw.randrange(footer.offset, len(data) - 8)] = draw.randrange(256)
        broken = BytesSource(bytes(data))
        for placement in ("end", "row-group"):
            try:
                result, _, _ = rewritten(broken, nothing, placement)
            except SidecarError:
                continue
            assert result.size < 2 * len(whole)
            done += 1
    assert done > 500


def test_a_file_without_its_first_magic_is_refused() -> None:
    source = written()
    broken = BytesSource(b"XXXX" + source.read(4, source.size - 4))
    with pytest.raises(DamagedFileError, match="begins with the wrong magic"):
        rewritten(broken, nothing)


def test_chunks_of_other_files_and_encrypted_ones_are_refused() -> None:
    for where, field, found in (
        ("chunk", {1: (BINARY, b"")}, "file_path"),
        ("chunk", {8: (STRUCT, Struct({1: (STRUCT, Struct())}))}, "encrypted"),
        ("file", {8: (STRUCT, Struct({1: (STRUCT, Struct())}))}, "encrypted"),
        ("file", {9: (BINARY, b"key")}, "encrypted"),
    ):
        source = written()
        footer = read_footer(source)
        group = (footer.metadata.structs(4) or [])[0]
        place = footer.metadata if where == "file" else (group.structs(1) or [])[1]
        place.fields.update(field)  # type: ignore[arg-type]
        data = encode_struct(footer.metadata)
        changed = BytesSource(source.read(0, footer.offset) + data + len(data).to_bytes(4, "little") + b"PAR1")
        with pytest.raises(UnsupportedFeatureError, match=found):
            rewritten(changed, nothing)
