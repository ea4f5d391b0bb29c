"""A small sidecar may claim 2^28 row groups: probe refuses it and inspect leaves the list out, in little memory."""

from __future__ import annotations

import struct
import tracemalloc
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import sidecar
from sidecar.bundle.model import Coverage, CoverageState, UnitEntry, UnitsTable
from sidecar.bundle.units import writer
from sidecar.bundle.units.coverage import encode_coverage
from sidecar.errors import UnsupportedFeatureError
from tests.bundle.cases import field_bundle, random_filters, units_table, write_file

CLAIMED = 1 << 28
MOST_BYTES = 64 << 20


class _Claim(tuple[UnitEntry, ...]):
    """Row groups of a file that says to have many more than it names."""

    def __len__(self) -> int:
        return CLAIMED


def one_run(coverage: Coverage) -> bytes:
    """The bytes of a coverage whose units all have the first state, without a look at each of them."""
    return encode_coverage(replace(coverage, codes=np.zeros(1, np.int32)))[:-8] + struct.pack("<II", CLAIMED, 0)


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    table = units_table(1, [3])
    (file,) = table.files
    states = (CoverageState("indexed"),)
    claimed = UnitsTable(
        [replace(file, units=_Claim(file.units))],
        table.manifests,
        table.schemas,
        [Coverage(4, kind, states, np.broadcast_to(np.int32(0), CLAIMED)) for kind in ("bloom", "theta")],
    )
    monkeypatch.setattr(writer, "encode_coverage", one_run)
    filters = random_filters(np.random.default_rng(1), [4, 4, 4])
    data, _ = write_file([field_bundle(4, filters)], claimed)
    (tmp_path / "claims.stats").write_bytes(data)
    assert len(data) < 20_000
    return str(tmp_path / "claims.stats")


def peak_of(act: Callable[[], object]) -> int:
    """How many bytes were allocated at once."""
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def refuse(path: str) -> None:
    with pytest.raises(UnsupportedFeatureError, match="too many row groups"):
        sidecar.probe(path, "4", "5")


def test_claims_cost_nothing(path: str) -> None:
    assert peak_of(lambda: refuse(path)) < MOST_BYTES
    assert peak_of(lambda: sidecar.inspect(path, fill=True).only) < MOST_BYTES
    found = sidecar.inspect(path, fill=True).only.to_dict()
    assert found["files"] == []
    assert [entry["units"] for entry in found["segments"][0]["coverage"]] == [{"indexed": CLAIMED}] * 2
    assert any("too many row groups" in warning for warning in found["warnings"])
    assert found["columns"][0]["kinds"]["bloom"]["fill"]["filters_read"] == 3
