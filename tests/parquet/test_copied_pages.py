"""Checksums of pages are checked while a file is copied through this process."""

from __future__ import annotations

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import WrongChecksumError
from sidecar.parquet import pages
from sidecar.parquet.footer import read_footer
from sidecar.parquet.identity import pages_digest
from sidecar.parquet.page_indexes import copied_pages
from sidecar.parquet.page_indexes.copied_pages import CheckedPages
from sidecar.parquet.pages import walk_pages
from sidecar.storage.local import LocalSource
from sidecar.storage.ranges import digest_ranges
from sidecar.storage.source import BytesSource
from tests.parquet.embed_cases import nothing, rewritten

DATA = Path(__file__).parents[1] / "data" / "parquet"


def stored(checksums: bool = True, version: str = "1.0") -> bytes:
    file = io.BytesIO()
    table = pa.table(
        {"k": np.random.default_rng(5).integers(0, 2**60, 3_000), "s": [f"s{n % 9}" for n in range(3_000)]}
    )
    options = {"write_page_checksum": checksums, "data_page_version": version, "data_page_size": 1_000}
    pq.write_table(table, file, row_group_size=1_700, use_dictionary=["s"], write_batch_size=64, **options)
    return file.getvalue()


def copy(data: bytes, step: int) -> int:
    """Read a file front to back through the check; the bytes read."""
    source = BytesSource(data, "copied.parquet")
    checked = CheckedPages(source, read_footer(source))
    return sum(len(checked.read(at, min(step, len(data) - at))) for at in range(0, len(data), step))


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("step", [7, 1_013, 1 << 20])
def test_a_flipped_bit_in_any_page_is_found_whatever_the_blocks(version: str, step: int) -> None:
    data = stored(version=version)
    assert copy(data, step) == len(data)
    source = BytesSource(data)
    pages = [page for group in read_footer(source).row_groups for c in group.columns for page in walk_pages(source, c)]
    assert len(pages) > 20
    for page in pages[:: 1 if step > 7 else 12]:
        at = page.body + page.compressed_size // 2
        with pytest.raises(WrongChecksumError) as caught:
            copy(data[:at] + bytes([data[at] ^ 4]) + data[at + 1 :], step)
        assert (caught.value.file, caught.value.offset) == ("copied.parquet", page.offset)


def test_a_changed_page_is_not_taken_for_one_of_another_file() -> None:
    """Its digest would go into a sidecar that fits no file, or say that the file was written anew."""
    data = stored()
    footer = read_footer(BytesSource(data))
    chunks = [(c.start, c.total_compressed_size) for group in footer.row_groups for c in group.columns]
    assert pages_digest(BytesSource(data), footer, check=True) == digest_ranges(BytesSource(data), chunks)
    page = next(iter(walk_pages(BytesSource(data), footer.row_groups[1].columns[0])))
    changed = data[: page.body] + bytes([data[page.body] ^ 1]) + data[page.body + 1 :]
    with pytest.raises(WrongChecksumError):
        pages_digest(BytesSource(changed), footer, check=True)


def test_pages_without_checksums_and_headers_that_cannot_be_decoded_are_copied() -> None:
    data = bytearray(stored(checksums=False))
    data[200] ^= 4
    assert copy(bytes(data), 1_000) == len(data)
    data[4:40] = bytes(36)
    assert copy(bytes(data), 1_000) == len(data)


def test_pages_with_more_values_than_are_read_are_copied(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored()
    monkeypatch.setattr(pages, "MAX_VALUES", 8)
    assert copy(data, 1_000) == len(data)


def footer_of(chunks: list[Any]) -> Any:
    return SimpleNamespace(row_groups=[SimpleNamespace(columns=chunks)])


def test_a_chunk_of_no_bytes_at_the_place_of_another_hides_no_page() -> None:
    data = stored()
    source = BytesSource(data)
    first = read_footer(source).row_groups[0].columns[0]
    footer = footer_of(
        [SimpleNamespace(start=first.start, total_compressed_size=0, leaf=first.leaf, was_decrypted=False), first]
    )
    page = next(walk_pages(source, first))
    damaged = data[: page.body] + bytes([data[page.body] ^ 1]) + data[page.body + 1 :]
    with pytest.raises(WrongChecksumError):
        CheckedPages(BytesSource(damaged), footer).read(0, len(data))


def decoded(data: bytes, footer: Any, step: int, monkeypatch: pytest.MonkeyPatch) -> int:
    """The bytes that are tried as page headers while ``data`` is read."""
    tried: list[int] = []

    def count(text: bytes, offset: int) -> pages.PageHeader:
        tried.append(len(text))
        return pages.decode_page_header(text, offset)

    monkeypatch.setattr(copied_pages, "decode_page_header", count)
    checked = CheckedPages(BytesSource(data), footer)
    for at in range(0, len(data), step):
        checked.read(at, min(step, len(data) - at))
    return sum(tried)


def test_little_more_than_headers_is_decoded(monkeypatch: pytest.MonkeyPatch) -> None:
    data = stored()
    footer = read_footer(BytesSource(data))
    count = sum(1 for g in footer.row_groups for c in g.columns for _ in walk_pages(BytesSource(data), c))
    assert decoded(data, footer, 1 << 20, monkeypatch) <= 256 * count


def test_chunks_in_one_place_do_not_have_its_bytes_decoded_again_and_again(monkeypatch: pytest.MonkeyPatch) -> None:
    data = b"PAR1" + b"\x15\x02" * 10_000  # fields without an end
    chunks = [
        SimpleNamespace(
            start=at, total_compressed_size=len(data) - at, leaf=SimpleNamespace(path="c"), was_decrypted=False
        )
        for at in range(4, 404, 2)
    ]
    assert decoded(data, footer_of(chunks), 1 << 20, monkeypatch) <= 2 * len(data)


def test_a_file_whose_page_has_a_wrong_checksum_is_not_rewritten() -> None:
    source = LocalSource(str(DATA / "apache_datapage_v1-corrupt-checksum.parquet"))
    with pytest.raises(WrongChecksumError, match="column a"):
        rewritten(source, nothing)
