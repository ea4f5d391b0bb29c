"""Damage of ORC files costs what it hits: a tail the file, a stripe footer its stripe, a stream one column of it."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pytest
from pyiceberg.manifest import FileFormat

from sidecar.errors import StorageError
from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.filters.values import probe_hashes
from sidecar.indexing.stage_one.tasks import FilePiece, StageResult, UnitsTask, index_units
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import read_tail
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source
from tests.indexing.cases import columns_of, filter_of, opened_by, plan_for, rng
from tests.orc_cases import write_orc
from tests.tables import iceberg_schema

SCHEMA = iceberg_schema("a long, b long, s string")
STRIDE, ROWS = 500, 12_000
A = rng().integers(0, 2**60, ROWS)
B = np.arange(ROWS) % 50
S = [f"text {i}" for i in range(ROWS)]
VALUES = {1: A.tolist(), 2: B.tolist(), 3: S}
TYPES = {1: "long", 2: "long", 3: "string"}


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two stripes, filters on ``a`` and ``s``."""
    path = tmp_path_factory.mktemp("orc") / "sound.orc"
    table = pa.table({"a": A, "b": B, "s": S})
    write_orc(
        path, table, SCHEMA, row_index_stride=STRIDE, stripe_size=64 << 10, compression="zlib",
        bloom_filter_columns=[1, 3], bloom_filter_fpp=0.005,
    )  # fmt: skip
    assert len(read_tail(LocalSource(str(path))).stripes) == 2
    return path


def stage_one(path: Path, **options: object) -> list[StageResult]:
    size = path.stat().st_size
    task = UnitsTask(0, (FilePiece(0, str(path), size, 0, size, FileFormat.ORC),))
    return list(index_units(task, plan_for(SCHEMA, **options)))


