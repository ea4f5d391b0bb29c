"""Small programs as peers: they wait on a pipe, and answer each task with its seconds, of CPU too, and a count."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from scripts.benchmarks.harness.data import WORK
from scripts.benchmarks.harness.timing import Taken

HERE = Path(__file__).resolve().parent
RUST_MANIFEST = """[package]
name = "{name}"
version = "0.0.0"
edition = "2021"
publish = false

[dependencies]
parquet = {{ version = "60", default-features = false }}

[profile.release]
lto = true
codegen-units = 1
"""


class PipePeer:
    """A peer in a process of its own. It says when it is ready, and ends when its input does."""

    def __init__(self, command: Sequence[str]) -> None:
        """Start it. Raises ``RuntimeError`` if it ends before it is ready."""
        self._process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.count = 0
        """The count that it answered last."""
        self._answer()

    def run(self, task: str) -> Taken:
        """Have it do a task. Raises ``RuntimeError`` if it ends."""
        assert self._process.stdin is not None
        self._process.stdin.write(task + "\n")
        self._process.stdin.flush()
        wall, cpu, count = self._answer().split()
        self.count = int(count)
        return Taken(float(wall), float(cpu))

    def close(self) -> None:
        """End it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.wait()
        self._process.stdout.close()

    def _answer(self) -> str:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise RuntimeError(f"a peer ended early: {self._process.args!r}")
        return line


def rust_command(name: str) -> list[str]:
    """Build ``<name>.rs`` of this folder beside the parquet crate; return the command. Raises ``RuntimeError``."""
    cargo = shutil.which("cargo") or shutil.which("cargo", path=str(Path.home() / ".cargo" / "bin"))
    if cargo is None:
        raise RuntimeError("there is no cargo; install Rust")
    folder = WORK / name
    (folder / "src").mkdir(parents=True, exist_ok=True)
    (folder / "Cargo.toml").write_text(RUST_MANIFEST.format(name=name.replace("_", "-")))
    shutil.copy(HERE / f"{name}.rs", folder / "src" / "main.rs")
    build = [cargo, "build", "--release", "--quiet"]
    done = subprocess.run(build, cwd=folder, stdin=subprocess.DEVNULL, capture_output=True, text=True)
    if done.returncode:
        raise RuntimeError("cargo build failed: " + (done.stderr.strip().splitlines() or ["no message"])[-1])
    return [str(folder / "target" / "release" / name.replace("_", "-"))]


def java_command(name: str) -> list[str]:
    """Return the command that runs ``<name>.java`` of this folder with the jars of Spark. Raises ``RuntimeError``."""
    java = shutil.which("java")
    if java is None:
        raise RuntimeError("there is no Java runtime")
    try:
        import pyspark
    except ImportError:
        raise RuntimeError("pyspark, whose wheel has the jars, is not installed") from None
    modules = subprocess.run([java, "--list-modules"], capture_output=True, text=True, check=True).stdout
    if "jdk.compiler" not in modules:
        raise RuntimeError("the Java runtime has no compiler; a JDK is needed")
    return [java, "-cp", f"{Path(pyspark.__file__).parent / 'jars'}/*", str(HERE / f"{name}.java")]
