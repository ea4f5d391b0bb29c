"""Embedding into Parquet files beside what it cannot avoid: copies of the files, and decoding the indexed columns.

The file is lineitem of TPC-H. The copy is flushed to the disk, as an embedded file is; decoding is pyarrow's, row group
by row group in as many threads as embedding has. Then all files of a sidecar get their indexes back in one pass, beside
plain copies: where a digest proves that a file is the one that was indexed, a page of each chunk is decoded, else all
values. Memory is that of a process of its own. What lookups read is counted in a file of ten row groups, with indexes
and without.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from unittest.mock import patch

import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import Target, at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.inputs.lineitem import one_file, rows_of
from sidecar.reading.file_scanning import open_scan

COLUMNS = ["l_extendedprice", "l_comment"]
FROM_SIDECAR = ["l_partkey", "l_comment"]
FILES = 5
MEMORY = """import sidecar, sys
from scripts.benchmarks.harness.processes import own_memory
sidecar.embed(sys.argv[1], into=sys.argv[2], bloom=sys.argv[3].split(","), page_index=True)
print("VmHWM", own_memory()[1])"""
KEY = bytes(range(16))
ROW_GROUP = 1 << 17
THREADS = min(os.cpu_count() or 1, 4)
FLUSH = os.sync
"""What comes before each run, so that none waits for the disk because of the one before."""


def measure(bench: Bench) -> None:
    """Measure single files, files of a sidecar, and memory."""
    scale = bench.size(0.5, quick=0.05, large=5.0)
    plain, (narrow, sealed) = one_file(scale), narrow_files(scale)
    every = pq.read_schema(plain).names
    target = at_most(1.4)
    single(bench, "filters on two columns", plain, COLUMNS, False, COLUMNS, target)
    single(bench, "filters and page indexes of two columns", narrow, COLUMNS, True, COLUMNS, target)
    single(bench, "the same, encrypted", sealed, COLUMNS, True, COLUMNS, None, KEY)
    single(bench, "page indexes of all columns", plain, [], True, every, target)
    from_sidecar(bench, scale)
    for copies in (1, 4):
        memory(bench, scale, copies)
    reads_of_lookups(bench)


def narrow_files(scale: float) -> tuple[Path, Path]:
    """Return a file of two columns without dictionaries, and the same encrypted with one key of 128 bits."""

    def make(folder: Path) -> None:
        rows, options = rows_of(scale, COLUMNS), {"use_dictionary": False, "row_group_size": ROW_GROUP}
        pq.write_table(rows, folder / "narrow.parquet", **options)
        keys = pe.create_encryption_properties(KEY)
        pq.write_table(rows, folder / "encrypted.parquet", encryption_properties=keys, **options)

    folder = data.made(f"lineitem-{scale:g}-narrow", make)
    return folder / "narrow.parquet", folder / "encrypted.parquet"


def single(
    bench: Bench,
    what: str,
    path: Path,
    bloom: Sequence[str],
    page_index: bool,
    decoded: Sequence[str],
    target: Target | None,
    key: bytes | None = None,
) -> None:
    keys = None if key is None else sidecar.EncryptionKeys(footer_key=key)
    with data.scratch() as folder:
        out = folder / "out.parquet"

        def clear() -> None:
            out.unlink(missing_ok=True)
            FLUSH()

        def embed() -> None:
            sidecar.embed(
                str(path), into=str(out), bloom=bloom, page_index=page_index, threads=THREADS, encryption_keys=keys
            )

        sides = {
            "sidecar embeds": Side(embed, before=clear),
            "copy": Side(lambda: copy(path, out), before=clear),
            "decode": Side(lambda: decode(path, decoded, key)),
        }
        times = bench.compare(f"embed {what}", sides)
    for clock in ("wall", "cpu"):
        bench.ratio(f"embed {what}", times, "sidecar embeds", ["copy", "decode"], target, clock=clock)


def copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)
    flush(target)


def flush(path: Path) -> None:
    handle = os.open(path, os.O_RDONLY)
    os.fsync(handle)
    os.close(handle)


def decode(path: Path, columns: Sequence[str], key: bytes | None = None) -> None:
    def opened() -> pq.ParquetFile:
        properties = None if key is None else pe.create_decryption_properties(key)
        return pq.ParquetFile(path, pre_buffer=False, decryption_properties=properties)

    with opened() as first_look:
        groups = first_look.num_row_groups

    def some(first: int) -> None:
        mine = range(first, groups, THREADS)
        with opened() as file:
            for _ in file.iter_batches(1 << 16, row_groups=mine, columns=list(columns), use_threads=False):
                pass

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(THREADS)))


def from_sidecar(bench: Bench, scale: float) -> None:
    plain = plain_parts(scale)
    sources = [str(path) for path in plain]
    with data.scratch() as folder:
        bench.say("making the files of a sidecar")
        puffins, target, size = extracted(folder, plain), folder / "target", sum(path.stat().st_size for path in plain)

        def clear() -> None:
            shutil.rmtree(target, ignore_errors=True)
            FLUSH()

        sides = {
            f"sidecar embeds all, {proof}": Side(
                partial(sidecar.embed, sources, into=str(target), from_=str(puffin)), before=clear
            )
            for proof, puffin in puffins.items()
        }
        sides["copies"] = Side(lambda: copies(plain, target), before=clear)
        times = bench.compare(f"embed {len(plain)} files, {size / 1e6:,.0f} MB, from a sidecar", sides)
    for proof in puffins:
        for clock in ("wall", "cpu"):
            name = f"sidecar embeds all, {proof}"
            target = at_most(1.5) if (proof, clock) == ("proven", "wall") else None
            bench.ratio(f"embed all files from a sidecar, {proof}", times, name, "copies", target, clock=clock)


def plain_parts(scale: float) -> list[Path]:
    def make(folder: Path) -> None:
        rows = rows_of(scale)
        step = -(-rows.num_rows // FILES)
        for number in range(FILES):
            pq.write_table(rows.slice(number * step, step), folder / f"{number:04}.parquet")

    return sorted(data.made(f"lineitem-{scale:g}-parts", make).glob("*.parquet"))


def extracted(folder: Path, plain: Sequence[Path]) -> dict[str, Path]:
    """Return Puffin files with filters and page indexes of two columns: with digests, and as of remote files."""
    indexed = []
    for path in plain:
        full = folder / path.name
        sidecar.embed(str(path), into=str(full), bloom=FROM_SIDECAR, page_index=True)
        indexed.append(str(full))
    puffins = {proof: folder / f"{proof}.puffin" for proof in ("proven", "not proven")}
    sidecar.extract(indexed, str(puffins["proven"]))
    with patch("sidecar.conversion.matching.identity.is_local", return_value=False):
        sidecar.extract(indexed, str(puffins["not proven"]))
    return puffins


def copies(paths: Sequence[Path], target: Path) -> None:
    target.mkdir()
    for source in paths:
        copy(source, target / source.name)
        flush(target)


def memory(bench: Bench, scale: float, copies_of_rows: int) -> None:
    def make(folder: Path) -> None:
        rows = pq.read_table(one_file(scale))
        with pq.ParquetWriter(folder / "large.parquet", rows.schema, use_dictionary=False) as writer:
            for _ in range(copies_of_rows):
                writer.write_table(rows, row_group_size=ROW_GROUP)

    path = data.made(f"lineitem-{scale:g}-times-{copies_of_rows}", make) / "large.parquet"
    with data.scratch() as folder:
        command = [sys.executable, "-c", MEMORY, str(path), str(folder / "out.parquet"), ",".join(COLUMNS)]
        said = subprocess.run(command, cwd=data.ROOT, check=True, capture_output=True, text=True).stdout
    found = re.search(r"VmHWM (\d+)", said)
    assert found is not None
    size = path.stat().st_size / 1e6
    bench.row(
        f"memory of embedding into {copies_of_rows} times the rows", int(found[1]) / 1e6, "MB", note=f"{size:,.0f} MB"
    )


def reads_of_lookups(bench: Bench) -> None:
    """Count row groups and bytes that lookups read: of a comment, and of a key by which the file is sorted."""
    rows = rows_of(bench.size(0.1, quick=0.01))
    with data.scratch() as folder:
        plain, indexed = folder / "plain.parquet", folder / "indexed.parquet"
        pq.write_table(rows, plain, row_group_size=-(-rows.num_rows // 10))
        sidecar.embed(str(plain), into=str(indexed), bloom=["l_comment"], page_index=True)
        middle = rows.slice(rows.num_rows // 2, 1).to_pylist()[0]
        for what, predicate in (
            ("a comment", f"l_comment = '{middle['l_comment']}'"),
            ("a sorted key", f"l_orderkey = {middle['l_orderkey']}"),
        ):
            found = {}
            for path, file in ((plain, "as written"), (indexed, "with indexes")):
                with open_scan(str(path), predicate) as scan:
                    found[file] = scan.to_table().num_rows
                note = f"{scan.report.row_groups_read} of {scan.report.row_groups} row groups, "
                note += f"{scan.report.bytes_read / scan.report.file_bytes:.1%} of the file"
                bench.row(f"a lookup of {what}, file {file}", scan.report.bytes_read / 1e6, "MB", note=note)
            if len(set(found.values())) != 1:
                raise RuntimeError(f"the files disagree on {predicate}: {found}")
