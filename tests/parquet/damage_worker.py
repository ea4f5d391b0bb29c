"""Run by a test in a process of its own: every door of the Parquet room on damaged files, with little memory.

After everything was done once on the sound file, the process may take 64 MiB of address space more, touched or not.
Whatever asks for more than that fails with an error that is not ours, and so does the worker. The last line of its
output counts the doors' answers as JSON.
"""

from __future__ import annotations

import ctypes
import json
import random
import resource
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from io import BytesIO
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

import sidecar
from sidecar.cli.rows import json_rows
from sidecar.errors import SidecarError
from sidecar.parquet.footer import read_footer
from sidecar.parquet.inspect import inspect_file, probe_file
from sidecar.parquet.page_indexes.build import build_page_index
from sidecar.parquet.pages import walk_pages
from sidecar.parquet.verify.file import verify_file
from sidecar.questions.value_check import ValueCheck
from sidecar.storage.source import BytesSource

MOST = 64 << 20
LARGEST = b"\xfe\xff\xff\xff\x0f"  # the largest varint of 32 bits, as a length or, zigzag, 2^31 - 1
ROWS = 80


def small_file(**options: object) -> bytes:
    table = pa.table(
        {
            "k": pa.array(range(ROWS), pa.int64()),
            "s": [None if i % 5 == 0 else f"text {i % 9}" for i in range(ROWS)],
            "l": pa.array([[i] * (i % 3) for i in range(ROWS)], pa.list_(pa.int32())),
        }
    )
    out = BytesIO()
    pq.write_table(
        table,
        out,
        row_group_size=40,
        max_rows_per_page=10,
        write_batch_size=5,
        write_page_index=True,
        bloom_filter_options={"k": {"ndv": 40}, "s": {"ndv": 9}},
        store_schema=False,
        **options,
    )
    return out.getvalue()


def doors(data: bytes, folder: Path) -> Iterator[tuple[str, Callable[[], object]]]:
    source = BytesSource(data)

    def scan() -> None:
        rows = sidecar.scan(source, "k = 33 or s = 'text 4'")
        if "k" in rows.column_names and "s" in rows.column_names:
            list(json_rows(rows.to_batches()))

    def build() -> None:
        footer = read_footer(source)
        for group in footer.row_groups:
            for chunk in group.columns:
                build_page_index(source, footer, chunk)

    def embed() -> None:
        path, target = folder / "damaged.parquet", folder / "target.parquet"
        path.write_bytes(data)
        target.unlink(missing_ok=True)
        sidecar.embed(str(path), into=str(target), bloom=["k", "s"], page_index=True, threads=1)

    def extract() -> None:
        target = folder / "target.puffin"
        target.unlink(missing_ok=True)
        sidecar.extract([str(folder / "damaged.parquet")], str(target))

    yield "verify", lambda: verify_file(source, ValueCheck())
    yield "inspect", lambda: inspect_file(source)
    yield "probe", lambda: probe_file(source, "s", "text 4")
    yield "scan", scan
    yield "build", build
    yield "embed", embed
    yield "extract", extract


def places(data: bytes) -> list[int]:
    """Every byte of the footer, of page headers, of indexes and of the headers of filters."""
    source = BytesSource(data)
    footer = read_footer(source)
    found = [*range(footer.offset, len(data))]
    for group in footer.row_groups:
        for chunk in group.columns:
            for page in walk_pages(source, chunk):
                found += range(page.offset, page.body + 8)
            for offset, length in (
                (chunk.column_index_offset, chunk.column_index_length),
                (chunk.offset_index_offset, chunk.offset_index_length),
                (chunk.bloom_filter_offset, 20),
            ):
                found += range(offset or 0, (offset or 0) + (length or 0)) if offset else []
    return found


def main(folder: Path, cases: int) -> None:
    threading.stack_size(512 << 10)
    pa.set_memory_pool(pa.system_memory_pool())
    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    answers: Counter[str] = Counter()
    files = [
        small_file(compression="snappy"),
        small_file(compression="zstd", data_page_version="2.0", use_dictionary=False),
        small_file(compression="gzip", use_dictionary=False, column_encoding={"k": "DELTA_BINARY_PACKED"}),
    ]
    for data in files:
        for _, call in doors(data, folder):
            call()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed would be room beyond the limit
    pages = int(Path("/proc/self/statm").read_text().split()[0])
    limit = pages * resource.getpagesize() + MOST
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))
    try:
        bytearray(MOST + 1)
    except MemoryError:
        answers["limited"] += 1
    rng = random.Random(11)
    for number in range(cases):
        data = bytearray(files[number % len(files)])
        at = rng.choice(places(bytes(data)))
        if number % 2:
            data[at] ^= rng.randrange(1, 256)
        else:
            end = min(at + 5, len(data))
            data[at:end] = LARGEST[: end - at]
        for name, call in doors(bytes(data), folder):
            try:
                call()
                answers[f"{name}: answer"] += 1
            except SidecarError:
                answers[f"{name}: error"] += 1
    print(json.dumps(answers))


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
