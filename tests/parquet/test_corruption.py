"""Any bytes at all give a value or our error, and never more than 64 MiB."""

from __future__ import annotations

import contextlib
import json
import os
import random
import resource
import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from sidecar.errors import DamagedFileError, SidecarError
from sidecar.parquet import footer
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.dictionary import read_dictionary, read_used
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file, probe_file
from sidecar.parquet.pages import walk_pages, wholly_dictionary
from sidecar.parquet.verify.file import verify_file
from sidecar.storage.source import BytesSource
from tests.memoized_pyiceberg import memoized

MOST = 64 << 20


def small_file(**options: object) -> bytes:
    table = pa.table(
        {
            "number": pa.array([1, 2, None, 2, 5] * 8, pa.int64()),
            "text": pa.array(["a", "bb", "", None, "bb"] * 8),
            "items": pa.array([[1, 2], [], None, [3, None], [2]] * 8, pa.list_(pa.int32())),
        }
    )
    out = BytesIO()
    pq.write_table(
        table,
        out,
        row_group_size=20,
        bloom_filter_options={"number": {"ndv": 8}, "text": {"ndv": 8}},
        write_page_checksum=False,
        store_schema=False,
        **options,
    )
    return out.getvalue()


SMALL = [small_file(compression="snappy"), small_file(compression="zstd", data_page_version="2.0")]


def exercise(data: bytes) -> None:
    """Everything that reads a file; only our errors may come out."""
    source = BytesSource(data)
    verify_file(source)
    try:
        footer = read_footer(source)
    except SidecarError:
        return
    with contextlib.suppress(SidecarError):
        inspect_file(source)
    with contextlib.suppress(SidecarError):
        probe_file(source, "text", "bb")
    for group in footer.row_groups:
        for chunk in group.columns:
            for call in (wholly_dictionary, walk_all, read_used):
                with contextlib.suppress(SidecarError):
                    call(source, chunk)
            with contextlib.suppress(SidecarError):
                read_dictionary(source, chunk).to_arrow(chunk.leaf).validate(full=False)


def walk_all(source: BytesSource, chunk: object) -> None:
    for _ in walk_pages(source, chunk):  # type: ignore[arg-type]
        pass


@pytest.fixture(autouse=True)
def _bounded_memory() -> Iterator[None]:
    """Resident memory over all cases of a test; what is asked for and never touched, see the test below."""
    exercise(SMALL[0])  # the kernels are compiled outside of the count
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    yield
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < MOST >> 10


def test_the_file_itself_is_sound() -> None:
    for data in SMALL:
        assert verify_file(BytesSource(data)) == []
        source = BytesSource(data)
        chunks = [chunk for group in read_footer(source).row_groups for chunk in group.columns]
        assert all(wholly_dictionary(source, chunk) for chunk in chunks)
        found = [f for _, f in read_bloom_filters(source, chunks) if f is not None]
        assert len(found) == 4
        assert all(isinstance(f, FoundFilter) and f.trusted for f in found)


@pytest.mark.parametrize("data", SMALL, ids=["v1", "v2"])
def test_every_truncation_is_named(data: bytes) -> None:
    for length in range(len(data)):
        with pytest.raises(DamagedFileError):
            read_footer(BytesSource(data[:length]))


@pytest.mark.parametrize("data", SMALL, ids=["v1", "v2"])
def test_no_length_is_believed_before_memory_is_taken(data: bytes) -> None:
    rng = random.Random(9)
    tracemalloc.start()
    try:
        for _ in range(60):
            damaged = bytearray(data)
            at = rng.randrange(4, len(data) - 5)
            damaged[at : at + 5] = b"\xfe\xff\xff\xff\x0f"  # the largest varint of 32 bits
            exercise(bytes(damaged))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < MOST


def footer_at(data: bytes) -> int:
    return len(data) - 8 - int.from_bytes(data[-8:-4], "little")


@pytest.mark.parametrize("data", SMALL, ids=["v1", "v2"])
def test_flips_in_the_footer(data: bytes) -> None:
    rng = random.Random(7)
    positions = range(footer_at(data), len(data))
    for _ in range(900):
        damaged = bytearray(data)
        damaged[rng.choice(positions)] ^= rng.randrange(1, 256)
        exercise(bytes(damaged))


@pytest.mark.parametrize("data", SMALL, ids=["v1", "v2"])
def test_flips_in_pages_and_filters(data: bytes, monkeypatch: pytest.MonkeyPatch) -> None:
    decode = memoized(footer.decode_footer, lambda source, tail: tail)  # the footers are equal
    monkeypatch.setattr(footer, "decode_footer", decode)
    rng = random.Random(8)
    for _ in range(600):
        damaged = bytearray(data)
        damaged[rng.randrange(4, footer_at(data))] ^= rng.randrange(1, 256)
        exercise(bytes(damaged))


def test_a_footer_cut_anywhere_but_with_its_trailer() -> None:
    data = SMALL[0]
    start = footer_at(data)
    for length in range(len(data) - 8 - start):
        cut = data[: start + length] + length.to_bytes(4, "little") + b"PAR1"
        with pytest.raises(DamagedFileError):
            read_footer(BytesSource(cut))


def test_no_door_takes_more_than_64_mib_whatever_the_bytes_say(tmp_path: Path) -> None:
    """Footers, headers, indexes: see the worker, which may take that much address space and no more."""
    worker = Path(__file__).with_name("damage_worker.py")
    environment = {**os.environ, "MALLOC_ARENA_MAX": "1", "OMP_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, str(worker), str(tmp_path), "150"], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    answers = json.loads(done.stdout.splitlines()[-1])
    assert answers["limited"] == 1
    for door in ("inspect", "probe", "scan", "build", "embed", "extract"):
        assert answers[f"{door}: answer"] > 20
        assert answers[f"{door}: error"] > 20
    assert answers["verify: answer"] == 150  # damage is what it answers


def test_every_byte_of_a_filter_header_changed() -> None:
    data = SMALL[0]
    source = BytesSource(data)
    chunk = read_footer(source).row_groups[0].columns[0]
    (_, found), *_ = read_bloom_filters(source, [chunk])
    assert isinstance(found, FoundFilter)
    for at in range(found.offset, found.offset + found.header_length):
        for flip in range(1, 256):
            damaged = bytearray(data)
            damaged[at] ^= flip
            (_, answer), *_ = read_bloom_filters(BytesSource(bytes(damaged)), [chunk])
            if isinstance(answer, FoundFilter):
                assert not answer.trusted or answer.filter == found.filter, (at, flip)
            else:
                assert isinstance(answer, SidecarError)
