"""Two statistics files of others become one: equal blobs are kept once, all others stay."""

from __future__ import annotations

import io
from typing import Any

import pytest

from sidecar.iceberg.statistics_files import merge
from sidecar.iceberg.statistics_files.merge import MARK, ExistingBlob, KeptSketch, Merge, plan_merge
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import THETA
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.tables import sketch_metadata, statistics_entry

Blob = tuple[str, list[int], bytes, dict[str, str]]
OURS = {MARK: "1", "ndv": "5"}


def existing(
    blobs: list[Blob], properties: dict[str, str] | None = None, *, registered: Any = None, lost: bool = False
) -> ExistingBlob:
    """A statistics file, and its entry in the table's metadata; ``lost``: it cannot be read."""
    sink = io.BytesIO()
    writer = PuffinWriter(sink, created_by="Another Engine", properties=properties)
    for blob_type, fields, data, own in blobs:
        writer.add_blob(blob_type, fields, 7, 1, data, properties=own)
    size, footer, metadata = writer.finish()
    sketches = [sketch_metadata(7, blob.fields, blob.properties) for blob in metadata.blobs if blob.type == THETA]
    entry = statistics_entry(7, "mem:/x.stats", size, footer, sketches if registered is None else registered)
    return ExistingBlob(entry, None if lost else PuffinReader(BytesSource(sink.getvalue())))


def copied(planned: Merge) -> list[bytes]:
    return [reader.read_raw(blob) for blob, reader in planned.copies]


def test_blobs_that_differ_behind_the_first_piece_are_two(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(merge, "COPY_LENGTH", 4)
    newer = existing([("index-v1", [1], b"same, then new", {})])
    older = existing([("index-v1", [1], b"same, then old", {})])
    assert copied(plan_merge([newer, older], [], {1})) == [b"same, then new", b"same, then old"]
    assert copied(plan_merge([newer, newer], [], {1})) == [b"same, then new"]


def test_blobs_of_equal_bytes_and_other_properties_are_two() -> None:
    newer = existing([("index-v1", [1], b"bytes", {"of": "a"})])
    older = existing([("index-v1", [1], b"bytes", {"of": "b"}), ("index-v1", [2], b"bytes", {"of": "a"})])
    assert len(plan_merge([newer, older], [], {1, 2}).copies) == 3


def test_properties_of_the_newer_file_win() -> None:
    newer, older = existing([], {"a": "new", "b": "1"}), existing([], {"a": "old", "c": "2"})
    assert plan_merge([newer, older], [], set()).properties == {"a": "new", "b": "1", "c": "2"}


def test_an_entry_of_two_columns_goes_when_one_of_them_is_dropped() -> None:
    """Engines look both of them up in the schema."""
    both = existing([(THETA, [1, 2], b"pairs", {"ndv": "9"}), (THETA, [1], b"one", {"ndv": "3"})])
    assert [tuple(e.fields) for e in plan_merge([both], [], {1, 2}).registered] == [(1, 2), (1,)]
    assert [tuple(e.fields) for e in plan_merge([both], [], {1}).registered] == [(1,)]


def test_of_two_older_sketches_of_ours_the_newer_one_stays() -> None:
    newer, older = (existing([(THETA, [1], data, OURS)]) for data in (b"newer", b"older"))
    planned = plan_merge([newer, older], [KeptSketch(2, b"x", 1)], {1, 2})
    assert copied(planned) == [b"newer"]
    assert [tuple(e.fields) for e in planned.registered] == [(1,)]


def test_a_sketch_of_two_columns_is_of_others_whoever_marked_it() -> None:
    """Others may keep the properties of our sketch of one column."""
    both = existing([(THETA, [1, 2], b"pairs", OURS), (THETA, [1], b"one", OURS)])
    planned = plan_merge([both], [KeptSketch(1, b"x", 1)], {1, 2})
    assert copied(planned) == [b"pairs"]
    assert [tuple(e.fields) for e in planned.registered] == [(1, 2)]


def test_of_a_file_that_cannot_be_read_the_entries_stay_ours_too() -> None:
    """They are all that is left of it."""
    gone = existing([(THETA, [1], b"ours", OURS), (THETA, [2], b"theirs", {"ndv": "4"})], lost=True)
    planned = plan_merge([gone], [], {1, 2})
    assert [tuple(e.fields) for e in planned.registered] == [(1,), (2,)]
    assert "its blobs are lost" in planned.notes[0]
