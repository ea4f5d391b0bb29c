"""``sidecar-theta-groups-v1``: sketches come back as they were or not at all, and a plan never depends on them."""

from __future__ import annotations

import json
import random
from collections.abc import Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from sidecar.bundle.envelopes.checksum import BlobContext, PieceKind
from sidecar.bundle.envelopes.encryption import Lock
from sidecar.bundle.envelopes.envelope import HEADER_BYTES, encode_toc
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.merging.merged_sketches import merge_sketches
from sidecar.bundle.merging.merged_units import MergedUnits
from sidecar.bundle.segment import Segment
from sidecar.bundle.sketches.group_table import SketchGroup
from sidecar.bundle.sketches.regrouping import MOST_BYTES, MOST_FILES, joined, remapped
from sidecar.bundle.sketches.sketch_blob import FieldSketches, SketchGroupsBlob
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import DamagedFileError, SidecarError, UsageError
from sidecar.filters.theta import ThetaSketch
from sidecar.puffin.reader import PuffinReader
from sidecar.puffin.types import SBBF, THETA_GROUPS, UNITS
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    copy_file,
    field_bundle,
    filter_of,
    open_bytes,
    probe_for,
    segment_header,
    units_table,
    write_file,
)
from tests.bundle.damage import combine, edit_footer, raw_blobs, reword

FILES = 12


def sketch(values: Sequence[int], lg_k: int = 9) -> bytes:
    return ThetaSketch.from_arrow(pa.array(values, pa.int64()), "long", lg_k).to_bytes()


def group(files: Sequence[int], values: Sequence[int], kind: str = "long", **facts: int) -> SketchGroup:
    count = len(files)
    defaults = {"counted": count, "rows": 100 * count, "size": 1000 * count}
    return SketchGroup(np.array(files), type=kind, sketch=sketch(values), **{**defaults, **facts})


def test_files_that_are_all_gone_are_in_no_sketch() -> None:
    """A table that had moved was compacted so: IndexError."""
    source = cast(Any, SimpleNamespace(sketches={1: FieldSketches(1, [group([0, 1], [1, 2, 3])])}))
    gone = MergedUnits([], [np.full(2, -1)], [np.full(2, -1)], 0)
    assert merge_sketches([source], gone) == []


def test_a_group_stays_whole_until_newer_ones_have_all_its_files() -> None:
    """The rows of each group are those of its files, so that none seems to have lost some."""
    older, newer, newest = group([0, 1, 2], [1, 2, 3, 9]), group([0, 1], [1, 2]), group([2, 3], [3, 4])
    sources: Any = [SimpleNamespace(sketches={1: FieldSketches(1, [one])}) for one in (older, newer, newest)]
    identities = [SimpleNamespace(file_sequence_number=number) for number in range(4)]
    entries: Any = [SimpleNamespace(identity=identity) for identity in identities]
    units = MergedUnits(entries, [], [np.arange(4)] * 3, 0)

    def merged(count: int) -> list[dict[str, Any]]:
        return plain(merge_sketches(sources[:count], replace(units, new_files=units.new_files[:count]))[0].groups)

    assert merged(2) == plain([older, newer])
    assert merged(3) == plain([newer, newest])


GROUPS = [
    group([0, 1, 2], range(100)),
    group([4, 7, 11], range(50, 3000), counted=9, rows=900),
    group([5], []),
    group([7], [3], "int"),
]


def sidecar_bytes(fields: dict[int, Sequence[SketchGroup]], files: int = FILES) -> bytes:
    """A segment with filters of field 1 and these sketches."""
    bundle = field_bundle(1, [filter_of([unit], 2) for unit in range(files)])
    sketches = [FieldSketches(field_id, groups, {"note": "kept"}) for field_id, groups in fields.items()]
    return write_file([bundle, *sketches], units_table(files))[0]


def blob_in(data: bytes, field_id: int = 1, **options: Any) -> SketchGroupsBlob:
    (segment,) = open_bytes(data, **options).segments
    return segment.sketch_blobs[field_id]


def plain(groups: Sequence[SketchGroup]) -> list[dict[str, Any]]:
    return [{**vars(one), "files": one.files.tolist()} for one in groups]


def test_what_was_written_comes_back() -> None:
    data = sidecar_bytes({1: GROUPS, 4: GROUPS[:1]})
    assert plain(blob_in(data, strict=True).load()) == plain(GROUPS)
    assert plain(blob_in(data, 4, strict=True).load()) == plain(GROUPS[:1])
    assert verify_sidecar(BytesSource(data)) == []


