"""Names of columns in tables of contents: what is written, what is refused, and which name wins."""

from __future__ import annotations

import io
import json
from dataclasses import replace

import numpy as np
import pytest

from sidecar.bundle.columns import NamedColumns
from sidecar.bundle.envelopes.envelope import encode_toc
from sidecar.bundle.filters.filter_toc import decode_filter_toc
from sidecar.bundle.filters.rules import SplitBlockRule
from sidecar.bundle.model import StoredColumn
from sidecar.bundle.segment import named_columns
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.writer import write_segment, write_toc
from sidecar.errors import DamagedFileError, UsageError
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource
from tests.bundle import encrypted_cases
from tests.bundle.cases import PLACE, field_bundle, open_bytes, random_filters, segment_header, units_table, write_file

ODD = [("a.b", "", 'x"\\'), ("\N{DROPLET}", "größe", "\x00\n"), ("name:x|y", "1")]


def sidecar_of(*segments: tuple[int, dict[int, StoredColumn | None]]) -> SidecarFile:
    """A sidecar with a segment for each sequence number and {field id: its column, or None}."""
    sink = io.BytesIO()
    puffin, entries = PuffinWriter(sink), []
    for sequence, columns in segments:
        segment = bytes([sequence]) * 16
        own = {i: column for i, column in columns.items() if column is not None}
        header = replace(segment_header(segment), sequence_number=sequence, columns=own)
        filters = random_filters(np.random.default_rng(sequence), [2] * 3)
        fields = [field_bundle(i, filters, segment) for i in columns]
        entries += write_segment(puffin, header, units_table(3), fields, **PLACE)
    write_toc(puffin, entries, **PLACE)
    puffin.finish()
    return SidecarFile.open(BytesSource(sink.getvalue(), "x.stats"), strict=True)


def named(*path: str, kind: str = "long") -> StoredColumn:
    return StoredColumn(path, kind)


@pytest.mark.parametrize("path", ODD)
def test_odd_names_come_back_as_they_were(path: tuple[str, ...]) -> None:
    sidecar = sidecar_of((1, {7: named(*path)}))
    assert sidecar.segments[0].columns == {7: named(*path)}
    names = NamedColumns.of(sidecar.segments)
    assert names.find(".".join(path), "x") == names.find("7", "x") == names.find(7, "x") == [7]
    assert (names.name(7), names.type(7)) == (".".join(path), "long")


@pytest.mark.parametrize(
    "column",
    [named("x" * 5000), named(*["x"] * 129), named(), named("x", kind="y" * 257), named("\ud800"), named("ä" * 2049)],
    ids=lambda column: f"{len(column.path)} {len(''.join(column.path))}",
)
def test_names_beyond_the_limits_are_not_written_and_refused(column: StoredColumn) -> None:
    sidecar = sidecar_of((1, {7: column}))
    assert sidecar.segments[0].columns == {7: None}
    toc = json.loads(sidecar.segments[0].entries[1].toc)
    hostile = encode_toc({**toc, "column": {"name": list(column.path), "type": column.type}})
    with pytest.raises(DamagedFileError, match="the name of a column"):
        decode_filter_toc(SplitBlockRule, hostile)


@pytest.mark.parametrize(
    "content",
    [
        None,
        [],
        "id",
        {},
        {"name": "id", "type": "long"},
        {"name": ["id"]},
        {"name": ["id"], "type": None},
        {"name": [1], "type": "long"},
        {"name": [["id"]], "type": "long"},
        {"name": {"id": 1}, "type": "long"},
    ],
)
def test_malformed_names_are_damage(content: object) -> None:
    toc = json.loads(sidecar_of((1, {7: None})).segments[0].entries[1].toc)
    assert "column" not in toc
    with pytest.raises(DamagedFileError, match="the name of a column is malformed"):
        decode_filter_toc(SplitBlockRule, encode_toc({**toc, "column": content}))


def test_the_newest_name_wins_and_a_name_that_moved_is_that_of_one_column() -> None:
    sidecar = sidecar_of(
        (3, {1: named("b"), 5: named("a", kind="string")}), (2, {1: named("a"), 2: named("c")}), (1, {2: named("d")})
    )
    names = NamedColumns.of(sidecar.segments)
    assert {i: names.name(i) for i in (1, 2, 5)} == {1: "b", 2: "c", 5: "a"}
    assert (names.find("a", "x"), names.type(5), names.find("b", "x")) == ([5], "string", [1])
    with pytest.raises(UsageError, match=r"no column 'd'.*It has"):
        names.find("d", "x")
    # Column 1 was dropped before the name was given to column 5.
    gone = NamedColumns.of(sidecar_of((2, {1: named("a")}), (3, {5: named("a")})).segments)
    assert (gone.find("a", "x"), gone.find("1", "x")) == ([5], [1])


def test_two_fields_of_one_name_in_one_segment_are_both_asked() -> None:
    names = NamedColumns.of(sidecar_of((1, {1: named("a"), 2: named("a"), 3: named("a", "b")})).segments)
    assert names.find("a", "x") == [1, 2]


def test_a_number_is_the_id_of_a_field_and_not_the_name_of_another() -> None:
    names = NamedColumns.of(sidecar_of((1, {5: named("x"), 9: named("5"), 10: named("77")})).segments)
    assert names.find("5", "x") == names.find(5, "x") == [5]
    assert names.find("9", "x") == [9]
    assert names.find("77", "x") == [10]
    with pytest.raises(UsageError, match="no column '77'"):
        names.find(77, "x")


def test_what_one_segment_withholds_is_not_carried_on() -> None:
    sidecar = sidecar_of((1, {1: named("a"), 2: named("b")}), (2, {1: None, 2: named("c")}))
    assert named_columns(sidecar.segments) == {2: named("c")}


def test_an_encrypted_blob_has_no_name() -> None:
    filters = dict(enumerate(random_filters(np.random.default_rng(9), [2] * 3)))
    fields = [encrypted_cases.bundle(1, filters, encrypted_cases.key_of()), encrypted_cases.bundle(2, filters, None)]
    columns = {1: named("social_security"), 2: named("town", kind="string")}
    data, _ = write_file(fields, units_table(3), replace(segment_header(), columns=columns))
    assert b"social_security" not in data
    assert b"town" in data
    (segment,) = open_bytes(data, strict=True).segments
    assert segment.columns == {1: None, 2: columns[2]}
