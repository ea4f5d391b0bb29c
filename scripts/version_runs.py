"""``scripts/versions``: environments with the lowest and the newest dependencies, and the tests that run in them.

    scripts/versions lowest newest                  both, with the Python that runs this
    scripts/versions --python 3.13 newest           with another Python, by version or path
    scripts/versions spark-4.0 spark-4.3            pyspark of that version; Iceberg's own reads where it has a runtime
    scripts/versions --package dist/X.whl lowest    a wheel in place of the checkout

Each environment is made once in ``--folder`` and used again. The last lines are a table for the guide. It needs
nothing but Python, and uv, which it installs if there is none. The exit code is 1 if a test fails or none passes.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import venv
import xml.etree.ElementTree as ElementTree
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
SHARE = (
    "tests/dependencies",
    "tests/kernels/test_table.py",
    "tests/filters",
    "tests/questions",
    "tests/puffin",
    "tests/crypto",
    "tests/bundle",
    "tests/parquet/test_embed.py",
    "tests/parquet/test_thrift.py",
    "tests/orc/test_bloom.py",
    "tests/iceberg/test_manifests.py",
    "tests/iceberg/test_registering.py",
    "tests/iceberg/test_repair.py",
    "tests/iceberg/test_replace.py",
    "tests/indexing/test_sketches.py",
    "tests/planning/test_tasks.py",
    "tests/planning/test_whole_match.py",
    "tests/reading/test_arrow_reader.py",
    "tests/reading/test_row_deletes.py",
    "tests/reading/test_scanning.py",
    "tests/cli/test_escapes.py",
    "tests/cli/test_formats.py",
    "tests/cli/test_help.py",
    "tests/test_lookup.py",
    "tests/test_published_vectors.py",
)
"""Of what each dependency is used for a little, without extras: one or two minutes. Releases are tried by it too."""
SERVE_SHARE = ("tests/serving/protocol", "tests/serving/test_catalog_routes.py")
SPARK_SHARE = (
    "tests/dependencies",
    "tests/spark/test_engine.py",
    "tests/spark/test_frames.py",
    "tests/spark/test_native.py",
    "tests/spark/test_orc.py",
    "tests/spark/test_same_code.py",
    "tests/spark/test_snapshots.py",
    "tests/spark/test_struct_nulls.py",
    "tests/spark/test_workers.py",
)
"""Builds on Spark, and reads by Iceberg's runtime. The latter are skipped where there is no runtime."""
TOOLS = ("pytest>=8", "hypothesis>=6.100", "packaging", "setuptools>=77", "datasketches>=5; python_version < '3.14'")


@dataclass(frozen=True)
class Environment:
    """How the dependencies of ``pyproject.toml`` are chosen, and which tests run."""

    share: tuple[str, ...]
    marks: str
    extra: str
    options: tuple[str, ...] = ()
    shown: tuple[str, ...] = ()


def _of_spark(version: str) -> Environment:
    return Environment(SPARK_SHARE, "not services", "spark", (f"pyspark[sql]=={version}.*",), ("pyspark",))


_BASE = "not services and not jvm"
ENVIRONMENTS = {
    "lowest": Environment((*SHARE, *SERVE_SHARE), _BASE, "serve", ("--resolution", "lowest-direct")),
    "newest": Environment((*SHARE, *SERVE_SHARE), _BASE, "serve"),
    **{f"spark-{version}": _of_spark(version) for version in ("4.0", "4.1", "4.2", "4.3")},
}
WHEELS = ("--only-binary", ":all:", "--no-binary", "pyspark")
"""The lowest version is the lowest that has a wheel. PySpark has none, and needs no compiler."""


def uv_in(folder: Path) -> str:
    """The command ``uv``; it is installed into the folder if there is none."""
    if found := shutil.which("uv"):
        return found
    home = folder / "uv"
    if not (home / "bin" / "uv").exists():
        venv.create(home, with_pip=True)
        _run([str(home / "bin" / "python"), "-m", "pip", "install", "--quiet", "uv"])
    return str(home / "bin" / "uv")