def test_a_plan_does_not_read_it() -> None:
    """Nor is it among the blobs whose key would vouch for a segment."""
    opened = open_bytes(sidecar_bytes({1: [group([0], range(10_000))] * 20}))
    (segment,) = opened.segments
    assert all(not isinstance(blob, SketchGroupsBlob) for blob in segment.blobs)
    before = opened.index_bytes
    assert segment.might_match(probe_for(1, 3)).nonzero()[0].tolist() == [3]
    assert opened.index_bytes - before < 1000


def test_the_table_of_contents_stays_small() -> None:
    """A plan reads all tables of contents; that of many groups is no longer than that of one."""
    one, many = (len(segment_of(sidecar_bytes({1: [GROUPS[0]] * count})).entries[-1].toc) for count in (1, 500))
    assert many - one < 20


def segment_of(data: bytes) -> Segment:
    (segment,) = open_bytes(data).segments
    return segment


def test_it_is_copied_as_bytes_with_its_properties() -> None:
    data, _ = copy_file(open_bytes(sidecar_bytes({1: GROUPS})))
    assert plain(blob_in(data, strict=True).load()) == plain(GROUPS)
    (blob,) = [b for b in PuffinReader(BytesSource(data)).metadata.blobs if b.type == THETA_GROUPS]
    assert blob.properties == {"note": "kept"}


def test_no_byte_may_change_unseen_and_no_unit_is_lost() -> None:
    data = sidecar_bytes({1: GROUPS[:1] + GROUPS[2:]})
    (blob,) = [b for b in PuffinReader(BytesSource(data)).metadata.blobs if b.type == THETA_GROUPS]
    changed, chance = bytearray(data), random.Random(3)
    for at in [*range(blob.offset, blob.offset + HEADER_BYTES), *range(blob.offset, blob.offset + blob.length, 7)]:
        changed[at] ^= 1 << chance.randrange(8)
        assert verify_sidecar(BytesSource(bytes(changed))), at
        (segment,) = open_bytes(bytes(changed)).segments
        assert segment.might_match(probe_for(1, 3)).nonzero()[0].tolist() == [3]
        if 1 in segment.sketch_blobs:
            try:
                found = plain(segment.sketch_blobs[1].load())
            except SidecarError:
                found = []
            assert all(one in plain(GROUPS) for one in found), at
        changed[at] = data[at]


def test_a_damaged_sketch_costs_its_group_alone() -> None:
    data = bytearray(sidecar_bytes({1: GROUPS}))
    data[data.index(GROUPS[1].sketch) + 40] ^= 1
    blob = blob_in(bytes(data))
    assert plain(blob.load()) == plain([GROUPS[0], *GROUPS[2:]])
    found = {one.number: result for one, result in blob.read(blob.groups())}
    assert isinstance(found[1], DamagedFileError)
    assert isinstance(found[0], ThetaSketch)


def test_sketches_that_change_places_are_refused() -> None:
    """Both are sound and of one length; each counts other files."""
    groups = [group([0], range(10)), group([1], range(10, 20))]
    data = bytearray(sidecar_bytes({1: groups}))
    places = [data.index(one.sketch) for one in groups]
    length = len(groups[0].sketch) + 8
    one, two = (bytes(data[at : at + length]) for at in places)
    data[places[0] : places[0] + length], data[places[1] : places[1] + length] = two, one
    assert blob_in(bytes(data)).load() == []


def test_sealed_nonsense_is_not_a_sketch() -> None:
    nonsense = SketchGroup(np.array([0]), 1, 1, 1, "long", b"not a sketch")
    data = sidecar_bytes({1: [nonsense, GROUPS[0]]})
    blob = blob_in(data)
    results = [result for _, result in blob.read(blob.groups())]
    assert isinstance(results[0], SidecarError)
    assert isinstance(results[1], ThetaSketch)
    assert len(verify_sidecar(BytesSource(data))) == 1


