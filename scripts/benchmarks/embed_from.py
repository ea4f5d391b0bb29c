"""Embedding from a sidecar beside plain copies of the files: all files of a sidecar in one pass, and one alone.

lineitem of TPC-H is cut into files, indexed on two columns by filters and page indexes (`embed`), taken out
(`extract`) and stripped; then all files get theirs back in one pass. Copies are flushed to the disk with their folder,
as embedded files are. Medians of interleaved runs, after one warm-up, in wall time and in CPU time; the target, at most
1.15 x of the copies without a witness, is of wall time, since both sides wait for the disk. A digest proves that a file
is the one that was indexed, so its pages are read a second time; witnesses decode values on top.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import pyarrow.parquet as pq

import sidecar

COLUMNS = ["l_partkey", "l_comment"]
WITNESSES = ("none", "page", "full")
Times = tuple[float, float]
"""Wall time and CPU time of all threads."""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="embed_from", description=__doc__)
    parser.add_argument("--scale", default="0.5", help="scale factor of TPC-H")
    parser.add_argument("--files", type=int, default=5)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as name:
        folder = Path(name)
        measure(folder, options.scale, options.files, options.runs)
    return 0


def measure(folder: Path, scale: str, files: int, runs: int) -> None:
    """Print times and ratios."""
    bare, puffin = prepared(folder, scale, files)
    size = sum(path.stat().st_size for path in bare)
    print(f"{len(bare)} files, {size:,} bytes; sidecar {puffin.stat().st_size:,} bytes")
    target = folder / "target"
    sources = [str(path) for path in bare]
    steps: dict[str, Callable[[], object]] = {
        "copies": lambda: copies(bare, target),
        **{f"embed all, witness {w}": partial(embed_all, puffin, target, sources, w) for w in WITNESSES},
    }
    times: dict[str, list[Times]] = {step: [] for step in steps}
    for number in range(runs + 1):
        for step, run in steps.items():
            shutil.rmtree(target, ignore_errors=True)
            os.sync()
            start = now()
            run()
            if number:
                times[step].append(since(start))
    shutil.rmtree(target)
    wall, cpu = medians(times)
    print(described(wall, cpu))
    for witness in WITNESSES:
        ratio = wall[f"embed all, witness {witness}"] / wall["copies"]
        verdict = f"target 1.15: {'met' if ratio <= 1.15 else 'MISSED'}" if witness == "none" else "no target"
        print(f"  witness {witness}: {ratio:.2f} x the copies ({verdict})")
    one = folder / "one.parquet"
    report = sidecar.embed_from(str(puffin), sources[0], str(one))
    print(f"one file alone: {report.seconds:.3f} s, {report.sidecar_bytes:,} bytes of the sidecar read")


def now() -> Times:
    """The clocks."""
    return time.perf_counter(), time.process_time()


def since(start: Times) -> Times:
    """Seconds by each clock."""
    end = now()
    return end[0] - start[0], end[1] - start[1]


def medians(times: dict[str, list[Times]]) -> tuple[dict[str, float], dict[str, float]]:
    """The median of each step, by wall time and by CPU time."""
    wall, cpu = ({step: statistics.median(t[i] for t in found) for step, found in times.items()} for i in (0, 1))
    return wall, cpu


def described(wall: dict[str, float], cpu: dict[str, float]) -> str:
    """One line."""
    return ", ".join(f"{step} {wall[step]:.3f} s (cpu {cpu[step]:.3f})" for step in wall)


def prepared(folder: Path, scale: str, files: int) -> tuple[list[Path], Path]:
    """Stripped files, and the Puffin file with what was taken out of them."""
    tool = shutil.which("tpchgen-cli", path=sysconfig.get_path("scripts")) or "tpchgen-cli"
    command = [tool, "parquet", "-s", scale, "--tables=lineitem", f"--output-dir={folder}"]
    subprocess.run(command, check=True, capture_output=True)
    table = pq.read_table(folder / "lineitem.parquet")
    rows = -(-table.num_rows // files)
    (folder / "bare").mkdir()
    indexed, bare = [], []
    for number in range(files):
        plain, full = folder / "bare" / f"{number:04}.parquet", folder / f"{number:04}.parquet"
        pq.write_table(table.slice(number * rows, rows), plain)
        sidecar.embed_file(str(plain), str(full), bloom=COLUMNS, page_index=True, even_if_dictionary=True)
        indexed.append(str(full))
        bare.append(plain)
    puffin = folder / "indexes.puffin"
    sidecar.extract_files(indexed, str(puffin))
    return bare, puffin


def embed_all(puffin: Path, target: Path, sources: Sequence[str], witness: str) -> None:
    sidecar.embed_all_from(str(puffin), str(target), sources, witness=witness)


def copies(paths: Sequence[Path], target: Path) -> None:
    target.mkdir()
    for source in paths:
        copy = target / source.name
        shutil.copyfile(source, copy)
        for path in (copy, target):
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.close(handle)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