def make(name: str, folder: Path, python: str, package: str) -> Path:
    """Return the Python of an environment, which is made if it is not there."""
    environment, home = ENVIRONMENTS[name], folder / f"{name}-{Path(python).name}"
    inside = home / "bin" / "python"
    if (home / "made").exists():
        return inside
    uv = uv_in(folder)
    _run([uv, "venv", "--quiet", "--clear", "--python", python, str(home)])
    install = [uv, "pip", "install", "--quiet", "--python", str(inside)]
    wanted = ["-r", str(ROOT / "pyproject.toml"), "--extra", environment.extra, *environment.options]
    _run([*install, *WHEELS, *wanted])
    _run([*install, *WHEELS, *TOOLS])  # later, so that they are new and raise nothing
    _run([*install, "--no-deps", *(["-e"] if Path(package).is_dir() else []), package])
    (home / "made").touch()
    return inside


def run_share(name: str, inside: Path) -> str | None:
    """Run the tests of an environment. Return its row of the table, ``None`` if a test fails or none passes."""
    environment, home = ENVIRONMENTS[name], inside.parents[1]
    found = home / "found.xml"
    found.unlink(missing_ok=True)
    command = [str(inside), "-m", "pytest", "-q", "-p", "no:cacheprovider", "-m", environment.marks]
    own = os.environ | {"NUMBA_CACHE_DIR": str(home / "numba"), "VIRTUAL_ENV": str(home)}
    own["PATH"] = f"{inside.parent}{os.pathsep}{own['PATH']}"
    own.pop("PYTHONPATH", None)
    done = subprocess.run([*command, f"--junitxml={found}", *environment.share], cwd=ROOT, env=own)
    if done.returncode or not found.exists():
        return None
    suite = next(ElementTree.parse(found).getroot().iter("testsuite"))
    skipped = int(suite.get("skipped", 0))
    passed = int(suite.get("tests", 0)) - skipped
    return f"| {name} | {_versions(inside, environment.shown)} | {passed} passed, {skipped} skipped |"


def _versions(inside: Path, packages: tuple[str, ...]) -> str:
    script = (
        "import sys; from importlib.metadata import version; "
        "print(', '.join([f'Python {sys.version.split()[0]}', *(f'{p} {version(p)}' for p in sys.argv[1:])]))"
    )
    shown = packages or ("pyiceberg", "pyarrow", "numba", "numpy")
    return subprocess.run([inside, "-c", script, *shown], capture_output=True, text=True, check=True).stdout.strip()


def _run(command: list[str]) -> None:
    done = subprocess.run(command)
    if done.returncode:
        sys.exit(f"failed: {' '.join(command)}")


def main() -> int:
    parser = argparse.ArgumentParser(prog="scripts/versions", description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="+", metavar="ENVIRONMENT", choices=ENVIRONMENTS, help=", ".join(ENVIRONMENTS))
    parser.add_argument("--python", default=sys.executable, help="version or path (this Python)")
    parser.add_argument("--package", default=str(ROOT), help="the wheel to install (the checkout)")
    parser.add_argument("--folder", type=Path, default=Path(tempfile.gettempdir()) / "sidecar-versions")
    parser.add_argument("--only-make", action="store_true", help="make the environments, run no tests")
    asked = parser.parse_args()
    asked.folder.mkdir(parents=True, exist_ok=True)
    rows = dict[str, str | None]()
    for name in asked.names:
        inside = make(name, asked.folder.resolve(), asked.python, asked.package)
        print(f"{name}: {inside}", flush=True)
        if not asked.only_make:
            rows[name] = run_share(name, inside)
    for name, row in rows.items():
        print(row or f"| {name} | failed | |")
    return int(None in rows.values())


if __name__ == "__main__":
    sys.exit(main())
