"""Hash and insert, hash and check: sidecar beside the parquet crate and parquet-java, one thread each.

Values are int64; half of those asked for were inserted. Each peer is a small program (kernels_peer.rs,
KernelsPeer.java) that is built when the benchmark runs and waits on a pipe, so that runs of all of them take turns on
the same machine; medians are compared. sidecar's time is that of the path a build takes: batches of an Arrow
array, hashed, then inserted or checked. Targets: 1.3 x the crate and 2.5 x parquet-java.

The second table is the update of a theta sketch beside the scalar update of the datasketches package (target: 8 x).
"""

from __future__ import annotations

import argparse
import shutil
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import datasketches
import numpy as np
import pyarrow as pa

from sidecar.filters.array_hash import hash_arrow, theta_hashes
from sidecar.filters.encoding import Encoding
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.theta import ThetaSketch

HERE = Path(__file__).resolve().parent
WORK = HERE.parents[1] / ".work" / "bench"
BATCH = 64 * 1024
INT64 = Encoding.parse("int64")
MANIFEST = """[package]
name = "kernels-peer"
version = "0.0.0"
edition = "2021"
publish = false

[dependencies]
parquet = { version = "60", default-features = false }

[profile.release]
lto = true
codegen-units = 1
"""


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="kernels", description=__doc__)
    parser.add_argument("--values", type=int, default=10_000_000)
    parser.add_argument(
        "--bytes",
        type=int,
        nargs="+",
        default=[1 << 20, 1 << 24],
        help="sizes of the filter: one that fits the cache, and 13 bits a value",
    )
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args(arguments)
    commands: dict[str, list[str]] = {}
    for name, build in PEERS.items():
        try:
            commands[name] = build()
        except (OSError, RuntimeError, subprocess.SubprocessError) as error:
            print(f"{name}: not available ({error})")
    print(f"{options.values:,} int64, one thread, medians of {options.runs} interleaved runs, million values/s\n")
    print(f"{'filter':>10} {'':8} {'sidecar':>9}" + "".join(f" {name:>14} {'ratio':>6}" for name in commands))
    for size in options.bytes:
        compare(commands, options.values, size, options.runs)
    sketches(options.values, options.runs)
    return 0


# --- the peers ----------------------------------------------------------------------------------------------


def rust_command() -> list[str]:
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise RuntimeError("there is no cargo; install Rust")
    folder = WORK / "kernels-peer"
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(MANIFEST)
    shutil.copy(HERE / "kernels_peer.rs", folder / "src" / "main.rs")
    done = subprocess.run(
        [cargo, "build", "--release", "--quiet"],
        cwd=folder,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError("cargo build failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1])
    return [str(folder / "target" / "release" / "kernels-peer")]


def java_command() -> list[str]:
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("there is no Java runtime")
    try:
        import pyspark
    except ImportError:
        raise RuntimeError("pyspark, whose wheel carries parquet-java, is not installed") from None
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        raise RuntimeError("the Java runtime has no compiler; a JDK is needed")
    jars = Path(pyspark.__file__).parent / "jars"
    return [java, "-cp", f"{jars}/*", str(HERE / "KernelsPeer.java")]


PEERS: dict[str, Callable[[], list[str]]] = {"parquet crate": rust_command, "parquet-java": java_command}


class Peer:
    """One peer as a child process that answers "insert" and "check" with seconds and a count."""

    def __init__(self, command: list[str], values: int, size: int) -> None:
        self._process = subprocess.Popen(
            [*command, str(values), str(size)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._answer()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError("a peer ended early")
        return line

    def run(self, task: str) -> tuple[float, int]:
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        seconds, found = self._answer().split()
        return float(seconds), int(found)

    def close(self) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()


class Ours:
    """sidecar under the same protocol."""

    def __init__(self, values: int, size: int) -> None:
        self._z = size // 32
        self._stored = numbers(0, values)
        self._asked = numbers(values // 2, values)
        self._filter = SplitBlockBloomFilter.empty(self._z)

    def run(self, task: str) -> tuple[float, int]:
        if task == "insert":
            self._filter = SplitBlockBloomFilter.empty(self._z)
        start = time.perf_counter()
        found = 0
        for batch in batches(self._stored if task == "insert" else self._asked):
            hashes = hash_arrow(batch, INT64)
            if task == "insert":
                self._filter.insert(hashes)
            else:
                found += int(np.count_nonzero(self._filter.check(hashes)))
        return time.perf_counter() - start, found

    def close(self) -> None:
        """Nothing is open."""


def numbers(first: int, count: int) -> Any:
    rising = np.arange(first, first + count, dtype=np.uint64)
    return pa.array((rising * np.uint64(0x9E3779B97F4A7C15)).view(np.int64))


def batches(values: Any) -> Iterator[Any]:
    for at in range(0, len(values), BATCH):
        yield values.slice(at, BATCH)


# --- the runs -----------------------------------------------------------------------------------------------


def compare(commands: dict[str, list[str]], values: int, size: int, runs: int) -> None:
    sides: dict[str, Any] = {"sidecar": Ours(values, size)}
    sides |= {name: Peer(command, values, size) for name, command in commands.items()}
    times: dict[tuple[str, str], list[float]] = {(task, n): [] for task in ("insert", "check") for n in sides}
    for run in range(runs + 2):
        for task in ("insert", "check"):
            answers = set()
            for name, side in sides.items():
                seconds, found = side.run(task)
                answers.add(found)
                if run >= 2:  # the first runs compile, on the JVM too
                    times[task, name].append(seconds)
            if len(answers) != 1:
                raise RuntimeError(f"the sides disagree on how many values are found: {answers}")
    for side in sides.values():
        side.close()
    for task in ("insert", "check"):
        speeds = {name: values / statistics.median(times[task, name]) / 1e6 for name in sides}
        ours = speeds.pop("sidecar")
        others = "".join(f" {speed:>14.1f} {ours / speed:>5.1f}x" for speed in speeds.values())
        print(f"{size / (1 << 20):>6.2f} MiB {task:8} {ours:>9.1f}{others}", flush=True)


def sketches(values: int, runs: int) -> None:
    stored = numbers(0, values)
    few = stored.slice(0, max(values // 20, 1)).to_pylist()
    ours: list[float] = []
    theirs: list[float] = []
    for run in range(runs + 1):
        start = time.perf_counter()
        sketch = ThetaSketch()
        for batch in batches(stored):
            sketch.update(theta_hashes(batch, "long"))
        middle = time.perf_counter()
        other = datasketches.update_theta_sketch(12)
        for value in few:
            other.update(value)
        end = time.perf_counter()
        if run:
            ours.append(values / (middle - start) / 1e6)
            theirs.append(len(few) / (end - middle) / 1e6)
    mine, other_speed = statistics.median(ours), statistics.median(theirs)
    print(f"\n{'theta':>10} {'':8} {'sidecar':>9} {'datasketches':>14} {'ratio':>6}")
    print(f"{'k = 4096':>10} {'update':8} {mine:>9.1f} {other_speed:>14.1f} {mine / other_speed:>5.1f}x")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
