"""Encrypted sidecars that somebody without keys has changed, all checksums made good: nothing is denied that is there.

Whoever has the keys must keep every unit of every value, and ``verify`` with the keys must name a problem.
"""

from __future__ import annotations

import hashlib
import io
import json
from collections.abc import Callable
from typing import Any

import pytest

from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.sections import Section
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.toc import write_toc
from sidecar.bundle.verify import verify_sidecar
from sidecar.bundle.writer import copy_segments
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.puffin.writer import PuffinWriter
from sidecar.storage.source import BytesSource, CountingSource
from tests.bundle.cases import (
    SEGMENT,
    SEQUENCE,
    SNAPSHOT,
    TABLE,
    open_bytes,
)
from tests.bundle.forgeries import (
    FORGERIES,
    KEYS,
    MASTER,
    METADATA,
    NAMED,
    UNITS,
    asked,
    entry_of,
    file_table,
    lost,
    sealed,
    swapped_fingerprints,
    write,
)
from tests.iceberg.forging import Forgery, encoded, put_sections, sections_of


@pytest.fixture(scope="module")
def sound() -> bytes:
    return write(sealed())


def test_a_sound_sidecar_denies_what_is_not_there(sound):
    """The oracle can fail: it sees answers, and it sees a filter that denies."""
    assert lost(sound) == []
    (segment,) = open_bytes(sound, encryption_keys=KEYS, strict=True).segments
    for field_id in (1, 2):
        kept = [int(segment.might_match(asked(field_id, value_of)).sum()) for value_of in range(0, 50_000, 999)]
        assert max(kept) < 5
    assert segment.page_index(1, 7)[:2] == entry_of(7)
    assert len(lost(write(lambda field_id: None, empty=True), EncryptionKeys())) > UNITS


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
def test_who_has_the_keys_is_not_deceived(sound, forge):
    forged = Forgery.of(sound)
    forge(forged)
    forged.link()
    data = forged.stored()
    assert lost(data) == []
    assert verify_sidecar(BytesSource(data), encryption_keys=KEYS)


@pytest.mark.parametrize("forge", FORGERIES, ids=lambda forge: forge.__name__)
@pytest.mark.parametrize("whole", [True, False])
def test_forged_copies_of_tables_of_contents_deceive_nobody(sound, forge, whole):
    """Copies that say something else than the blobs (``whole``), or blobs that say something else than the copies."""
    forged = Forgery.of(sound)
    forge(forged)
    forged.link()
    said = {(b.type, b.fields): json.loads(encoded(b.toc)) for b in forged.blobs}
    true = {(b.type, b.fields): b.toc for b in Forgery.of(sound).blobs}
    bodies = Forgery.of(sound) if whole else forged
    tocs = said if whole else true
    kinds = {"units": "sidecar-units-v1", **{b.toc["kind"]: b.type for b in bodies.blobs}}

    def change(toc: dict[str, Any]) -> None:
        fields = (toc["field"],) if "field" in toc else ()
        new = tocs.get((kinds[toc["kind"]], fields))
        if new is not None:
            toc.clear()
            toc.update(new)

    data = bodies.stored(change)
    assert lost(data) == []
    if data != Forgery.of(sound).stored():
        assert verify_sidecar(BytesSource(data), encryption_keys=KEYS)


def test_a_piece_has_the_digest_of_its_own_place_alone():
    pieces = [b"first", b"second"]
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    section = Section("files", 0, 64, 2, 100, digests)
    assert [[section.is_piece(at, piece) for at in range(3)] for piece in pieces] == [
        [True, False, False],
        [False, True, False],
    ]


def test_a_changed_piece_with_a_good_seal_is_not_the_one_that_was_written(sound):
    forged = Forgery.of(sound)
    swapped_fingerprints(forged, digests=False)
    data = forged.stored()
    assert lost(data) == []
    problems = verify_sidecar(BytesSource(data), encryption_keys=KEYS)
    assert [p for p in problems if "fingerprints" in p.problem]
    sidecar = open_bytes(data, encryption_keys=KEYS)
    assert sidecar.segments[0].file_ordinal(file_table().files[1].identity) is None
    assert any("does not match its digest in the table of contents" in warning for warning in sidecar.warnings)


