"""The facts of the machine that figures depend on."""

from __future__ import annotations

import os
import platform
import re
import subprocess
from datetime import datetime, timezone
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any

from scripts.benchmarks.harness.data import ROOT

PACKAGES = (
    "pyarrow",
    "numpy",
    "numba",
    "pyiceberg",
    "pyspark",
    "duckdb",
    "polars",
    "datafusion",
    "datasketches",
    "moto",
)


def machine_facts() -> dict[str, Any]:
    """Return cores, memory, kernel, versions, the project's commit, and what the machine did before (``load``)."""
    return {
        "cores": len(os.sched_getaffinity(0)),
        "processor": _first("/proc/cpuinfo", r"model name\s*:\s*(.+)"),
        "memory_gib": round(int(_first("/proc/meminfo", r"MemTotal:\s*(\d+)") or 0) / (1 << 20), 1),
        "kernel": f"{platform.system()} {platform.release()}",
        "python": platform.python_version(),
        "java": _java(),
        "packages": {name: found for name in PACKAGES if (found := _version(name))},
        "commit": _commit(),
        "date": datetime.now(timezone.utc).strftime("%Y-%m-%d %H:%M UTC"),
        "load": round(os.getloadavg()[0], 2),
    }


def _first(path: str, pattern: str) -> str:
    try:
        found = re.search(pattern, Path(path).read_text())
    except OSError:
        return ""
    return found[1].strip() if found else ""


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return ""


def _java() -> str:
    home = os.environ.get("JAVA_HOME")
    try:
        said = subprocess.run([f"{home}/bin/java" if home else "java", "-version"], capture_output=True, text=True)
    except OSError:
        return ""
    found = re.search(r'version "([^"]+)"', said.stderr)
    return found[1] if found else ""


def _commit() -> str:
    """Return the commit, and whether anything but the report itself differs from it."""
    changed = _git("status", "--porcelain", "--untracked-files=no", "--", ".", ":!scripts/bench-results")
    return _git("rev-parse", "--short=12", "HEAD") + (" with changes" if changed else "")


def _git(*arguments: str) -> str:
    try:
        done = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True)
    except OSError:
        return ""
    return done.stdout.strip()