def with_table(change: Any) -> bytes:
    """A sidecar whose table of sketches was changed and sealed again."""
    filters, sketches, units, _ = map(bytes, raw_blobs(sidecar_bytes({1: [GROUPS[0], GROUPS[2]]})))
    place = BlobContext(segment_header().segment_id, 1)
    start = sketches.index(b'{"sketches":[')
    end = int.from_bytes(sketches[16:24], "little")
    table = json.loads(sketches[start : end - 8])
    change(table["sketches"])
    sealed = place.seal(place.context(PieceKind.GROUP_TABLE), encode_toc(table))

    def grow(toc: dict[str, Any]) -> None:
        toc["groups"][0]["table"] = len(sealed)
        toc["groups"][0]["length"] += len(sealed) - (end - start)
        toc["toc_offset"] += len(sealed) - (end - start)

    shifted = bytearray(sketches[:start] + sealed + sketches[end:])
    shifted[16:24] = (start + len(sealed)).to_bytes(8, "little")
    strange = reword(shifted, grow)
    segment = segment_header().segment_id
    return combine(
        [(SBBF, (1,), segment, filters), (THETA_GROUPS, (1,), segment, strange), (UNITS, (), segment, units)]
    )


def test_a_table_that_was_changed_and_sealed_again_is_read() -> None:
    assert [one.rows for one in blob_in(with_table(lambda table: table[0].update(rows=7))).load()] == [7, 100]


@pytest.mark.parametrize(
    "change",
    [
        {"length": 7},
        {"length": 1 << 24},
        {"length": 999},
        {"length": None},
        {"files": {"runs": [[0, FILES + 1]]}},
        {"files": {"runs": []}},
        {"files": {"runs": [[0, 1], [2, 1 << 40]]}},
        {"files": "all"},
        {"counted": 2},
        {"counted": 1 << 70},
        {"rows": -1},
        {"size": 1.5},
        {"type": "x" * 201},
        {"type": 5},
    ],
)
def test_an_impossible_table_is_refused(change: dict[str, Any]) -> None:
    data = with_table(lambda table: table[0].update(change))
    with pytest.raises(DamagedFileError):
        blob_in(data).load()
    assert verify_sidecar(BytesSource(data))
    (segment,) = inspect_sidecar(BytesSource(data)).segments
    assert len(segment["sketches"][0]["damage"]) == 1


def test_groups_are_as_many_as_the_place_says() -> None:
    with pytest.raises(DamagedFileError, match="wrong length"):
        blob_in(with_table(list.pop)).load()


def test_files_may_be_in_several_groups_but_not_in_thousands(monkeypatch: pytest.MonkeyPatch) -> None:
    from sidecar.bundle.sketches import group_table

    data = sidecar_bytes({1: [group([0, 1], [1])] * 10})
    assert len(blob_in(data).groups()) == 10
    monkeypatch.setattr(group_table, "REPEATED_FILES", 4)
    with pytest.raises(DamagedFileError, match="too many files"):
        blob_in(data).groups()


@pytest.mark.parametrize(
    "change",
    [
        lambda toc: toc["groups"][0].update(version=2),
        lambda toc: toc["groups"][0].update(sketches=0),
        lambda toc: toc["groups"][0].update(sketches=1 << 17),
        lambda toc: toc["groups"][0].update(table=1 << 40),
        lambda toc: toc["groups"][0].update(length=1 << 40),
        lambda toc: toc["groups"][0].update(offset=0),
        lambda toc: toc.update(version=3),
        lambda toc: toc.update(version=3, encryption=Lock(b"key", b"wrapped").encode()),
        lambda toc: toc.update(field=9),
        lambda toc: toc["units"].update(digest="0" * 16),
    ],
)
def test_a_strange_table_of_contents_hides_the_sketches_and_nothing_else(change: Any) -> None:
    filters, sketches, units, _ = map(bytes, raw_blobs(sidecar_bytes({1: GROUPS})))
    segment = segment_header().segment_id
    strange = reword(bytearray(sketches), change)
    data = combine(
        [(SBBF, (1,), segment, filters), (THETA_GROUPS, (1,), segment, strange), (UNITS, (), segment, units)]
    )
    opened = open_bytes(data)
    assert opened.segments[0].might_match(probe_for(1, 3)).nonzero()[0].tolist() == [3]
    blob = opened.segments[0].sketch_blobs.get(1)
    if blob is None:
        assert opened.warnings
    else:
        with pytest.raises(SidecarError):
            blob.groups()
    assert verify_sidecar(BytesSource(data))


def test_a_footer_with_another_field_hides_it_under_both() -> None:
    def rename(payload: Any) -> None:
        next(blob for blob in payload["blobs"] if blob["type"] == THETA_GROUPS).update(fields=[2])

    (segment,) = open_bytes(edit_footer(sidecar_bytes({1: GROUPS}), rename)).segments
    assert segment.sketch_blobs == {}


