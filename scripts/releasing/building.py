"""Builds the sdist, and the wheel out of the sdist, from the files that git has."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[2]


class Built(NamedTuple):
    """The two files of a release."""

    wheel: Path
    sdist: Path


def with_absolute_links(text: str, source: str, version: str) -> str:
    """Return a page whose links into the repository lead there from anywhere, to the files of this version."""
    images = re.sub(r"(!\[[^]]*\])\((?!https?:)([^)\s]+)\)", rf"\1({source}/raw/v{version}/\2)", text)
    return re.sub(r"\]\((?!https?:|#)([^)\s]+)\)", rf"]({source}/blob/v{version}/\1)", images)


def copy_of_tracked_files(folder: Path, source: str, version: str) -> Path:
    """Copy what git tracks, as it is in the work tree; the README becomes the page of the package index."""
    listed = subprocess.run(["git", "ls-files", "-z"], cwd=ROOT, check=True, capture_output=True, text=True).stdout
    for name in filter(None, listed.split("\0")):
        if (ROOT / name).exists():
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(ROOT / name, folder / name)
    readme = folder / "README.md"
    readme.write_text(with_absolute_links(readme.read_text("utf-8"), source, version), "utf-8")
    return folder


def build(sources: Path, into: Path) -> Built:
    """Build both files, and have twine check them. Other files of earlier releases in the folder are deleted."""
    into.mkdir(parents=True, exist_ok=True)
    for old in (*into.glob("*.whl"), *into.glob("*.tar.gz")):
        old.unlink()
    run = [sys.executable, "-m", "build", "--outdir", str(into), str(sources)]
    done = subprocess.run(run, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"the build failed:\n{done.stdout}{done.stderr}")
    (wheel,), (sdist,) = into.glob("*.whl"), into.glob("*.tar.gz")
    subprocess.run([sys.executable, "-m", "twine", "check", "--strict", str(wheel), str(sdist)], check=True)
    return Built(wheel, sdist)