def test_segments_that_swap_their_names():
    """Two segments of one file, of other files each; the units of one say that they are the other's."""
    second = SEGMENT[::-1]
    table = file_table(3)
    files = [type(f)(**(vars(f) | {"manifest": -1})) for f in table.files]
    rolled = type(table)(files, (), table.schemas, table.coverage)
    one, two = Forgery.of(write(sealed())), Forgery.of(write(sealed(second), segment=second, units=rolled))
    forged = Forgery([*one.blobs, *two.blobs])
    units = [forged.units(0), forged.units(1)]
    parts = [sections_of(blob) for blob in units]
    for blob, own, name in zip(units, parts, (second, SEGMENT), strict=True):
        blob.toc["segment"] = name.hex()
        put_sections(blob, own)
    forged.link()
    data = forged.stored()
    assert len(open_bytes(data, encryption_keys=KEYS).segments) == 2
    assert lost(data) == []
    assert verify_sidecar(BytesSource(data), encryption_keys=KEYS)


@pytest.mark.parametrize("how", ["all blobs in plaintext", "under a key of the forger's"])
def test_a_field_whose_key_is_named_answers_with_that_key_alone(how):
    """Where no blob of the file is encrypted with the field's key, who names the key still is not deceived."""
    mine = b"key of a forger!"
    keys = EncryptionKeys(ExplicitKeys({METADATA: MASTER, b"forger": mine}), allow_plaintext_indexes=True)
    made: Callable[[int], FieldKey | None] = lambda field_id: None  # noqa: E731
    if how != "all blobs in plaintext":
        made = lambda field_id: FieldKey(mine, b"forger", TABLE, SEGMENT, field_id)  # noqa: E731
    data = write(made, empty=True)
    assert lost(data, keys, NAMED) == []
    sidecar = SidecarFile.open(BytesSource(data), table_uuid=TABLE)
    sidecar.use_keys(keys, NAMED)
    assert sidecar.segments[0].might_match(asked(1, 5)).all()
    assert sidecar.vouched_segments([1]) == []
    assert sidecar.vouched_segments([9]) == sidecar.segments
    assert sidecar.warnings
    if how == "all blobs in plaintext":
        sidecar.use_keys(EncryptionKeys(), {})
        assert not sidecar.segments[0].might_match(asked(1, 5)).any()


def test_segments_are_still_carried_as_bytes_with_other_segments(sound):
    """Nothing that binds a blob speaks of the file, the snapshot or the other segments."""
    second = SEGMENT[::-1]
    old, other = open_bytes(sound), open_bytes(write(sealed(second), segment=second))
    sink = io.BytesIO()
    puffin = PuffinWriter(sink)
    place = {"snapshot_id": SNAPSHOT + 1, "sequence_number": SEQUENCE + 1}
    entries = copy_segments(other, puffin, **place)
    entries += copy_segments(old, puffin, keep=lambda entry: entry.blob_type != "sidecar-page-index-v1", **place)
    write_toc(puffin, entries, **place)
    puffin.finish()
    data = sink.getvalue()
    assert verify_sidecar(BytesSource(data), encryption_keys=KEYS) == []
    carried = open_bytes(data, encryption_keys=KEYS, strict=True)
    assert len(carried.vouched_segments([1])) == 2
    for segment in carried.segments:
        assert int(segment.might_match(asked(1, 7000)).sum()) < 5
        assert segment.row_indexes(1, [3])[3][0] == entry_of(3)[0]


def test_binding_costs_no_read(sound):
    """A lookup in an encrypted sidecar makes as many reads as in a plain one; unlocking makes none."""
    reads = {}
    for name, data, keys in (("plain", write(lambda f: None), None), ("encrypted", sound, KEYS)):
        source = CountingSource(BytesSource(data))
        sidecar = SidecarFile.open(source, encryption_keys=keys)
        opened = source.reads
        assert len(sidecar.vouched_segments([1, 2])) == 1
        assert source.reads == opened
        (segment,) = sidecar.segments
        segment.might_match(asked(1, 5))
        segment.might_match(asked(2, 5))
        segment.page_index(1, 7)
        segment.file_ordinal(file_table().files[1].identity)
        reads[name] = opened, source.reads
    assert reads["plain"] == reads["encrypted"]
