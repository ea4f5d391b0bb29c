"""Filters of an ORC file beside what they save: embedding, reading and building them against copies and scans.

The file is lineitem of TPC-H as ORC by pyarrow, zstd, four columns, without filters. In CPU time of one thread, as
medians of interleaved runs after one warm-up:

- embedding filters on two columns, beside a copy of the file and decoding those columns (target: at most 1.4 x);
- reading every filter of a column, beside a scan of the column by pyarrow (target: at least 5 x faster);
- building every filter of a column, beside that scan (target: at most 2 x).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
from pyarrow import orc

import sidecar
from sidecar.embedding.orc_filters import OrcFilterMaker, OrcRules
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.source import LocalSource

COLUMNS = ["l_orderkey", "l_partkey", "l_extendedprice", "l_comment"]
EMBEDDED = ["l_partkey", "l_comment"]


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="embed_orc", description=__doc__)
    parser.add_argument("--scale", default="1", help="scale factor of TPC-H")
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as name:
        plain, target = lineitem(Path(name), options.scale), Path(name) / "target.orc"
        tail = read_tail(LocalSource(str(plain)))
        print(
            f"lineitem: {plain.stat().st_size:,} bytes, {tail.num_rows:,} rows, {len(tail.stripes)} stripes, "
            f"{tail.num_row_groups} row groups"
        )
        embedding(plain, target, options.runs)
        for column in COLUMNS:
            target.unlink(missing_ok=True)
            sidecar.embed_file(str(plain), str(target), bloom=[column])
            one_column(plain, target, column, options.runs)
    return 0


def lineitem(folder: Path, scale: str) -> Path:
    tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
    command = [tool, "parquet", "-s", scale, "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    plain = folder / "plain.orc"
    with (
        pq.ParquetFile(folder / "lineitem.parquet") as file,
        plain.open("wb") as out,
        orc.ORCWriter(out, compression="zstd", dictionary_key_size_threshold=0.5) as writer,
    ):
        for batch in file.iter_batches(1 << 17, columns=COLUMNS):
            kinds = [pa.string() if pa.types.is_string_view(kind) else kind for kind in batch.schema.types]
            schema = pa.schema(list(zip(batch.schema.names, kinds, strict=True)))
            writer.write(pa.Table.from_batches([batch]).cast(schema))
    return plain


def embedding(plain: Path, target: Path, runs: int) -> None:
    def embed() -> None:
        target.unlink(missing_ok=True)
        sidecar.embed_file(str(plain), str(target), bloom=EMBEDDED, threads=1)

    def copy() -> None:
        target.unlink(missing_ok=True)
        shutil.copyfile(plain, target)

    times = measured({"copy": copy, "decode": lambda: scan(plain, EMBEDDED), "embed": embed}, runs)
    ratio = times["embed"] / (times["copy"] + times["decode"])
    print(f"filters on two columns: {told(times)}")
    print(f"  {ratio:.2f} x copy + decode (target 1.4): {'met' if ratio <= 1.4 else 'MISSED'}")


def one_column(plain: Path, target: Path, column: str, runs: int) -> None:
    bare, source = LocalSource(str(plain)), LocalSource(str(target))
    bare_tail, tail = read_tail(bare), read_tail(source)
    times = measured(
        {
            "scan": lambda: scan(plain, [column]),
            "read": lambda: read(source, tail, column),
            "build": lambda: build(bare, bare_tail, column),
        },
        runs,
    )
    faster, slower = times["scan"] / times["read"], times["build"] / times["scan"]
    print(f"{column}: {told(times)}")
    print(f"  reading is {faster:.1f} x faster (target 5): {'met' if faster >= 5 else 'MISSED'}")
    print(f"  building is {slower:.2f} x a scan (target 2): {'met' if slower <= 2 else 'MISSED'}")


def scan(path: Path, columns: list[str]) -> None:
    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        file.read_stripe(stripe, columns)


def read(source: LocalSource, tail: OrcTail, column: str) -> None:
    found = tail.column(column)
    assert found is not None
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        filters = read_indexes(source, tail, stripe, footer, [found.id])[found.id].filters
        assert filters is not None
        assert all(one.trusted for one in filters)


def build(source: LocalSource, tail: OrcTail, column: str) -> None:
    found = tail.column(column)
    assert found is not None
    maker = OrcFilterMaker(source, tail, OrcRules((found,)))
    for stripe in tail.stripes:
        assert maker.make(stripe.ordinal).new


def measured(steps: dict[str, Callable[[], None]], runs: int) -> dict[str, float]:
    times: dict[str, list[float]] = {step: [] for step in steps}
    for number in range(runs + 1):
        for step, run in steps.items():
            start = time.process_time()
            run()
            if number:
                times[step].append(time.process_time() - start)
    return {step: statistics.median(found) for step, found in times.items()}


def told(times: dict[str, float]) -> str:
    return ", ".join(f"{step} {seconds:.3f} s" for step, seconds in times.items())


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
