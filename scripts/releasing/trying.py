"""Installs a wheel as a user does, and uses it without the checkout."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from scripts.releasing.building import ROOT, Built
from scripts.releasing.contents import metadata_of
from scripts.version_runs import SHARE, TOOLS, WHEELS

UV = (sys.executable, "-m", "uv")


class Environment(NamedTuple):
    """A clean virtual environment with the wheel, and how long it took to make."""

    name: str
    folder: Path
    seconds: float

    def program(self, name: str) -> str:
        """Return the path of a program of the environment."""
        return str(self.folder / "bin" / name)

    @property
    def megabytes(self) -> float:
        """What the environment takes on the disk."""
        return sum(file.lstat().st_size for file in self.folder.rglob("*") if not file.is_symlink()) / 1e6


def pythons(version: str | None) -> list[str]:
    """Return the interpreters on the PATH of this version, or of all that sidecar may run on, the oldest first."""
    names = [f"python{version}"] if version else [f"python3.{minor}" for minor in range(10, 30)]
    found = [path for name in names if (path := shutil.which(name)) and runs(path)]
    if not found:
        raise SystemExit(f"no python{version or '3.10 or newer'} was found on the PATH")
    return found


def runs(program: str) -> bool:
    """Whether a program starts: what a version manager puts on the PATH may be only a name."""
    return subprocess.run([program, "-c", ""], capture_output=True).returncode == 0


def requirements(wheel: Path) -> list[str]:
    """Return what a wheel requires where no extra is named."""
    return [line for line in metadata_of(wheel).get_all("Requires-Dist", []) if "extra ==" not in line]


def run(command: Sequence[str], cwd: Path, env: Mapping[str, str] | None = None) -> str:
    """Run a command that has to succeed, without what the checkout's environment would add."""
    clean = {name: value for name, value in os.environ.items() if name not in ("PYTHONPATH", "VIRTUAL_ENV")}
    done = subprocess.run(command, cwd=cwd, env={**clean, **(env or {})}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"failed: {' '.join(command)}\n{done.stdout}{done.stderr}")
    return done.stdout


def environments(wheel: Path, folder: Path, version: str | None) -> list[Environment]:
    """Make one environment with the lowest allowed dependencies, and one with the newest.

    The lowest are on the oldest Python that is found, the newest on the newest one, by pip, as users install it.
    """
    found = pythons(version)
    wanted = [*WHEELS, str(wheel), *requirements(wheel)]
    lowest = [*UV, "pip", "install", "--quiet", "--resolution", "lowest-direct", *wanted]
    newest = ["-m", "pip", "install", "--quiet", "--disable-pip-version-check", str(wheel)]
    made = []
    for name, python in (("lowest", found[0]), ("newest", found[-1])):
        start = time.perf_counter()
        run([python, "-m", "venv", str(folder / name)], folder)
        program = str(folder / name / "bin" / "python")
        run([*lowest, "--python", program] if name == "lowest" else [program, *newest], folder)
        made.append(Environment(name, folder / name, time.perf_counter() - start))
    return made


def first_python_block(page: str) -> str:
    """Return the first block of Python in a page: what a reader pastes first."""
    found = re.search(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    if found is None:
        raise SystemExit("README.md has no block of Python")
    return found[1]


def try_package(environment: Environment, version: str, folder: Path) -> dict[str, float]:
    """Ask the installed commands, compile the kernels and run README's first lines; return seconds by step."""
    sidecar, seconds = environment.program("sidecar"), {"install": environment.seconds}
    if (said := run([sidecar, "--version"], folder).split()) != ["sidecar", version]:
        raise SystemExit(f"{environment.name}: sidecar --version says {said}")
    (folder / "first.py").write_text(first_python_block((ROOT / "README.md").read_text("utf-8")), "utf-8")
    steps = {
        "warm-up": [sidecar, "warm-up"],
        "guide": [sidecar, "guide"],
        "README": [environment.program("python"), "first.py"],
    }
    for step, command in steps.items():
        start = time.perf_counter()
        run(command, folder)
        seconds[step] = time.perf_counter() - start
    return seconds


def try_tests(environment: Environment, sdist: Path, folder: Path) -> str:
    """Run a share of the sdist's tests on the installed wheel; return pytest's closing line."""
    with tarfile.open(sdist) as tar:
        tar.extractall(folder, filter="data")
    (sources,) = folder.iterdir()
    shutil.rmtree(sources / "sidecar")
    where = "import sidecar, pathlib; print(pathlib.Path(sidecar.__file__).parent)"
    installed = run([environment.program("python"), "-c", where], folder).strip()
    (sources / "sidecar").symlink_to(installed)  # tests that look for sources find those that are installed
    run([*UV, "pip", "install", "--quiet", "--python", environment.program("python"), *TOOLS], folder)
    options = ["-q", "-m", "not jvm and not services", "-p", "no:cacheprovider"]
    return run([environment.program("python"), "-m", "pytest", *options, *SHARE], sources).splitlines()[-1]


def versions_of(environment: Environment, wheel: Path) -> str:
    """Return the versions of what the wheel requires, as they were installed."""
    command = [*UV, "pip", "list", "--format", "json", "--python", environment.program("python")]
    listed = run(command, environment.folder)
    versions = {package["name"]: package["version"] for package in json.loads(listed)}
    names = [re.split(r"[^\w.-]", line, maxsplit=1)[0].lower() for line in requirements(wheel)]
    return ", ".join(f"{name} {versions[name]}" for name in names)


def try_release(built: Built, version: str, folder: Path, python: str | None) -> None:
    """Try the wheel in both environments, on a version of Python, and print what it took."""
    for environment in environments(built.wheel, folder, python):
        places = [folder / f"{environment.name}-{what}" for what in ("user", "tests")]
        for place in places:
            place.mkdir()
        found = run([environment.program("python"), "--version"], folder).strip()
        print(f"{environment.name}: {found}, {environment.megabytes:.0f} MB")
        print(f"  {versions_of(environment, built.wheel)}", flush=True)
        seconds = try_package(environment, version, places[0])
        print("  " + ", ".join(f"{step} {taken:.1f} s" for step, taken in seconds.items()), flush=True)
        print(f"  tests: {try_tests(environment, built.sdist, places[1])}", flush=True)
