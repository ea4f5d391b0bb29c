"""The wheel: built from the sources, installed into an environment of its own, and asked for a guide."""

from __future__ import annotations

import os
import subprocess
import sys
import venv
from pathlib import Path
from shutil import copy, copytree, ignore_patterns

import pytest

ROOT = Path(__file__).resolve().parents[2]
PIP = (sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input", "--quiet")


def run(*command: str | Path) -> str:
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, cwd="/", env=clean)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build_wheel(folder: Path) -> Path:
    """A wheel of a copy of the sources, because a build leaves files where it runs."""
    sources = folder / "sources"
    copytree(ROOT / "sidecar", sources / "sidecar", ignore=ignore_patterns("__pycache__", "*.nb?"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        copy(ROOT / name, sources)
    run(*PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, sources)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path) -> Path:
    """An environment with the wheel, which finds its dependencies in this environment."""
    venv.create(folder, with_pip=False, symlinks=True)
    (packages,) = folder.glob("lib/python*/site-packages")
    # Python does not read the .pth files in these folders, so an editable installation of sidecar stays out.
    shared = [path for path in sys.path if path.endswith("site-packages")]
    (packages / "dependencies.pth").write_text("\n".join(shared))
    run(*PIP, "--python", folder / "bin" / "python", "install", "--no-deps", "--no-index", wheel)
    return folder / "bin"


def test_an_installed_wheel_shows_its_guides_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled loops are in the user's cache folder, which an installer that removes the package does not know."""
    programs = install(build_wheel(tmp_path), tmp_path / "venv")
    package = Path(run(programs / "python", "-c", "import sidecar; print(sidecar.__file__)").strip()).parent
    assert package.is_relative_to(tmp_path)
    for path in (ROOT / "sidecar" / "guide").glob("*.md"):
        assert (package / "guide" / path.name).read_bytes() == path.read_bytes()
    assert run(programs / "sidecar", "guide", "orc").startswith("# ")

    for name in ("NUMBA_CACHE_DIR", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    code = "from sidecar.kernels.theta import below; below.load(); print(below.cache_folder)"
    folder = Path(run(programs / "python", "-c", code).strip())
    assert folder.is_relative_to(tmp_path / "home")
    assert len(list(folder.glob("*.nbc"))) == 1
    run(*PIP, "--python", programs / "python", "uninstall", "--yes", "lakehouse-sidecar")
    assert [path for path in (tmp_path / "venv").rglob("*sidecar*") if path.is_file()] == []
    assert not package.exists()
