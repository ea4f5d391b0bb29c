"""A refresh of a table on S3 after one appended file: what goes through this process of a sidecar that is copied.

    scripts/bench s3_copy [--files 40] [--blocks 32768]

The sidecar has a filter of BLOCKS blocks of 32 bytes for each file. The server is moto's, as in the benchmark `s3`;
it counts the bytes of the bodies of requests and answers. The refresh runs with both clients of pyiceberg: fsspec's has
S3 copy the earlier segments, Arrow's cannot. Needs the extra "bench".
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import s3fs
from memory import rate, rows
from s3 import ARROW, BUCKET, FSSPEC, USER, Control, open_catalog, server

import sidecar


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="s3_copy", description=__doc__)
    parser.add_argument("--files", type=int, default=40)
    parser.add_argument("--blocks", type=int, default=32_768)
    options = parser.parse_args(arguments)
    with server() as control:
        files = s3fs.S3FileSystem(key=USER, secret=USER, client_kwargs={"endpoint_url": control.endpoint})
        files.call_s3("create_bucket", Bucket=BUCKET)
        for name, io in (("fsspec", FSSPEC), ("Arrow", ARROW)):
            with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as folder:
                measure(Path(folder), control, name, io, options)
    return 0


def measure(folder: Path, control: Control, name: str, io: str, options: argparse.Namespace) -> None:
    """Print what one refresh asks for."""
    catalog = open_catalog(folder, control, io)
    catalog.create_namespace("db")
    table = catalog.create_table(f"db.{name}", rows(0).schema)
    for number in range(options.files):
        table.append(rows(number))
    built = sidecar.build(table, ["k"], kinds=["bloom"], fpp=rate(options.blocks), engine="local")
    table.append(rows(options.files))
    control.ask("log")
    control.ask("bytes")
    start = time.perf_counter()
    report = sidecar.refresh(table, engine="local")
    taken = time.perf_counter() - start
    carried, asked = control.ask("bytes"), Counter(line.split()[0] for line in control.ask("log"))
    assert (report.action, report.files_indexed) == ("written", 1), report
    print(f"{name}: a sidecar of {built.file_size:,} bytes becomes one of {report.file_size:,} in {taken:.1f} s")
    print(f"  {carried['sent']:,} bytes down, {carried['received']:,} bytes up; requests: {dict(asked)}")
    for number in (0, options.files):
        assert sidecar.plan(table, f"k = {number * 20}").files_kept == 1
    assert sidecar.verify_table(table).problems == []


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
