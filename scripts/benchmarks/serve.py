"""What plans of ``sidecar serve`` cost, and what they save.

``db.few`` and ``db.many`` are those of ``plan.py``: real manifests, and data files that do not exist. ``db.real`` has
data. CPU times are those of whole requests, without a connection. Figures are medians of --runs after one request that
fills the caches; engines run twice before. Each lookup asks for another key. Targets: a lookup in 5 ms of CPU, all of
many files in 300 ms; Spark's lookups 4 times as fast as by its own planning, 5 times for an absent value; plans that
keep all files at most 5 times as long in Spark, 1.3 times in pyiceberg.
"""

from __future__ import annotations

import argparse
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(prog="serve", description=__doc__)
    parser.add_argument("--few", type=int, default=658)
    parser.add_argument("--many", type=int, default=20_000)
    parser.add_argument("--runs", type=int, default=7)
    parser.add_argument("--plans", type=int, default=100_000, help="lookups whose memory is measured; 0: none")
    parser.add_argument("--part", choices=["cpu", "engines"], help="measure only this")
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.folder:
        return measure(options)
    from serving.tables import environment, write_tables

    print(f"{platform.platform()}, Python {platform.python_version()}, {os.cpu_count()} CPUs", flush=True)
    with tempfile.TemporaryDirectory(prefix="sidecar-bench-") as name:
        write_tables(Path(name), options.few, options.many)
        print(f"{options.few:,} files in manifests of 100; {options.many:,} in manifests of 1,000", flush=True)
        missed = False
        for part in [options.part] if options.part else ["cpu", "engines"]:
            # pyiceberg reads the environment when it is imported, so each part is a process of its own
            command = [sys.executable, __file__, *arguments, "--part", part, "--folder", name]
            missed |= bool(subprocess.run(command, env={**os.environ, **environment(Path(name))}).returncode)
    print(f"targets: {'missed' if missed else 'met'}")
    return int(missed)


def measure(options: argparse.Namespace) -> int:
    if options.part == "cpu":
        from serving.cpu import measure as measure_cpu

        missed = measure_cpu(options.folder, options.runs, options.plans)
    else:
        from serving.engines import measure as measure_engines

        missed = measure_engines(options.few, options.runs)
    for what in missed:
        print(f"  missed: {what}")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
