"""Units that are damaged or cannot be right: manifests are opened instead, and plans stay right."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyiceberg.manifest import ManifestEntryStatus
from pyiceberg.table import Table

from sidecar.bundle.model import FileEntry
from sidecar.bundle.segment import Segment
from sidecar.planning.planner import plan
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import UNITS
from sidecar.reading.scanning import read
from sidecar.storage.source import BytesSource
from tests.iceberg.cases import create, local, replaced
from tests.iceberg.forging import Forgery, put_sections, sections_of
from tests.planning.listed_cases import WAYS, assert_same_tasks, build, task_values, way
from tests.planning.plan_cases import LONGS, create_longs, key, longs


def units_place(data: bytes) -> tuple[int, int]:
    with_units = [b for b in PuffinReader(BytesSource(data, "x")).metadata.blobs if b.type == UNITS]
    return with_units[0].offset, with_units[0].length


def test_damage_anywhere_in_the_units_opens_manifests_instead(catalog: Any) -> None:
    table = build(create(catalog, "db.listed_damage", files=3, partitioned=False), ["i", "s"])
    path = local(table.metadata.statistics[-1].statistics_path)
    whole = path.read_bytes()
    offset, length = units_place(whole)
    texts = ["i = 100", "s = 'värde-3'", "i in (1, 2, 3) or s = 'värde--7'", "i < -300"]
    right = {text: plan(table, text) for text in texts}
    rng = random.Random(52)
    opened = 0
    for position in sorted(rng.sample(range(offset, offset + length), 60)):
        data = bytearray(whole)
        data[position] ^= 1 << rng.randrange(8)
        text = rng.choice(texts)
        with replaced(path, bytes(data)), way(**rng.choice(WAYS[:2])):
            planned = plan(table, text)
        assert set(right[text].kept_files) <= set(planned.kept_files), position
        kept = {task.file.file_path: task_values(task) for task in planned.tasks}
        assert all(kept[task.file.file_path] == task_values(task) for task in right[text].tasks)
        assert planned.manifests.opened == 0 or planned.warnings or text == "i < -300", position
        opened += planned.manifests.opened
    assert opened > 20


@pytest.fixture(scope="module")
def pair(catalog: Any) -> Table:
    return create_longs(catalog, "db.listed_pair", 2)


FORMAT = b"\x0ePARQUET"
"""The format in an entry's record; the number of rows and the size of the file follow."""


def one_off(entry: bytes, at: int) -> bytes:
    """The record with the number that starts at ``at`` one more or less, in as many bytes."""
    return entry[:at] + bytes([entry[at] ^ 2]) + entry[at + 1 :]


@pytest.mark.parametrize(
    ("settings", "asked"), [(WAYS[0], f"k in ({key(0)}, {key(1)})"), (WAYS[3], "k > -99")], ids=["decoded", "walked"]
)
@pytest.mark.parametrize(
    "what",
    [
        "another file", "other rows", "another size", "another snapshot", "empty", "cut", "deleted", "unreadable",
        "no schema",
    ],
)  # fmt: skip
def test_records_that_cannot_be_right_open_the_manifest(
    pair: Table, monkeypatch: pytest.MonkeyPatch, what: str, settings: dict[str, Any], asked: str
) -> None:
    normal = plan(pair, asked)
    files, columns = Segment.files, Segment.file_columns
    records: dict[str, Callable[[list[bytes]], list[bytes]]] = {
        "another file": lambda found: found[::-1],
        "other rows": lambda found: [one_off(raw, raw.index(FORMAT) + 8) for raw in found],
        "another size": lambda found: [one_off(raw, raw.index(FORMAT) + 9) for raw in found],
        "another snapshot": lambda found: [one_off(raw, 2) for raw in found],
        "empty": lambda found: [b""] * len(found),
        "cut": lambda found: [raw[:-1] for raw in found],
        "deleted": lambda found: [bytes([2 * ManifestEntryStatus.DELETED.value]) + raw[1:] for raw in found],
    }

    def wrong(segment: Segment, wanted: Any) -> list[FileEntry]:
        found = files(segment, wanted)
        wrongs = records[what]([file.entry for file in found])
        return [replace(file, entry=raw) for file, raw in zip(found, wrongs, strict=True)]

    def wrong_columns(segment: Segment, wanted: Any) -> pa.Table:
        found = columns(segment, wanted)
        at = found.column_names.index("entry")
        return found.set_column(at, "entry", pa.array(records[what](found["entry"].to_pylist()), pa.binary()))

    if what in records:
        monkeypatch.setattr(Segment, "files", wrong)
        monkeypatch.setattr(Segment, "file_columns", wrong_columns)
    elif what == "unreadable":
        monkeypatch.setattr(Segment, "files", lambda _, wanted: [None] * len(wanted))
        monkeypatch.setattr(Segment, "file_columns", lambda *_: None)
    else:
        monkeypatch.setattr(Segment, "schemas", [])
    with way(**settings):
        planned = plan(pair, asked)
    assert (planned.manifests.listed, planned.manifests.opened) == (0, 2)
    assert any("in doubt" in warning for warning in planned.warnings)
    assert list(map(task_values, planned.tasks)) == list(map(task_values, normal.tasks))
    assert planned.funnel.dropped_by_filter == normal.funnel.dropped_by_filter


def with_first_file(data: bytes, live_files: int, first_file: int) -> bytes:
    """A sidecar in which the manifest of so many files begins at another file; every checksum is good."""
    forgery = Forgery.of(data)
    units = forgery.units()
    sections = sections_of(units)
    old = pa.ipc.open_stream(sections["manifests", 0][0]).read_all()
    rows = old.to_pylist()
    for row in rows:
        if row["live_files_count"] == live_files:
            row["first_file"] = first_file
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, old.schema) as writer:
        writer.write_table(pa.Table.from_pylist(rows, schema=old.schema))
    sections["manifests", 0] = [sink.getvalue().to_pybytes()]
    put_sections(units, sections)
    forgery.link()
    return forgery.stored()


@pytest.mark.parametrize(("live_files", "first_file"), [(2, 2), (2, 3), (1, 3)], ids=["half", "behind", "one behind"])
def test_a_listed_manifest_that_reaches_beyond_the_files_is_opened(
    catalog: Any, tmp_path: Path, live_files: int, first_file: int
) -> None:
    """Three files stand in the units table: one of a manifest of its own, and two of another."""
    table = catalog.create_table(f"db.listed_beyond_{live_files}_{first_file}", LONGS)
    for seeds in ([0], [1, 2]):
        paths = [tmp_path / f"{seed}.parquet" for seed in seeds]
        for seed, path in zip(seeds, paths, strict=True):
            pq.write_table(longs(seed), path)
        table.add_files([f"file:{path}" for path in paths])
    build(table, ["k"])
    entry = table.metadata.statistics[-1]
    data = with_first_file(local(entry.statistics_path).read_bytes(), live_files, first_file)
    local(entry.statistics_path).write_bytes(data)
    footer = int.from_bytes(data[-12:-8], "little") + 16
    sizes = {"file_size_in_bytes": len(data), "file_footer_size_in_bytes": footer}
    with table.update_statistics() as update:
        update.set_statistics(entry.model_copy(update=sizes))
    for seed in range(3):
        for planned in assert_same_tasks(table.refresh(), f"k = {key(seed)}"):
            assert read(planned)["v"].to_pylist() == [f"{seed}-17"]
            assert planned.manifests.opened >= 1
    for text in ("k < 0", "k is not null", "v = '1-3'"):
        assert_same_tasks(table, text)
