"""The memory of builds, refreshes and merges by the kernel's own count (VmHWM), of the driver and of each worker.

Bundles of gigabytes, of tiny files whose filters are large, and builds of very many units. The run is a process of its
own; resident pages of mapped files count. On Spark the Java virtual machine and Python workers are counted apart.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.processes import Peak, peaks_of
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.inputs.tiny_files import catalog_of_row_groups, catalog_of_tiny_files, rate, rows
from sidecar.maintenance import costs
from sidecar.results.choices import BuildEngine

LIMIT = at_most(1.074)
"""One GiB in GB."""


def measure(bench: Bench) -> None:
    """Measure a bundle of 4 GB, and a build of 100,000 units and three columns."""
    files, blocks = bench.size(8_000, quick=200), bench.size(8_192, quick=1_024)
    catalog = catalog_of_tiny_files(files)
    folder, size = data.folder_of(catalog), 64 * files * blocks / 1e9
    for engine in ("spark", "local"):
        show(bench, f"build of a bundle of {size:.1f} GB, {engine}", run(folder, "build", engine, str(blocks)))
    catalog.load_table("db.t").append(rows(files))
    show(bench, f"refresh of a bundle of {size:.1f} GB", run(folder, "refresh"))
    show(bench, f"merge of a bundle of {size:.1f} GB", run(folder, "refresh"))
    shape = (bench.size(100, quick=10), bench.size(1_000, quick=100), 3)
    for engine in ("local", "spark"):
        catalog = catalog_of_row_groups(*shape)
        found = run(data.folder_of(catalog), "build-all", engine)
        show(bench, f"build of {shape[0] * shape[1]:,} units x {shape[2]} columns, {engine}", found)


def show(bench: Bench, what: str, peaks: Sequence[Peak]) -> None:
    for role in dict.fromkeys(peak.role for peak in peaks):
        most = max(peak.num_bytes for peak in peaks if peak.role == role)
        bench.row(f"memory, {what}: {role}", most / 1e9, "GB", None if role == "java" else LIMIT)


def run(folder: Path, step: str, *arguments: str) -> list[Peak]:
    """Run a step in a process of its own."""
    return peaks_of([sys.executable, "-m", "scripts.benchmarks.memory", str(folder), step, *arguments])


def engine_of(name: str) -> BuildEngine:
    return "spark" if name == "spark" else "local"


def main(folder: str, step: str, *arguments: str) -> None:
    """Run a step in this process."""
    table = data.open_catalog(Path(folder)).load_table("db.t")
    columns = [field.name for field in table.schema().fields]

    def build() -> None:
        fpp = rate(int(arguments[1]))
        sidecar.build(table, columns, kinds=["bloom"], fpp=fpp, engine=engine_of(arguments[0]), full=True)

    def build_all() -> None:
        sidecar.build(table, columns, engine=engine_of(arguments[0]))

    def refresh() -> None:
        costs.FEW_ROWS = 0.0
        sidecar.refresh(table, engine="local")

    steps: dict[str, Callable[[], None]] = {
        "build": build,
        "build-all": build_all,
        "refresh": refresh,
    }
    steps[step]()


if __name__ == "__main__":
    main(*sys.argv[1:])
