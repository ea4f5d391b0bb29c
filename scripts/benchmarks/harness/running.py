"""Runs benchmarks, each in a process of its own, and writes their report.

    scripts/bench                     the twelve of the suite, into scripts/bench-results
    scripts/bench NAME ...            some of them, or scaling (an hour), or one of the others
    scripts/bench --compare A B       which figures of two files results.json differ by more than 10 %
    scripts/bench --guides            write the figures of scripts/bench-results into README and the guides

A target that is missed is a result, not a failure: the exit code is 1 if a benchmark failed, or if --compare found
differences.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from importlib import import_module
from pathlib import Path

from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.comparing import TOLERANCE, differences
from scripts.benchmarks.harness.data import ROOT, WORK, scratch
from scripts.benchmarks.harness.guides import write_guides
from scripts.benchmarks.harness.machine import machine_facts
from scripts.benchmarks.harness.report import PAGE, write_report
from scripts.benchmarks.harness.results import BenchmarkResult, read_results, to_json

SUITE = [
    "kernels", "build", "spark", "refresh", "lookup", "plan", "scan", "embed", "orc", "serve", "s3", "startup",
]  # fmt: skip
"""What ``scripts/bench`` alone runs."""
OTHERS = ["scaling", "memory", "day", "segments", "sketch_groups", "filter_sizes", "advise"]
"""What is only run when it is named."""
COMMITTED = ROOT / "scripts" / "bench-results"


def main(arguments: Sequence[str]) -> int:
    """Run the command. Returns the exit code."""
    parser = argparse.ArgumentParser(
        prog="scripts/bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"one of {', '.join([*SUITE, *OTHERS])}")
    sizes = parser.add_mutually_exclusive_group()
    sizes.add_argument("--quick", action="store_const", const="quick", dest="scale", help="small data, two turns")
    sizes.add_argument("--large", action="store_const", const="large", dest="scale", help="data of gigabytes")
    parser.add_argument(
        "--into", type=Path, help="folder of the report (scripts/bench-results for all, .work/bench/results for some)"
    )
    parser.add_argument("--compare", nargs=2, type=Path, metavar=("A.json", "B.json"), help="compare two results.json")
    parser.add_argument("--guides", action="store_true", help="write the committed figures into README and the guides")
    parser.add_argument("--run", nargs=2, metavar=("NAME", "FILE"), help=argparse.SUPPRESS)
    parser.set_defaults(scale="normal")
    options = parser.parse_args(arguments)
    if options.compare:
        return compare(*options.compare)
    if options.guides:
        print("\n".join(str(page) for page in write_guides()) or "the pages have the committed figures")
        return 0
    if options.run:
        return run_one(options.run[0], options.scale, Path(options.run[1]))
    names = list(dict.fromkeys(options.names)) or SUITE
    if unknown := set(names) - {*SUITE, *OTHERS}:
        parser.error(f"unknown: {', '.join(sorted(unknown))}; choose from {', '.join([*SUITE, *OTHERS])}")
    committed = not options.names and options.scale == "normal"
    return run_all(names, options.scale, options.into or (COMMITTED if committed else WORK / "results"))


def compare(old: Path, new: Path) -> int:
    """Print what differs."""
    lines = differences(read_results(old), read_results(new))
    print("\n".join(lines) if lines else f"no figure differs by more than {TOLERANCE:.0%}")
    return int(bool(lines))


def run_all(names: Sequence[str], scale: str, into: Path) -> int:
    """Run benchmarks one after the other, and write the report after each."""
    failed = False
    for at, name in enumerate(names, 1):
        print(f"{name} ({at} of {len(names)})", flush=True)
        with scratch() as folder:
            file = folder / "result.json"
            size = [] if scale == "normal" else [f"--{scale}"]
            command = [sys.executable, "-m", "scripts.benchmarks", "--run", name, str(file), *size]
            code = subprocess.run(command, cwd=ROOT).returncode
            if file.exists():
                result = read_results(file)[name]
            else:
                result = BenchmarkResult(name, "", machine_facts(), failure=f"it ended with code {code}")
        failed |= bool(result.failure)
        write_report(into, [result], [*SUITE, *OTHERS])
    print(f"the report: {into / PAGE}")
    return int(failed)


def run_one(name: str, scale: str, file: Path) -> int:
    """Run one benchmark in this process, and write its result; what it found before a failure too."""
    module = import_module(f"scripts.benchmarks.{name}")
    title = (module.__doc__ or name).strip().splitlines()[0]
    result = BenchmarkResult(name, title, machine_facts() | {"scale": scale})
    os.environ.pop("AWS_PROFILE", None)
    started = time.perf_counter()
    try:
        module.measure(Bench(result, scale))
    except Exception as error:
        traceback.print_exc()
        result.failure = f"{type(error).__name__}: {error}"
    result.seconds = round(time.perf_counter() - started, 1)
    file.write_text(to_json([result]), "utf-8")
    return int(bool(result.failure))
