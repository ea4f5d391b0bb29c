"""Verifying a table, and what its status says of indexes: that is what is there, and damage is named."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.table import Table
from pyiceberg.table.statistics import BlobMetadata

import sidecar
from sidecar.errors import Problem, UsageError
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA
from sidecar.storage.source import BytesSource
from tests.iceberg.cases import INDEXED, append, create, local, replaced
from tests.iceberg.mixed_tables import append_files


@pytest.fixture(scope="module")
def table(catalog: Any) -> Table:
    """Three files of two row groups each, indexed, and one more that is not."""
    made = create(catalog, "db.inspect", files=3, partitioned=False)
    sidecar.build(made, ["i", "dec9", "s", "f", "st.x"], engine="local")
    made.refresh()
    append(made, 120, 40)
    return made


@pytest.fixture(scope="module")
def bare(catalog: Any) -> Table:
    return create(catalog, "db.inspect_bare", files=1, partitioned=False)


def statistics_file(table: Table) -> Path:
    return local(table.metadata.statistics[0].statistics_path)


def values_of(table: Table, column: str) -> dict[str, list[Any]]:
    """Values of a column by file."""
    from pyiceberg.expressions import AlwaysTrue
    from pyiceberg.io.pyarrow import ArrowScan

    reader = ArrowScan(table.metadata, table.io, table.schema().select(column), AlwaysTrue())
    return {task.file.file_path: reader.to_table([task])[column].to_pylist() for task in table.scan().plan_files()}


def test_status_says_what_is_covered(table: Table) -> None:
    found = sidecar.status(table)
    assert found.files.to_dict() == {"live": 4, "listed": 3}
    assert set(found.coverage) == {"i", "dec9", "s", "f", "st.x"}
    bloom = found.coverage["st.x"]["bloom"]
    assert (bloom.files, bloom.units, bloom.not_indexed) == (3, 6, {})
    assert bloom.bytes > 0
    theta = found.coverage["i"]["theta"]
    distinct = {v for path, column in values_of(table, "i").items() for v in column if v is not None}
    assert theta.units == 6
    assert abs(theta.ndv - len(distinct)) <= 40, "the newest file is not counted"
    [segment] = found.segments
    assert (segment.files, segment.live_files, segment.units) == (3, 3, 6)
    assert found.sidecar.path == table.metadata.statistics[0].statistics_path
    assert found.sidecar.snapshots_behind == 1
    assert found.sidecar.file_size == statistics_file(table).stat().st_size
    assert found.warnings == []


def test_status_counts_live_files_alone(catalog: Any) -> None:
    made = create(catalog, "db.inspect_live", files=3, partitioned=False)
    sidecar.build(made, ["i"], kinds=["bloom"], engine="local")
    made.refresh()
    made.delete("id < 40")
    found = sidecar.status(made)
    assert found.files.to_dict() == {"live": 2, "listed": 2}
    assert found.coverage["i"]["bloom"].files == 2
    assert found.segments[0].live_files == 2
    first = made.metadata.snapshots[2].snapshot_id
    assert sidecar.status(made, at=first).files.to_dict() == {"live": 3, "listed": 3}


def test_status_and_verify_without_a_sidecar(bare: Table) -> None:
    found = sidecar.status(bare)
    assert (found.sidecar, found.coverage, found.segments) == (None, {}, [])
    assert found.files.to_dict() == {"live": 1, "listed": 0}
    assert "has a sidecar" in sidecar.verify(bare).problems[0].problem


def test_a_sound_sidecar_has_no_problem(table: Table) -> None:
    found = sidecar.verify(table)
    assert found.problems == []
    assert found.checked == 4, "the sidecar and the three manifests that it lists"


def test_a_large_sketch_is_estimated_whole(catalog: Any) -> None:
    made = catalog.create_table("db.inspect_sketch", pa.schema([("k", pa.int64())]))
    made.append(pa.table({"k": range(30_000)}))
    sidecar.build(made, ["k"], kinds=["theta"], engine="local")
    made.refresh()
    assert sidecar.verify(made).problems == []
    assert abs(sidecar.status(made).coverage["k"]["theta"].ndv - 30_000) < 1_500


def test_damage_is_found_wherever_it_is(table: Table) -> None:
    """A flipped bit in blobs, framing and footer, evenly spread over the file.

    Left out are the sketches, which have no checksum (one hash may become another), and ``created-by``, which
    nothing reads.
    """
    path = statistics_file(table)
    whole = path.read_bytes()
    silent = [*_spans(whole, THETA), _of_created_by(whole)]
    places = [at for at in range(len(whole)) if not any(first <= at < last for first, last in silent)]
    missed = []
    for number, position in enumerate(places[:: len(places) // 60]):
        problems = _problems_of_flip(table, path, whole, position, number % 8)
        missed += [] if problems else [position]
        assert all(str(path) in str(problem) for problem in problems)
    assert missed == []


def test_damage_of_the_footer_is_found_at_every_byte(catalog: Any) -> None:
    made = create(catalog, "db.inspect_footer", files=1, partitioned=False)
    sidecar.build(made, ["i"], engine="local")
    made.refresh()
    path = statistics_file(made)
    whole = path.read_bytes()
    first, last = _of_created_by(whole)
    footer = PuffinReader(BytesSource(whole)).footer_offset
    places = [at for at in range(footer, len(whole)) if not first <= at < last]
    assert len(places) > 600
    # The lowest bits make another digit of a digit and another letter of a letter, so the footer stays JSON.
    missed = [at for at in places if not _problems_of_flip(made, path, whole, at, at % 2)]
    assert missed == []


@pytest.mark.parametrize("key", ["snapshot-id", "sequence-number"])
@pytest.mark.parametrize("all_blobs", [False, True])
def test_blobs_of_another_snapshot_are_named(table: Table, key: str, all_blobs: bool) -> None:
    path = statistics_file(table)
    whole = path.read_bytes()
    puffin = PuffinReader(BytesSource(whole))
    payload = json.loads(whole[puffin.footer_offset + 4 : -12])
    ours = [blob for blob in payload["blobs"] if blob["type"].startswith("sidecar-")]
    for blob in ours if all_blobs else ours[1:2]:
        blob[key] += 1
    text = json.dumps(payload, separators=(",", ":"), ensure_ascii=False).encode()
    footer = b"".join((b"PFA1", text, len(text).to_bytes(4, "little"), whole[-8:]))
    assert len(footer) == puffin.footer_length
    with replaced(path, whole[: puffin.footer_offset] + footer):
        problems = [problem.problem for problem in sidecar.verify(table).problems]
    named = [text for text in problems if "registered for" in text]
    assert len(named) == (len(ours) if all_blobs else 1)
    assert any("several snapshots" in text for text in problems) is not all_blobs


def _problems_of_flip(table: Table, path: Path, whole: bytes, position: int, bit: int) -> list[Problem]:
    data = bytearray(whole)
    data[position] ^= 1 << bit
    with replaced(path, bytes(data)):
        return sidecar.verify(table).problems


def _spans(whole: bytes, blob_type: str) -> list[tuple[int, int]]:
    blobs = PuffinReader(BytesSource(whole)).metadata.blobs
    return [(blob.offset, blob.offset + blob.length) for blob in blobs if blob.type == blob_type]


def _of_created_by(whole: bytes) -> tuple[int, int]:
    """Where the footer says who wrote the file, key and value."""
    value = PuffinReader(BytesSource(whole)).metadata.properties["created-by"]
    first = whole.rindex(b'"created-by":')
    last = whole.index(value.encode(), first) + len(value)
    return first + 1, last


def test_a_missing_file_is_a_problem(table: Table) -> None:
    with replaced(statistics_file(table), None):
        found = sidecar.verify(table)
        assert found.checked == 0
        assert "not used" in found.problems[0].problem
        assert sidecar.status(table).warnings
        assert sidecar.status(table).sidecar is None


def test_what_is_registered_must_be_in_the_file(table: Table) -> None:
    def problems(**changes: Any) -> str:
        metadata = table.metadata
        changed = metadata.model_copy(update={"statistics": [metadata.statistics[0].model_copy(update=changes)]})
        table.metadata = changed
        try:
            return " ".join(problem.problem for problem in sidecar.verify(table).problems)
        finally:
            table.metadata = metadata

    blobs = table.metadata.statistics[0].blob_metadata
    assert blobs
    other = blobs[0].model_copy(update={"properties": {"ndv": "777"}})
    missing = blobs[0].model_copy(update={"fields": [18]})
    foreign = BlobMetadata.model_construct(
        type="sidecar-units-v1", fields=[], snapshot_id=1, sequence_number=1, properties={}
    )
    size = table.metadata.statistics[0].file_size_in_bytes
    assert problems() == ""
    assert "other properties" in problems(blob_metadata=[other])
    assert "is not in the file" in problems(blob_metadata=[missing])
    assert "other readers" in problems(blob_metadata=[foreign])
    assert problems(file_size_in_bytes=size + 1)
    assert problems(file_footer_size_in_bytes=17)


def test_entries_that_are_not_those_of_the_manifest(table: Table, monkeypatch: pytest.MonkeyPatch) -> None:
    from sidecar.planning import verify_records

    real = verify_records.read_manifest

    def shifted(io: Any, line: Any) -> Any:
        contents = real(io, line)
        first = contents.entries[0]
        return type(contents)(
            **{
                **vars(contents),
                "entries": (type(first)(first.entry, first.raw + b"x"), *contents.entries[1:]),
            }
        )

    monkeypatch.setattr(verify_records, "read_manifest", shifted)
    found = sidecar.verify(table).problems
    assert len(found) == 3
    assert all("differs from the one in its manifest" in problem.problem for problem in found)


def test_status_has_every_indexable_type(catalog: Any) -> None:
    made = create(catalog, "db.inspect_types", files=1)
    sidecar.build(made, [*INDEXED, "bo"], engine="local")
    made.refresh()
    found = sidecar.status(made)
    assert set(found.coverage) == {*INDEXED, "bo"}
    boolean = found.coverage["bo"]["bloom"]
    assert boolean.units == 0
    assert sum(boolean.not_indexed.values()) == found.segments[0].units
    assert sidecar.verify(made).problems == []


def test_an_unknown_snapshot_is_refused(table: Table) -> None:
    with pytest.raises(UsageError, match="no snapshot 5"):
        sidecar.status(table, at=5)
    with pytest.raises(UsageError, match="no snapshot 5"):
        sidecar.verify(table, at=5)


def test_a_file_that_one_commit_names_twice_is_no_problem(catalog: Any) -> None:
    """Its fingerprint is ambiguous, so that plans keep it; nothing about it is wrong."""
    table = create(catalog, "db.verify_twice", files=2, partitioned=False)
    data_file = next(iter(table.scan().plan_files())).file
    append_files(table, [data_file] * 2)
    sidecar.build(table.refresh(), ["i"], engine="local")
    assert sidecar.verify(table.refresh(), data=True).problems == []
