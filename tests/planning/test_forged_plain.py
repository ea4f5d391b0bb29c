"""What the guide "trust" says of plaintext sidecars: a forged one loses rows, and only the values show it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyarrow as pa
import pytest

import sidecar
from scripts.fuzzing.puffin_files import payload_of
from scripts.fuzzing.sidecar_layout import pieces_of, put_piece
from sidecar.bundle.units import arrow_tables, writer
from tests.iceberg.cases import create, local
from tests.iceberg.forging import Forgery
from tests.tables import create_with_rows


def with_empty_filters(data: bytes) -> bytes:
    """The sidecar with filters that deny every value, and good checksums."""
    out, forged = bytearray(data), Forgery.of(data)
    places = {(blob["type"], tuple(blob["fields"])): blob["offset"] for blob in payload_of(data)["blobs"]}
    for blob, pieces in zip(forged.blobs, pieces_of(data), strict=True):
        if blob.toc["kind"] == "sbbf":
            for piece in pieces:
                put_piece(blob, piece, bytes(piece.length))
            stored, start = blob.stored(), places[blob.type, blob.fields]
            out[start : start + len(stored)] = stored
    return bytes(out)


def test_a_forged_filter_loses_rows_until_values_are_compared(catalog: Any) -> None:
    table = create_with_rows(catalog, "db.forged_plain", [pa.table({"n": [1, 2]}), pa.table({"n": [3]})], columns=["n"])
    assert sidecar.plan(table, "n = 3").files_kept == 1
    path = local(table.metadata.statistics[0].statistics_path)
    path.write_bytes(with_empty_filters(path.read_bytes()))
    plan = sidecar.plan(table, "n = 3")
    assert plan.files_kept == 0
    assert not plan.warnings
    assert table.scan("n = 3").to_arrow().num_rows == 1  # pyiceberg does not ask the sidecar
    assert sidecar.verify(table).problems == []
    found = [problem.problem for problem in sidecar.verify(table, data=True).problems]
    assert any("denies" in problem for problem in found), found


def built_with(made: Any, name: str, forged: Any) -> list[str]:
    """The problems of a sidecar that was built while the writer of a section was replaced."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(*forged)
        sidecar.build(made, ["i"], engine="local", full=True)
    made.refresh()
    found = sidecar.verify(made).problems
    assert {problem.file for problem in found} == {entry.statistics_path for entry in made.metadata.statistics}
    return [problem.problem for problem in found if name in str(problem.column or name)]


def test_bounds_and_partitions_that_are_not_those_of_the_manifests_are_named(catalog: Any) -> None:
    made = create(catalog, "db.forged_columns", files=3)
    sidecar.build(made, ["i"], engine="local")
    made.refresh()
    assert sidecar.verify(made).problems == []
    real_bounds, real_partitions = writer._bounds, arrow_tables.encode_partitions

    def narrow(files: Any, field_id: int) -> bytes:
        bounds = [{k: b._replace(lower=b.upper) for k, b in file.bounds.items()} for file in files]
        return real_bounds([replace(f, bounds=b) for f, b in zip(files, bounds, strict=True)], field_id)

    def moved(files: Any) -> bytes:
        return real_partitions([replace(file, partition=files[0].partition) for file in files])

    assert "the bounds of" in built_with(made, "i", (writer, "_bounds", narrow))[0]
    assert "the partition of" in built_with(made, "part", (arrow_tables, "encode_partitions", moved))[0]