def test_wrong_calls() -> None:
    for groups in ([], [group([FILES], [1])], [group([-1], [1])], [group([0], [1], counted=0)]):
        with pytest.raises(UsageError):
            sidecar_bytes({1: groups})


def test_inspect_names_the_groups() -> None:
    found = inspect_sidecar(BytesSource(sidecar_bytes({1: GROUPS})))
    (described,) = found.segments[0]["sketches"]
    assert [(one["files"], one["counted"], one["rows"], one["type"]) for one in described["groups"]] == [
        (3, 3, 300, "long"),
        (3, 9, 900, "long"),
        (1, 1, 100, "long"),
        (1, 1, 100, "int"),
    ]
    (column,) = [column for column in found.columns if column.id == 1]
    assert column.kinds["theta-groups"].bytes == sum(len(one.sketch) + 8 for one in GROUPS) + _table_bytes()


def _table_bytes() -> int:
    return blob_in(sidecar_bytes({1: GROUPS})).toc.places[0].table_length


@given(st.lists(st.lists(st.integers(0, 30), min_size=1, unique=True), min_size=1, max_size=6), st.randoms())
@settings(max_examples=25, deadline=None)
def test_remapped_and_joined_groups_count_the_same_values(drawn: list[list[int]], chance: random.Random) -> None:
    """The union stays, whatever files are gone; groups hold the remaining files under their new ordinals."""
    groups = [group(sorted(files), [f * 10 + n for f in files for n in range(3)]) for files in drawn]
    kept = [ordinal for ordinal in range(31) if chance.random() < 0.7]
    new = np.full(31, -1)
    new[kept] = chance.sample(range(len(kept)), len(kept))
    moved = remapped(groups, new)
    surviving = [one for one in groups if set(one.files.tolist()) & set(kept)]
    assert [one.files.tolist() for one in moved] == [
        sorted(int(new[f]) for f in one.files if new[f] >= 0) for one in surviving
    ]
    assert [(one.counted, one.rows, one.sketch) for one in moved] == [
        (one.counted, one.rows, one.sketch) for one in surviving
    ]
    whole = joined(moved, np.zeros(31, np.int64))
    newest = group(list(range(31, 300)), [1])  # it has so many files that all others may be united
    united = joined([*moved, newest], np.arange(300))
    assert [len(one.files) for one in united] == (
        [len({int(f) for one in moved for f in one.files})] if moved else []
    ) + [269]
    assert union(whole) == union(moved)
    assert sum(one.rows for one in whole) == sum(one.rows for one in moved)
    assert {int(f) for one in whole for f in one.files} == {int(f) for one in moved for f in one.files}


def union(groups: Sequence[SketchGroup]) -> bytes:
    return ThetaSketch.union([ThetaSketch.from_bytes(one.sketch, 9) for one in groups], 9).to_bytes()


def test_joined_groups_keep_to_the_limits() -> None:
    many, newest = range(10, 200), np.arange(200)

    def count(groups: list[SketchGroup]) -> int:
        """The groups without the last one, which has so many files that it leaves the limits to the others."""
        return len(joined([*groups, group(list(many), [1], groups[-1].type, counted=MOST_FILES)], newest)) - 1

    half = {"counted": MOST_FILES // 2}
    assert count([group([i], [i], **half) for i in range(4)]) == 2
    assert count([group([i], [i], size=MOST_BYTES // 2) for i in range(4)]) == 2
    assert count([group([0], [1]), group([1], [2], "int"), group([2], [3])]) == 2


def test_joined_groups_have_fewer_files_than_are_newer() -> None:
    """Whatever a rollback takes away, fewer others are counted again."""
    ages = np.arange(40)[::-1]  # the newest manifest is the first
    groups: list[SketchGroup] = []
    for ordinal in ages.tolist():
        groups = joined([*groups, group([ordinal], [ordinal])], ages)
        cuts = np.cumsum([len(one.files) for one in sorted(groups, key=lambda one: int(ages[one.files].max()))])
        for removed in range(1, 40 - ordinal):
            kept = (40 - ordinal) - removed
            again = kept - max([int(cut) for cut in cuts if cut <= kept], default=0)
            assert again < removed, (groups, removed)
    assert len(groups) <= 7
