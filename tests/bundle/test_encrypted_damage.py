"""Encrypted bundles whose pieces are moved or changed, whose keys do not fit: noticed, and every unit is kept."""

from __future__ import annotations

import base64
from hashlib import sha256

import numpy as np
import pytest

from sidecar.bundle.envelopes.checksum import ENCRYPTED
from sidecar.bundle.envelopes.encryption import KeyRing, Lock, Owner
from sidecar.bundle.filters.key_lookup import KeyRuns, units_with_some_key
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.verify import verify_sidecar
from sidecar.errors import UsageError
from sidecar.filters.probes import FieldQuestion
from sidecar.filters.values import Probe
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    TABLE,
    ask_hash,
    known_probes,
    open_bytes,
    random_filters,
)
from tests.bundle.encrypted_cases import KEYS, METADATA, bundle, key_of, write


def blob_at(data: bytes, field_id: int):  # type: ignore[no-untyped-def]
    blobs = SidecarFile.open(BytesSource(data)).puffin.metadata.blobs
    return next(blob for blob in blobs if blob.fields == (field_id,))


def test_moved_and_changed_pieces_are_noticed_and_keep_their_units():
    """Flipped, swapped between rows, regions and fields, replayed from another segment and another table."""
    rng = np.random.default_rng(3)
    filters = dict(enumerate(random_filters(rng, [2] * 2100, fill=0.3)))
    fields = [bundle(n, filters, key_of(n)) for n in (1, 2)]
    data = write(fields, 2100)
    layout = fields[0].groups[0].layout
    assert (layout.rows_sealed, layout.row_stride, layout.sealing) == (True, 263 + 28, ENCRYPTED)
    first, second = (blob_at(data, n).offset + 32 for n in (1, 2))
    other = write([bundle(1, filters, key_of(1, table=TABLE[:-1] + "6"))], 2100, table=TABLE[:-1] + "6")
    again = write([bundle(1, filters, key_of(1))], 2100)
    body, stride = layout.body_length, layout.row_stride

    def row(at: int, number: int) -> slice:
        return slice(at + number * stride, at + (number + 1) * stride)

    def swapped(a: slice, b: slice) -> bytes:
        changed = bytearray(data)
        changed[a], changed[b] = data[b], data[a]
        return bytes(changed)

    def replaced(source: bytes) -> bytes:
        at = blob_at(source, 1).offset + 32
        return data[:first] + source[at : at + body] + data[first + body :]

    def flipped(offset: int) -> bytes:
        return b"".join((data[:first], *(_flip(data[row(first, n)], offset) for n in range(512)), data[first + body :]))

    region = slice(first, first + 256 * stride), slice(first + 256 * stride, first + 512 * stride)
    rows_of_one = b"".join(data[row(first, n ^ 1)] for n in range(512))
    cases = {
        "nonce": flipped(0),
        "ciphertext": flipped(12),
        "tag": flipped(-1),
        "rows": data[:first] + rows_of_one + data[first + body :],
        "regions": swapped(*region),
        "fields": swapped(slice(first, first + body), slice(second, second + body)),
        "an older blob of the field": replaced(again),
        "another table": replaced(other),
    }
    asked = [ask_hash(1, int(value)) for value in rng.integers(0, 1 << 63, 3)]
    (sound,) = open_bytes(data, encryption_keys=KEYS).segments
    assert not any(sound.might_match(one).all() for one in asked)
    for name, changed in cases.items():
        assert len(changed) == len(data), name
        assert changed != data, name
        sidecar = open_bytes(changed, encryption_keys=KEYS)
        assert all(sidecar.segments[0].might_match(one).all() for one in asked), name
        assert ["do not decrypt" in warning for warning in sidecar.warnings] == [True], name
        assert verify_sidecar(BytesSource(changed), encryption_keys=KEYS), name
        everyone = np.zeros(2100, np.int64)
        question = FieldQuestion(1, known_probes(Probe("probe", (5,)), Probe("probe", (1 << 62,))))
        runs = KeyRuns(everyone, everyone + 2)
        kept = units_with_some_key(sidecar.segments[0].bundles[1], question, np.arange(2), runs, 1 << 30)
        assert np.asarray(kept).tolist() == [True] * 2100, name


def _flip(piece: bytes, offset: int) -> bytes:
    changed = bytearray(piece)
    changed[offset] ^= 0x40
    return bytes(changed)


def test_a_wrapped_key_fits_its_blob_alone():
    """A wrapped key opens nothing of another table, segment, field or purpose, or with another table of contents."""
    lock = key_of().lock("sbbf", b"toc of units", b"toc")
    tocs = sha256(b"toc of units").digest(), sha256(b"toc").digest()
    right = Owner(TABLE, SEGMENT, 1, "sbbf", *tocs)
    assert KeyRing(KEYS).place(lock, right).sealing == ENCRYPTED
    wrong = (
        Owner(TABLE[:-1] + "6", SEGMENT, 1, "sbbf", *tocs),
        Owner(TABLE, SEGMENT[::-1], 1, "sbbf", *tocs),
        Owner(TABLE, SEGMENT, 2, "sbbf", *tocs),
        Owner(TABLE, SEGMENT, 1, "orc-bloom", *tocs),
        Owner(TABLE, SEGMENT, 1, "sbbf", tocs[1], tocs[1]),
        Owner(TABLE, SEGMENT, 1, "sbbf", tocs[0], tocs[0]),
    )
    for owner in wrong:
        with pytest.raises(UsageError, match="not the one"):
            KeyRing(KEYS).place(lock, owner)
    for n in range(len(lock.wrapped_key)):
        with pytest.raises(UsageError):
            KeyRing(KEYS).place(Lock(METADATA, _flip(lock.wrapped_key, n)), right)


def test_damaged_tables_of_contents_keep_everything():
    """Every change of the encryption object in a table of contents means that the units are kept."""
    from sidecar.bundle.filters.filter_toc import decode_filter_toc
    from sidecar.bundle.filters.rules import SplitBlockRule
    from sidecar.errors import SidecarError

    filters = dict(enumerate(random_filters(np.random.default_rng(9), [2] * 70)))
    toc = open_bytes(write([bundle(1, filters, key_of())], 70)).segments[0].entries[1].toc
    assert decode_filter_toc(SplitBlockRule, toc).lock is not None
    for old, new in (
        (b'"AES_GCM"', b'"AES_XXX"'),
        (b'"version":3}', b'"version":2}'),
        (b'"wrapped_key":"', b'"wrapped_key":"!'),
        (b'"wrapped_key":"', b'"wrapped_key":"' + b"A" * 400),
        (b'"key_metadata":"', b'"key_metadata":7,"x":"'),
        (b'"encryption":{', b'"other":{'),
        (b'"version":3}', b'"version":true}'),
    ):
        assert old in toc, old
        with pytest.raises(SidecarError) as error:
            decode_filter_toc(SplitBlockRule, toc.replace(old, new))
        assert base64.b64encode(METADATA).decode() not in str(error.value)
    # A bundle that says it is plain has other lengths than its layout: stepped over.
    plain = decode_filter_toc(SplitBlockRule, toc.replace(b'"version":3}', b'"version":4}'))
    assert plain.groups == ()
    assert plain.damage
