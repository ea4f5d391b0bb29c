"""Point lookups: over a table of 658 files, and in a bundle of 100,000 units, plain, encrypted and of ORC's bits.

Files of 20,000 random longs. Index bytes and reads are those that the plan itself counts. The peers are pyiceberg's own
planning of the same predicate plus reading the one file that has the key, and pyiceberg's own scan. A lookup in a
bundle is timed by the CPU of its thread, each in a file that was opened anew.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import cycle
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

import sidecar
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_most
from scripts.benchmarks.harness.timing import Side, figure
from scripts.benchmarks.inputs.bundles import SEGMENT, TABLE, OneLookup, random_hashes, write_bundle
from scripts.benchmarks.inputs.longs import catalog_of_longs, keys_of
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.filters.rules import SPLIT_BLOCK, OrcRule
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.filters.orc.bloom import size_for

STRIDE = 10_000
MASTER = bytes(range(16))


def measure(bench: Bench) -> None:
    """Measure a table and bundles."""
    files, rows = bench.size(658, quick=60), bench.size(20_000, quick=2_000)
    table = catalog_of_longs(files, rows, with_filters=False).load_table("db.longs")
    sidecar.build(table, ["k"], kinds=["bloom"], engine="local")
    table.refresh()
    keys = keys_of(files, rows)
    for kind, wanted in (("present", keys[:21]), ("absent", [key + 1 for key in keys[:21]])):
        one_key(bench, table, kind, wanted)
    for count in (1_000, 100_000):
        many_keys(bench, table, count)
    units = bench.size(100_000, quick=5_000)
    for fpp in (0.05, 0.01):
        orc_bundle(bench, units, fpp)
    for some in (658, units):
        encrypted_bundle(bench, some)


def one_key(bench: Bench, table: Any, kind: str, keys: Sequence[int]) -> None:
    plans = [sidecar.plan(table, f"k = {key}") for key in keys]
    files = plans[0].files_total
    what = f"{kind} key in {files} files"
    bench.row(f"{what}: most files kept", max(plan.files_kept for plan in plans), "files")
    most = max(plan.index_bytes_read for plan in plans)
    bench.row(f"{what}: most bytes of the index", most / 1024, "KiB", at_most(64))
    bench.row(f"{what}: most reads of the index", max(plan.index_reads for plan in plans), "reads", at_most(4))
    path = table.inspect.files()["file_path"][0].as_py().removeprefix("file:")
    mine, theirs, one = cycle(keys), cycle(keys), cycle(keys)
    sides = {
        "sidecar scans": Side(lambda: sidecar.scan(table, f"k = {next(mine)}"), repeat=3),
        "pyiceberg plans": Side(lambda: list(table.scan(row_filter=f"k = {next(theirs)}").plan_files()), repeat=3),
        "pyarrow reads one file": Side(lambda: pq.read_table(path, filters=[("k", "=", next(one))]), repeat=3),
        "pyiceberg scans": Side(lambda: table.scan(row_filter=f"k = {keys[0]}").to_arrow()),
    }
    times = bench.compare(what, sides)
    bench.ratio(what, times, "sidecar scans", ["pyiceberg plans", "pyarrow reads one file"], at_most(1.5))
    bench.faster(what, times, "sidecar scans", "pyiceberg scans")


def many_keys(bench: Bench, table: Any, count: int) -> None:
    keys = pa.array(np.random.default_rng(count).integers(-(2**62), 2**62, count) * 2 + 1)
    times = bench.compare(
        f"a plan for {count:,} absent keys", {"sidecar": lambda: sidecar.plan(table, "true", keys={"k": keys})}, 3
    )
    found = times.of("sidecar", "cpu")
    plan = sidecar.plan(table, "true", keys={"k": keys})
    note = f"{plan.files_kept} files kept, {plan.index_bytes_read:,} bytes of the index in {plan.index_reads} reads"
    bench.row(f"a plan for {count:,} absent keys (CPU)", found.median, "s", spread=found.spread, note=note)


def orc_bundle(bench: Bench, units: int, fpp: float) -> None:
    bits, k = size_for(STRIDE, fpp)
    with data.scratch() as folder:
        path = folder / "many.stats"
        bench.say(f"writing ORC filters of {units:,} units")
        write_bundle(path, units, bits // 256, OrcRule(k, bits // 256 * 256))
        found = [OneLookup(path, key_hash) for key_hash in random_hashes(21)]
    what = f"a lookup in ORC filters of {units:,} units, rate {fpp:g}"
    bench.values(f"{what} (CPU)", [one.cpu * 1000 for one in found[1:]], "ms", at_most(5))
    most = k * units / 8 + 64 * 1024
    bench.row(f"{what}: most bytes", max(one.num_bytes for one in found) / 1024, "KiB", at_most(round(most / 1024, 1)))


def encrypted_bundle(bench: Bench, units: int, blocks: int = 32) -> None:
    keys = EncryptionKeys(ExplicitKeys({b"m": MASTER}))
    with data.scratch() as folder:
        plain, sealed = folder / "plain.stats", folder / "encrypted.stats"
        bench.say(f"writing bundles of {units:,} units")
        seconds = [write_bundle(plain, units, blocks, SPLIT_BLOCK)]
        seconds.append(write_bundle(sealed, units, blocks, SPLIT_BLOCK, FieldKey(MASTER, b"m", TABLE, SEGMENT, 1)))
        ratios, own = [], []
        for key_hash in random_hashes(101):
            one, other = OneLookup(plain, key_hash), OneLookup(sealed, key_hash, keys)
            if one.kept != other.kept:
                raise RuntimeError("the answers differ")
            ratios.append(other.cpu / one.cpu)
            own.append(one.cpu)
    what = f"a lookup in a bundle of {units:,} units"
    bench.values(f"{what} (CPU)", [cpu * 1000 for cpu in own[1:]], "ms", at_most(5))
    found = figure(ratios[1:])
    bench.row(
        f"{what}, encrypted (CPU)", found.median, "x", at_most(2), against="the plain bundle", spread=found.spread
    )
    bench.row(f"slicing {units:,} filters, encrypted (CPU)", seconds[1] / seconds[0], "x", against="plain")