def denied(record: StageResult) -> list[object]:
    """Values of its row group that a record's filter denies: must be empty."""
    found: OrcBloomFilter | SplitBlockBloomFilter = filter_of(record)
    if record.filter.bits:
        found = OrcBloomFilter.from_bytes((record.data or b"")[: record.filter.bits // 8], record.filter.hashes)
    hashes = hashes_of(record.field_id, record.row_group, record.filter.encoding, bool(record.filter.bits))
    first, count = UNITS[record.row_group]
    mine = VALUES[record.field_id][first : first + count]
    return [value for value, held in zip(mine, found.check(hashes).tolist(), strict=True) if not held]


@cache
def hashes_of(field_id: int, row_group: int, encoding: str, is_orc: bool) -> npt.NDArray[np.uint64]:
    """The hash by which each value of a row group is looked up."""
    first, count = UNITS[row_group]
    kind, mine = TYPES[field_id], VALUES[field_id][first : first + count]
    if is_orc:
        probes = [probe_orc(value, kind, OrcEncoding.parse(encoding)) for value in mine]
    else:
        probes = [probe_hashes(value, kind, Encoding.parse(encoding)) for value in mine]
    assert {(probe.verdict, len(probe.hashes)) for probe in probes} == {("probe", 1)}
    return np.array([probe.hashes[0] for probe in probes], np.uint64)


UNITS: dict[int, tuple[int, int]] = {}


@pytest.fixture(scope="module", autouse=True)
def units(sound: Path) -> None:
    """First row and rows of each unit of the sound file."""
    UNITS.update({r.row_group: r.entry[1:] for r in stage_one(sound) if r.kind == "unit"})


def changed(sound: Path, folder: Path, start: int, length: int) -> Path:
    """A copy of the file in which these bytes are ones: no compression chunk begins so."""
    data = bytearray(sound.read_bytes())
    data[start : start + length] = b"\xff" * length
    path = folder / "changed.orc"
    path.write_bytes(data)
    return path


def lost(records: list[StageResult]) -> dict[int, set[int]]:
    """Row groups without a filter, by field id; what filters there are deny nothing."""
    found: dict[int, set[int]] = {}
    for record in records:
        if record.kind == "column":
            assert (record.data is None) == bool(record.reason)
            if record.data is None:
                found.setdefault(record.field_id, set()).add(record.row_group)
                assert record.fault, record
            else:
                assert denied(record) == []
    return found


def groups_of(sound: Path, stripe: int) -> set[int]:
    """Units of a stripe."""
    own = read_tail(LocalSource(str(sound))).stripes[stripe]
    return {unit for unit, (first, _) in UNITS.items() if own.first_row <= first < own.first_row + own.num_rows}


def test_a_broken_stripe_footer_costs_its_stripe(sound: Path, tmp_path: Path) -> None:
    stripe = read_tail(LocalSource(str(sound))).stripes[1]
    path = changed(sound, tmp_path, stripe.footer_offset, stripe.footer_length)
    records = stage_one(path, page_index=True)
    mine = groups_of(sound, 1)
    assert lost(records) == {1: mine, 2: mine, 3: mine}
    pages = [r for r in records if r.kind == "pages"]
    assert {r.row_group for r in pages if not r.length} == mine
    assert all(r.reason and r.fault for r in pages if not r.length)


@pytest.mark.parametrize("column", [1, 2, 3])
def test_a_broken_data_stream_costs_that_column_of_the_stripe(sound: Path, tmp_path: Path, column: int) -> None:
    """It cannot be decompressed: what can, counts as sound, as ORC has no checksums."""
    source = LocalSource(str(sound))
    tail = read_tail(source)
    footer = read_stripe_footer(source, tail, tail.stripes[1])
    stream = footer.stream(column, "DATA")
    assert stream is not None
    path = changed(sound, tmp_path, stream.offset, stream.length)
    assert lost(stage_one(path, filter_format="parquet")) == {column: groups_of(sound, 1)}
    reused = lost(stage_one(path, theta=False))  # the filters are whole
    assert reused == ({2: groups_of(sound, 1)} if column == 2 else {})


def test_a_broken_index_costs_its_own_filters_and_row_indexes(sound: Path, tmp_path: Path) -> None:
    """Filters that cannot be read are built of the values instead."""
    source = LocalSource(str(sound))
    tail = read_tail(source)
    footer = read_stripe_footer(source, tail, tail.stripes[0])
    filters, rows = footer.stream(3, "BLOOM_FILTER_UTF8"), footer.stream(1, "ROW_INDEX")
    assert filters is not None
    assert rows is not None
    records = stage_one(changed(sound, tmp_path, filters.offset, filters.length), page_index=True)
    assert lost(records) == {}
    mine = groups_of(sound, 0)
    assert {r.row_group for r in columns_of(records, 3) if r.how == "scanned"} == mine
    records = stage_one(changed(sound, tmp_path, rows.offset, rows.length), page_index=True)
    broken = {(r.field_id, r.row_group) for r in records if r.kind == "pages" and not r.length}
    assert broken == {(1, group) for group in mine}
    assert lost(records) == {}


@pytest.mark.parametrize("cut", ["tail", "half", "empty"])
def test_a_broken_tail_costs_the_file(sound: Path, tmp_path: Path, cut: str) -> None:
    data = sound.read_bytes()
    path = tmp_path / "cut.orc"
    path.write_bytes({"tail": data[:-40] + bytes(40), "half": data[: len(data) // 2], "empty": b""}[cut])
    (record,) = stage_one(path)
    assert (record.kind, record.fault) == ("file", "damage")
    assert record.reason


class Flaky(LocalSource):
    """Storage that fails after some reads."""

    left = 0

    def read(self, offset: int, length: int) -> bytes:
        if not self.left:
            raise StorageError("the network is down")
        self.left -= 1
        return super().read(offset, length)


@pytest.mark.parametrize("reads", [0, 1, 2, 3])
def test_storage_that_fails_is_told_apart(sound: Path, reads: int) -> None:
    def opener(path: str) -> Source:
        source = Flaky(path)
        source.left = reads
        return source

    size = sound.stat().st_size
    task = UnitsTask(0, (FilePiece(0, str(sound), size, 0, size, FileFormat.ORC),))
    records = list(index_units(task, opened_by(plan_for(SCHEMA, theta=False), opener)))
    faults = {record.fault for record in records if record.reason}
    assert faults == {"storage"}


def test_random_bytes_never_raise(sound: Path, tmp_path: Path) -> None:
    """Changes of one to eight bytes in tail, stripe footers and index streams, and cuts anywhere.

    Where an index stream was hit, filters that were built of the values instead deny none of them.
    """
    tail = read_tail(LocalSource(str(sound)))
    data, random, rebuilt = sound.read_bytes(), rng(), 0
    indexes = [(stripe.offset, stripe.offset + stripe.index_length) for stripe in tail.stripes]
    spans = [
        *indexes,
        *((stripe.footer_offset, stripe.end) for stripe in tail.stripes),
        (tail.stripes[-1].end, tail.size),
    ]
    path = tmp_path / "random.orc"
    for _ in range(120):
        damaged = bytearray(data)
        span = spans[random.integers(len(spans))]
        at = int(random.integers(*span))
        for i in range(at, min(at + int(random.integers(1, 9)), span[1])):
            damaged[i] ^= int(random.integers(1, 256))
        cut = random.integers(10) == 0
        path.write_bytes(damaged[: random.integers(len(damaged))] if cut else damaged)
        for record in stage_one(path, theta=False, page_index=True):
            if (
                record.kind == "column"
                and record.field_id != 2
                and record.how == "scanned"
                and span in indexes
                and not cut
            ):
                assert denied(record) == []
                rebuilt += 1
    assert rebuilt
