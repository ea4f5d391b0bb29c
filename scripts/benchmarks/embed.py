"""Embedding into one file beside what it cannot avoid: a copy of the file, and decoding the indexed columns.

The file is lineitem of TPC-H. Three cases: filters on two columns that must be decoded (no dictionary helps
there), filters and page indexes in a file of those columns alone, and page indexes for all columns. The copy is
flushed to the disk, as an embedded file is; decoding is pyarrow's, row group by row group in as many threads as
embedding has, one for each core. The second case is measured again of the file encrypted (AES_GCM_V1, one key of 128
bits), decoded by pyarrow with the key. Medians of interleaved runs in one process, after one warm-up. Target: at most
1.4 x, of plain files. Then the peak memory of embedding, in a process of its own, into the file and into one four
times as long.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import embed_from
import embed_orc
import pyarrow as pa
import pyarrow.parquet as pq
import pyarrow.parquet.encryption as pe

import sidecar

COLUMNS = ["l_extendedprice", "l_comment"]
MEMORY = """import re, sidecar, sys
sidecar.embed_file(sys.argv[1], sys.argv[2], bloom=sys.argv[3].split(","), page_index=True)
print(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])"""
KEY = bytes(range(16))
THREADS = min(os.cpu_count() or 1, 4)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="embed", description=__doc__)
    parser.add_argument("--scale", default="0.5", help="scale factor of TPC-H")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as name:
        folder = Path(name)
        plain = lineitem(folder, options.scale)
        narrow = folder / "narrow.parquet"
        pq.write_table(pq.read_table(plain, columns=COLUMNS), narrow, use_dictionary=False, row_group_size=1 << 17)
        sealed = folder / "encrypted.parquet"
        pq.write_table(
            pq.read_table(narrow),
            sealed,
            use_dictionary=False,
            row_group_size=1 << 17,
            encryption_properties=pe.create_encryption_properties(KEY),
        )
        every = [field.name for field in pq.read_schema(plain)]
        print(f"lineitem: {plain.stat().st_size:,} bytes, {pq.read_metadata(plain).num_rows:,} rows")
        compare("filters on two columns", plain, COLUMNS, False, options.runs, COLUMNS)
        compare("filters and page indexes of two columns", narrow, COLUMNS, True, options.runs, COLUMNS)
        compare("the same, encrypted", sealed, COLUMNS, True, options.runs, COLUMNS, KEY)
        compare("page indexes of all columns", plain, [], True, options.runs, every)
        memory(folder, plain)
    print("from a sidecar, as scripts/bench embed_from measures it:")
    embed_from.main(["--scale", options.scale, "--runs", str(options.runs)])
    print("into ORC, as scripts/bench embed_orc measures it:")
    return embed_orc.main(["--scale", options.scale, "--runs", str(options.runs)])


def lineitem(folder: Path, scale: str) -> Path:
    """The table as Arrow C++ writes it, with plain strings, without filters and page indexes."""
    tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
    command = [tool, "parquet", "-s", scale, "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    plain = folder / "plain.parquet"
    options = {"row_group_size": 1 << 17, "use_dictionary": ["l_returnflag", "l_linestatus", "l_shipmode"]}
    table = pq.read_table(folder / "lineitem.parquet")
    kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in table.schema.types]
    pq.write_table(table.cast(pa.schema(list(zip(table.column_names, kinds, strict=True)))), plain, **options)
    return plain


def compare(
    name: str,
    path: Path,
    bloom: list[str],
    page_index: bool,
    runs: int,
    decoded: list[str],
    key: bytes | None = None,
) -> None:
    target = path.with_name("target.parquet")
    keys = None if key is None else sidecar.EncryptionKeys(footer_key=key)
    steps: dict[str, Callable[[], object]] = {
        "copy": lambda: copy(path, target),
        "decode": lambda: decode(path, decoded, key),
        "embed": lambda: sidecar.embed_file(
            str(path),
            str(target),
            bloom=bloom,
            page_index=page_index,
            threads=THREADS,
            encryption_keys=keys,
        ),
    }
    times: dict[str, list[embed_from.Times]] = {step: [] for step in steps}
    for number in range(runs + 1):
        for step, run in steps.items():
            target.unlink(missing_ok=True)
            start = embed_from.now()
            run()
            if number:
                times[step].append(embed_from.since(start))
    target.unlink()
    wall, cpu = embed_from.medians(times)
    ratio, of_cpu = (clock["embed"] / (clock["copy"] + clock["decode"]) for clock in (wall, cpu))
    print(f"{name}: {embed_from.described(wall, cpu)}")
    verdict = "no target" if key is not None else f"target 1.4: {'met' if ratio <= 1.4 else 'MISSED'}"
    print(f"  {ratio:.2f} x copy + decode ({verdict}); {of_cpu:.2f} x in CPU time")


def copy(path: Path, target: Path) -> None:
    shutil.copyfile(path, target)
    with target.open("rb") as file:
        os.fsync(file.fileno())


def decode(path: Path, columns: list[str], key: bytes | None = None) -> None:
    def opened() -> pq.ParquetFile:
        properties = None if key is None else pe.create_decryption_properties(key)
        return pq.ParquetFile(path, pre_buffer=False, decryption_properties=properties)

    with opened() as first_look:
        groups = first_look.num_row_groups

    def some(first: int) -> None:
        mine = range(first, groups, THREADS)
        with opened() as file:
            for _ in file.iter_batches(1 << 16, row_groups=mine, columns=columns, use_threads=False):
                pass

    with ThreadPoolExecutor(THREADS) as pool:
        list(pool.map(some, range(THREADS)))


def memory(folder: Path, plain: Path) -> None:
    table = pq.read_table(plain)
    large = folder / "large.parquet"
    with pq.ParquetWriter(large, table.schema, use_dictionary=False) as writer:
        for _ in range(4):
            writer.write_table(table, row_group_size=1 << 17)
    for path in (plain, large):
        target = folder / f"{path.stem}-target.parquet"
        command = [sys.executable, "-c", MEMORY, str(path), str(target), ",".join(COLUMNS)]
        peak = int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
        print(f"peak memory: {peak / 1024:.0f} MiB for a file of {path.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
