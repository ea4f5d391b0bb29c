"""ORC files to embed into, and what must hold of every embedded one."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyarrow import orc

from sidecar.conversion.outcome import Outcome
from sidecar.embedding.embed import embed
from sidecar.embedding.orc_filters import new_encoding
from sidecar.embedding.report import EmbedReport
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.orc.decode import read_row_groups
from sidecar.orc.embed import FILTER_STREAMS
from sidecar.orc.index_streams import FoundOrcFilter, read_indexes
from sidecar.orc.statistics.file_statistics import FileStatistics
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.tail import OrcTail, read_tail
from sidecar.orc.verify.verify import verify_file
from sidecar.storage.source import BytesSource, Source

DATA = Path(__file__).resolve().parents[1] / "data" / "orc"
BARE, NATIVE = DATA / "java_zlib_2stripes_nofilters.orc", DATA / "java_zlib_2stripes_utf8.orc"
PYARROW = DATA / "pyarrow_zlib_utf8.orc"
COMPRESSIONS = pytest.mark.parametrize("compression", ["uncompressed", "zlib", "snappy", "lz4", "zstd"])
NOT_BUILT = {"c_bool", "c_ts", "c_tsi"}


def opened(path: Path) -> tuple[Source, OrcTail]:
    source = BytesSource(path.read_bytes(), str(path))
    return source, read_tail(source)


def leaves(tail: OrcTail) -> list[str]:
    return [column.path for column in tail.columns if not column.is_compound]


def embedded(path: Path, columns: Sequence[str] | None = None, **options: Any) -> tuple[Path, EmbedReport]:
    """The file with filters (on all leaves by default), checked in every general respect."""
    target = path_beside(path, **options)
    names = leaves(opened(path)[1]) if columns is None else columns
    report = embed(str(path), into=str(target), bloom=names, **options).only
    assert report.written.size == target.stat().st_size
    assert_same_streams(path, target)
    assert_nothing_denied(target)
    return target, report


def path_beside(path: Path, **options: Any) -> Path:
    return path.with_name(f"{path.stem}-{'-'.join(map(str, options.values()))}.orc")


def streams(path: Path) -> list[dict[tuple[str, str], bytes]]:
    source, tail = opened(path)
    footers = (read_stripe_footer(source, tail, stripe) for stripe in tail.stripes)
    return [
        {(s.kind, tail.columns[s.column].path): source.read(s.offset, s.length) for s in footer.streams}
        for footer in footers
    ]


def assert_same_streams(before: Path, after: Path) -> None:
    """All but the filters, in the same order."""
    for one, other in zip(streams(before), streams(after), strict=True):
        assert [(k, v) for k, v in one.items() if k[0] not in FILTER_STREAMS] == [
            (k, v) for k, v in other.items() if k[0] not in FILTER_STREAMS
        ]


def found_filters(path: Path, column: str, only: int | None = None) -> list[FoundOrcFilter]:
    """Those of all stripes, or of one."""
    source, tail = opened(path)
    out: list[FoundOrcFilter] = []
    for stripe in tail.stripes if only is None else tail.stripes[only : only + 1]:
        footer = read_stripe_footer(source, tail, stripe)
        found = tail.column(column)
        assert found is not None
        out += read_indexes(source, tail, footer, [found.id], FileStatistics(source, tail))[found.id].filters or []
    return out


def assert_nothing_denied(path: Path) -> None:
    """Nothing is wrong with the file, and each filter holds each value of its row group."""
    source, tail = opened(path)
    assert [p for p in verify_file(source) if p.column not in NOT_BUILT] == []
    for stripe in tail.stripes:
        footer = read_stripe_footer(source, tail, stripe)
        for column in tail.columns[1:]:
            found = read_indexes(source, tail, footer, [column.id], FileStatistics(source, tail))[column.id].filters
            if found is None or column.path in NOT_BUILT:
                continue
            encoding = new_encoding(tail, column, footer.writer_timezone)
            if True:
                for one, values in zip(found, read_row_groups(source, tail, stripe, footer, column), strict=True):
                    assert one.filter is not None
                    assert one.filter.check(hash_orc(values, encoding, twins=False)).all(), column.path


def outcomes(report: EmbedReport) -> dict[str, list[Outcome]]:
    by_column: dict[str, list[Outcome]] = defaultdict(list)
    for outcome in report.outcomes:
        by_column[outcome.column].append(outcome)
    return by_column


def ways(report: EmbedReport) -> dict[str, set[str]]:
    return {column: {one.way for one in found} for column, found in outcomes(report).items()}


def copied(path: Path, folder: Path) -> Path:
    return Path(shutil.copyfile(path, folder / path.name))


def numbers(rows: int = 6000) -> pa.Table:
    """Even keys beyond 32 bits, unsorted, and every kind of column that gets filters."""
    rng = np.random.default_rng(3)
    keys = rng.integers(2**32, 2**40, rows) * 2
    doubles = rng.normal(size=rows)
    doubles[:3] = (0.0, -0.0, np.nan)
    return pa.table(
        {
            "k": keys,
            "tiny": pa.array((keys % 200 - 100).astype(np.int8)),
            "small": pa.array((keys % 30_011).astype(np.int16), mask=rng.random(rows) < 0.2),
            "s": [f"value-{key}" for key in keys],
            "word": [f"x{key % 7}" for key in keys],
            "b": pa.array([int(key).to_bytes(8, "big") for key in keys], pa.binary()),
            "d": doubles,
            "f": pa.array(doubles.astype(np.float32)),
            "t": pa.array(keys * 1000 - 2**50, pa.timestamp("us")),
            "day": pa.array((keys % 20_000).astype(np.int32)).cast(pa.date32()),
            "dec": pa.array((keys % 1_000_000).tolist(), pa.int64()).cast(pa.decimal128(19, 0)),
            "flag": pa.array((keys % 4 == 0).astype(bool)),
            "none": pa.nulls(rows, pa.int64()),
            "pair": pa.array(
                [None if n % 5 == 0 else {"x": n * 2**33, "y": f"y{n}"} for n in range(rows)],
                pa.struct([("x", pa.int64()), ("y", pa.string())]),
            ),
            "tags": [[f"t{n}"] * (n % 3) for n in range(rows)],
        }
    )


def written(path: Path, table: pa.Table, **options: Any) -> Path:
    settings = {
        "stripe_size": 20_000,
        "row_index_stride": 500,
        "batch_size": 1250,
        "compression_block_size": 65536,
        **options,
    }
    orc.write_table(table, path, **settings)
    return path
