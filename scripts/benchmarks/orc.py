"""Filters of an ORC file beside what they save, and beside ORC's own Java library.

The file is lineitem of TPC-H as ORC by pyarrow, zstd, four columns, without filters. Embedding filters on two columns
is compared with a copy, flushed as an embedded file is, and decoding those columns, and with ORC Java writing the rows
again with filters. Reading and building every filter of a column is compared with a scan of that column by pyarrow.
Everything has one thread. A large run has about 1 GB of ORC data.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path

from pyarrow import orc

import sidecar
from scripts.benchmarks.embed import FLUSH, copy
from scripts.benchmarks.harness import data
from scripts.benchmarks.harness.bench import Bench
from scripts.benchmarks.harness.results import at_least, at_most
from scripts.benchmarks.harness.timing import Side
from scripts.benchmarks.inputs.lineitem import ORC_COLUMNS, orc_file
from scripts.benchmarks.peers.pipe import PipePeer, java_command
from sidecar.conversion.reuse import FilterRules
from sidecar.embedding.orc_filters import OrcFilterMaker
from sidecar.orc.index_streams import read_indexes
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.storage.local import LocalSource

EMBEDDED = ["l_partkey", "l_comment"]


def measure(bench: Bench) -> None:
    """Measure embedding, and each column."""
    plain = orc_file(bench.size(1.0, quick=0.05, large=11.0))
    tail = read_tail(LocalSource(str(plain)))
    bench.row("the ORC file", plain.stat().st_size / 1e6, "MB", note=f"{tail.num_rows:,} rows")
    with data.scratch() as folder:
        embedding(bench, plain, folder)
        for column in ORC_COLUMNS:
            one_column(bench, plain, folder / "one.orc", column)


def embedding(bench: Bench, plain: Path, folder: Path) -> None:
    target, rewritten = folder / "target.orc", folder / "rewritten.orc"
    columns = ",".join(EMBEDDED)

    def clear() -> None:
        target.unlink(missing_ok=True)
        FLUSH()

    sides = {
        "sidecar embeds": Side(
            lambda: sidecar.embed(str(plain), into=str(target), bloom=EMBEDDED, threads=1).only, before=clear
        ),
        "copy": Side(lambda: copy(plain, target), before=clear),
        "decode": Side(lambda: scan(plain, EMBEDDED)),
    }
    peer = None
    try:
        peer = PipePeer([*java_command("OrcPeer"), str(plain), str(rewritten), columns])
        sides["ORC Java rewrites"] = Side(partial(peer.run, "rewrite"))
        sides["ORC Java decodes"] = Side(partial(peer.run, "scan"))
    except RuntimeError as error:
        bench.absent("embed ORC filters on two columns", error, against="ORC Java")
    what = "embed ORC filters on two columns"
    times = bench.compare(what, sides, 4)
    bench.ratio(what, times, "sidecar embeds", ["copy", "decode"], at_most(1.4), clock="cpu")
    bench.ratio(what, times, "sidecar embeds", ["copy", "decode"])
    if peer is not None:
        for clock in ("cpu", "wall"):
            bench.faster(what, times, "sidecar embeds", "ORC Java rewrites", clock=clock)
        peer.close()


def one_column(bench: Bench, plain: Path, target: Path, column: str) -> None:
    target.unlink(missing_ok=True)
    sidecar.embed(str(plain), into=str(target), bloom=[column])
    bare, source = LocalSource(str(plain)), LocalSource(str(target))
    bare_tail, tail = read_tail(bare), read_tail(source)
    sides = {
        "sidecar reads filters": Side(lambda: read(source, tail, column), repeat=3),
        "sidecar builds filters": Side(lambda: build(bare, bare_tail, column)),
        "pyarrow scans": Side(lambda: scan(plain, [column])),
    }
    times = bench.compare(f"ORC filters of {column}", sides)
    bench.ratio(
        f"build ORC filters of {column}", times, "sidecar builds filters", "pyarrow scans", at_most(2), clock="cpu"
    )
    bench.faster(
        f"read ORC filters of {column}", times, "sidecar reads filters", "pyarrow scans", at_least(5), clock="cpu"
    )


def scan(path: Path, columns: list[str]) -> None:
    file = orc.ORCFile(path)
    for stripe in range(file.nstripes):
        file.read_stripe(stripe, columns)


def read(source: LocalSource, tail: OrcTail, column: str) -> None:
    found = tail.column(column)
    assert found is not None
    statistics = FileStatistics(source, tail)
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        filters = read_indexes(source, tail, footer, [found.id], statistics)[found.id].filters
        assert filters is not None
        assert all(one.trusted for one in filters)


def build(source: LocalSource, tail: OrcTail, column: str) -> None:
    found = tail.column(column)
    assert found is not None
    maker = OrcFilterMaker(source, tail, FilterRules((found.id,)))
    for stripe in tail.stripes:
        assert maker.make(stripe.ordinal).new
