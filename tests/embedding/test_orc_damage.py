"""Embedding into damaged ORC files, and storage that fails: the columns that it hits, and nothing half written."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from sidecar.embedding.embed import embed
from sidecar.embedding.strip import strip
from sidecar.errors import DamagedFileError, SidecarError
from sidecar.orc.stripe import read_stripe_footer
from sidecar.orc.verify.verify import verify_file
from tests.embedding.orc_cases import numbers, opened, outcomes, streams, ways, written


def data_stream(path: Path, stripe: int, column: str) -> tuple[int, int]:
    source, tail = opened(path)
    found = tail.column(column)
    assert found is not None
    stream = read_stripe_footer(source, tail, tail.stripes[stripe]).stream(found.id, "DATA")
    assert stream is not None
    return stream.offset, stream.length


def test_damage_in_one_stripe_costs_the_column_in_all(tmp_path: Path) -> None:
    path = written(tmp_path / "flat.orc", numbers(), compression="zstd")
    offset, _ = data_stream(path, 1, "s")
    data = bytearray(path.read_bytes())
    data[offset + 3 : offset + 7] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    target = tmp_path / "target.orc"
    report = embed(str(path), into=str(target), bloom=["k", "s"]).only
    assert report.damaged
    assert ways(report) == {"k": {"values"}, "s": {"none"}}
    reasons = [one.reason for one in outcomes(report)["s"]]
    assert reasons[0].startswith("dropped: stripe 1 has no filters: ")
    assert not any(("BLOOM_FILTER_UTF8", "s") in one for one in streams(target))
    assert all(("BLOOM_FILTER_UTF8", "k") in one for one in streams(target))
    assert verify_file(opened(target)[0])


def test_no_half_written_file(tmp_path: Path) -> None:
    """Truncated and changed files: our error and nothing at the target, or a file with every row."""
    path = written(tmp_path / "flat.orc", numbers(1500).select(["k", "s", "d"]), compression="zlib")
    data = path.read_bytes()
    rng = random.Random(5)
    broken, target = tmp_path / "broken.orc", tmp_path / "target.orc"
    failed = 0
    for case in range(120):
        bad = bytearray(data)
        if case % 3 == 0:
            del bad[rng.randrange(len(bad)) :]
        else:
            bad[rng.randrange(len(bad) - 400 if case % 3 == 1 else 3, len(bad))] ^= 1 << rng.randrange(8)
        broken.write_bytes(bad)
        try:
            embed(str(broken), into=str(target), bloom=["k", "s"], threads=1)
        except SidecarError:
            failed += 1
            assert [p.name for p in tmp_path.iterdir() if p.name not in ("flat.orc", "broken.orc")] == []
        else:
            assert target.exists()
            target.unlink()
    assert failed > 40


def test_a_stripe_footer_that_cannot_be_read_leaves_nothing(tmp_path: Path) -> None:
    path = written(tmp_path / "flat.orc", numbers(), compression="uncompressed")
    last = opened(path)[1].stripes[-1]
    data = bytearray(path.read_bytes())
    data[last.footer_offset : last.footer_offset + 4] = b"\xff\xff\xff\xff"
    path.write_bytes(data)
    with pytest.raises(DamagedFileError):
        embed(str(path), into=str(tmp_path / "x.orc"), bloom=["k"])
    with pytest.raises(DamagedFileError):
        strip(str(path), str(tmp_path / "x.orc"))
    assert [p.name for p in tmp_path.iterdir()] == ["flat.orc"]
