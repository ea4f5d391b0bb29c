"""Encrypted bundles and blobs of indexes: with the key the answers of plain ones, without it everything is kept."""

from __future__ import annotations

import base64
import hmac
import pickle
import random
import struct

import numpy as np
import pytest
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from sidecar.bundle.envelopes.checksum import CHECKED, ENCRYPTED, BlobContext
from sidecar.bundle.envelopes.encryption import MODULES_PER_KEY, Cipher, FieldKey, KeyRing, Lock, Owner, key_name
from sidecar.bundle.filters.layout import Layout
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import plan_index_groups
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, RowIndexKind
from sidecar.bundle.inspect import inspect_sidecar
from sidecar.bundle.verify import verify_sidecar
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import StorageError, UsageError
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    SEQUENCE,
    SNAPSHOT,
    TABLE,
    ask_hash,
    copy_file,
    group_filters,
    open_bytes,
    pages_of,
    random_filters,
    random_orc,
)
from tests.bundle.encrypted_cases import KEYS, MASTER, METADATA, bundle, key_of, write

WRONG = EncryptionKeys(ExplicitKeys({METADATA: bytes(32)}))
OTHERS = EncryptionKeys(ExplicitKeys({b"another": MASTER}))
PAGES = PageIndexKind("int64", "id", "signed:8", 1)
ROWS = RowIndexKind("id", "LONG", "DIRECT_V2", True, True, 0, 6)


def indexes(field_id: int, units: int, key: FieldKey | None) -> list:
    chance = random.Random(field_id)
    entries = {u: (chance.randbytes(30 * (u % 3)), chance.randbytes(1 + u % 50)) for u in range(units)}
    pages = plan_index_groups(PAGE_INDEXES, ((u, PAGES, tuple(map(len, parts))) for u, parts in entries.items()))
    rows = plan_index_groups(ROW_INDEXES, ((u, ROWS, (len(parts[1]),)) for u, parts in entries.items()))
    return [
        FieldIndexes(PAGE_INDEXES, field_id, pages, list(entries.values()), key),
        FieldIndexes(ROW_INDEXES, field_id, rows, [parts[1:] for parts in entries.values()], key),
    ]


SHAPES = {
    "transposed": ([16] * 20, None),
    "sliced regions": ([8] * 70, None),
    "widened": ([4] * 40 + [8] * 40, None),
    "rows alone": ([1] * 2100, None),
    "odd tails": ([3] * 10, 5),
}


@pytest.mark.parametrize("shape", [*SHAPES, "orc regions", "orc rows"])
def test_with_the_key_answers_are_those_of_plain_bundles(shape):
    rng = np.random.default_rng(len(shape))
    filters: dict[int, object] = {}
    tails = None
    if shape in SHAPES:
        sizes, tail = SHAPES[shape]
        filters = dict(enumerate(random_filters(rng, sizes, fill=0.8)))
        tails = None if tail is None else [rng.bytes(tail) for _ in sizes]
    else:
        filters = {u: random_orc(rng, 640, fill=0.8) for u in range(100 if shape == "orc regions" else 600)}
    units = len(filters)
    plain = open_bytes(write([bundle(1, filters, None, tails)], units)).segments[0]
    data = write([bundle(1, filters, key_of(), tails)], units)
    (segment,) = (sidecar := open_bytes(data, encryption_keys=KEYS, strict=True)).segments
    for value in rng.integers(0, 1 << 63, 12).tolist():
        asked = ask_hash(1, value, value ^ 0xFFFF)
        assert (segment.might_match(asked) == plain.might_match(asked)).all()
    assert not segment.might_match(ask_hash(1, *rng.integers(0, 1 << 63, 1).tolist())).all()
    for group in segment.fields[1]:
        found = dict(group_filters(segment, 1, group))
        own = next(g for g in plain.fields[1] if g.ordinal == group.ordinal)
        assert found == dict(group_filters(plain, 1, own))
    assert not sidecar.warnings
    assert verify_sidecar(BytesSource(data), encryption_keys=KEYS) == []
    for keys, why in ((None, "no keys"), (OTHERS, "not among"), (WRONG, "not the one")):
        locked = open_bytes(data, encryption_keys=keys)
        for value in (1, 2, 3):
            assert locked.segments[0].might_match(ask_hash(1, value)).all()
        assert len(locked.warnings) == 1
        assert why in locked.warnings[0]
        with pytest.raises(UsageError, match="encrypted"):
            list(group_filters(locked.segments[0], 1, locked.segments[0].fields[1][0]))
        assert any("not checked" in p.problem for p in verify_sidecar(BytesSource(data), encryption_keys=keys))


def test_indexes_are_encrypted_entry_by_entry():
    data = write([], 2100, indexes(1, 2100, key_of()))
    plain = open_bytes(write([], 2100, indexes(1, 2100, None))).segments[0]
    (segment,) = (sidecar := open_bytes(data, encryption_keys=KEYS, strict=True)).segments
    asked = [0, 5, 1023, 1024, 2047, 2099]
    assert segment.page_indexes(1, asked) == plain.page_indexes(1, asked)
    assert segment.row_indexes(1, asked) == plain.row_indexes(1, asked)
    assert verify_sidecar(BytesSource(data), encryption_keys=KEYS) == []
    for keys in (None, OTHERS, WRONG):
        locked = open_bytes(data, encryption_keys=keys)
        assert locked.segments[0].page_indexes(1, asked) == {} == locked.segments[0].row_indexes(1, asked)
        assert len(locked.warnings) == 1
    whole = {read: getattr(plain, read)(1, range(2100)) for read in ("page_indexes", "row_indexes")}
    for blob in sidecar.puffin.metadata.blobs[:2]:
        start = blob.offset + 32
        for at in (start, start + 20, blob.offset + blob.length // 2):
            changed = bytearray(data)
            changed[at] ^= 1
            hurt = open_bytes(bytes(changed), encryption_keys=KEYS)
            for read, entries in whole.items():
                found = getattr(hurt.segments[0], read)(1, range(2100))
                assert found.items() <= entries.items()
            assert hurt.warnings
            assert verify_sidecar(BytesSource(bytes(changed)), encryption_keys=KEYS)


def test_key_servers_are_asked_once_and_may_fail():
    class Server:
        asked = 0

        def key(self, key_metadata: bytes) -> bytes | None:
            self.asked += 1
            raise StorageError("the key server does not answer")

    server = Server()
    data = write([bundle(1, dict(enumerate(random_filters(np.random.default_rng(1), [2] * 70))), key_of())], 70)
    sidecar = open_bytes(data, encryption_keys=EncryptionKeys(server))
    assert server.asked == 0
    for value in range(5):
        assert sidecar.segments[0].might_match(ask_hash(1, value)).all()
    assert (server.asked, len(sidecar.warnings)) == (1, 1)
    sidecar.use_keys(KEYS)
    assert not all(sidecar.segments[0].might_match(ask_hash(1, value << 55)).all() for value in range(40))


def test_the_layout_of_the_page():
    """What SPEC.md says of sizes, and of a piece: decrypted here with nothing but AES."""
    assert Layout(658, 1024, sealing=ENCRYPTED).region_stride == 256 * 83 + 28
    assert Layout(2041, 2, sealing=ENCRYPTED).length == 2 * 256 * (256 + 28)
    assert Layout(10, 2, tail=7, widened=True, sealing=ENCRYPTED).length == 640 + 28 + 70 + 28 + 40 + 28
    assert ENCRYPTED.overhead - CHECKED.overhead == 20
    cipher = Cipher(bytes(16), TABLE)
    context = struct.pack("<Ii16sIIQ", 2, 1, SEGMENT, 3, 4, 5)
    piece = cipher.encrypt(context, b"bits")
    aad = bytes.fromhex(TABLE.replace("-", "")) + context
    name = b"sidecar piece key" + struct.pack("<III", 2, 3, 0)
    own = hmac.digest(bytes(16), name, "sha256")[:16]
    assert AESGCM(own).decrypt(piece[:12], piece[12:], aad) == b"bits"
    assert cipher.encrypt(context, b"bits")[:12] != piece[:12]
    assert pickle.loads(pickle.dumps(cipher)).decrypt(context, piece) == b"bits"
    for short in (b"", piece[:27], piece[:-1]):
        assert cipher.decrypt(context, short) is None


def test_nothing_secret_stands_outside_the_ciphertext():
    """Keys nowhere; key metadata only in tables of contents, as base64; nothing in texts that people see."""
    key = key_of()
    rng = np.random.default_rng(5)
    filters = dict(enumerate(random_filters(rng, [2] * 70)))
    bits = {filters[0].tobytes(), filters[69].tobytes()}
    secret_entry = b"planted bounds of a page index!!"
    pages = FieldIndexes(
        PAGE_INDEXES,
        1,
        plan_index_groups(PAGE_INDEXES, [(0, PAGES, (len(secret_entry), 4))]),
        [(secret_entry, b"abcd")],
        key,
    )
    data = write([bundle(1, filters, key)], 70, [pages])
    encoded = base64.b64encode(METADATA)
    sidecar = open_bytes(data)
    inside = sum(entry.toc.count(encoded) for entry in sidecar.segments[0].entries)
    assert inside == 2
    assert data.count(encoded) == 2 * inside
    for planted in (MASTER, METADATA, secret_entry, key._data_key, base64.b64encode(MASTER), *bits):
        assert planted not in data
    segment = sidecar.segments[0]
    segment.might_match(ask_hash(1, 1))
    wrong = open_bytes(data, encryption_keys=WRONG)
    wrong.segments[0].might_match(ask_hash(1, 1))
    texts = [
        repr(inspect_sidecar(BytesSource(data)).to_dict()),
        repr(verify_sidecar(BytesSource(data))),
        repr([sidecar.warnings, wrong.warnings]),
        repr(
            [
                KEYS,
                key,
                key.place,
                key.lock("sbbf", b"", b""),
                segment.bundles[1].toc,
                bundle(1, filters, key),
            ]
        ),
        repr(sidecar.puffin.metadata),
    ]
    assert '"encrypted"' in texts[0].replace("'", '"')
    for text in texts:
        for planted in (MASTER, METADATA, encoded, key._data_key.hex().encode()):
            assert planted.decode("latin-1") not in text
    assert "expected_false_units" not in segment.entries[1].toc.decode()


def test_carried_as_bytes_they_stay_readable_and_keep_their_properties():
    filters = dict(enumerate(random_filters(np.random.default_rng(7), [2] * 70, fill=0.8)))
    given = bundle(1, filters, key_of())
    given.properties = {"said": "so"}
    old = open_bytes(write([given], 70))
    data, _ = copy_file(old, place={"snapshot_id": SNAPSHOT + 1, "sequence_number": SEQUENCE + 1})
    new = open_bytes(data, encryption_keys=KEYS, strict=True)
    assert new.puffin.metadata.blobs[0].properties == {"said": "so"}
    old.use_keys(KEYS)
    for value in range(5):
        asked = ask_hash(1, value << 60 | value)
        assert (new.segments[0].might_match(asked) == old.segments[0].might_match(asked)).all()


def test_impossible_keys_are_refused():
    with pytest.raises(UsageError):
        FieldKey(MASTER, bytes(1 << 17), TABLE, SEGMENT, 1)
    groups = plan_groups([GroupMember(0, "int64", "id", 64)])
    with pytest.raises(UsageError, match="planned for pieces with another overhead"):
        pages_of(groups, [np.zeros((2, 8), np.uint32)], key_of().place)


def test_one_key_at_hand_protects_a_field_whose_other_blobs_have_another_key():
    """Two builds, two keys, and the caller has one of them: plaintext of the field could still be anybody's."""
    ring = KeyRing(EncryptionKeys(ExplicitKeys({METADATA: MASTER}), allow_plaintext_indexes=True))
    for name in (b"another key", METADATA):
        ring.note_blob(1, Lock(name, b""), ["id"])
    ring.note_blob(2, Lock(b"another key", b""), ["id"])
    ring.note_blob(3, None, ["id"])
    assert [ring.protects(field_id) for field_id in (1, 2, 3)] == [True, False, False]


def test_a_field_that_is_named_later_is_not_believed_in_plaintext_any_more():
    """embed --from names fields by the paths of each file that it opens, when the sidecar may be in use already."""
    owner = Owner(TABLE, SEGMENT, 1, "bundle", bytes(32), bytes(32))
    ring = KeyRing(EncryptionKeys(ExplicitKeys({METADATA: MASTER}), allow_plaintext_indexes=True))
    assert ring.place(None, owner).field_id == 1
    ring.require_encrypted({1: METADATA})
    with pytest.raises(UsageError, match="in plaintext although its key was given"):
        ring.place(None, owner)


@pytest.mark.parametrize(
    ("keys", "is_believed"),
    [
        (None, True),
        (EncryptionKeys(), True),
        (EncryptionKeys(ExplicitKeys({})), True),
        (EncryptionKeys(ExplicitKeys({b"k": MASTER})), False),
        (EncryptionKeys(footer_key=MASTER), False),
        (EncryptionKeys(column_keys={"tax": MASTER}), False),
        (EncryptionKeys(ExplicitKeys({b"k": MASTER}), bundle_keys={"tax": b"k"}), True),
        (EncryptionKeys(ExplicitKeys({b"k": MASTER}), MASTER, bundle_keys={"tax": b"k"}), False),
        (EncryptionKeys(ExplicitKeys({b"k": MASTER}), MASTER, allow_plaintext_indexes=True), True),
        (EncryptionKeys(ExplicitKeys({b"k": MASTER}), MASTER, allow_plaintext_files=True), False),
    ],
)
def test_plaintext_is_believed_only_without_keys_of_files_or_if_they_allow_it(keys, is_believed):
    ring, owner = KeyRing(keys), Owner(TABLE, SEGMENT, 1, "bundle", bytes(32), bytes(32))
    assert ring.protects(1) is not is_believed
    if is_believed:
        assert ring.place(None, owner).field_id == 1
    else:
        with pytest.raises(UsageError, match=r"keys of encrypted files were given.*allow_plaintext_indexes"):
            ring.place(None, owner)


def test_no_key_encrypts_more_pieces_than_the_limit():
    """Each piece is decrypted here with the key that SPEC.md says; with a small limit, rows change keys on the dot."""
    limit, members = 200, 2100
    cipher = Cipher(bytes(range(32)), TABLE, limit)
    filters = dict(enumerate(random_filters(np.random.default_rng(1), [2] * members)))
    groups = plan_groups([GroupMember(unit, "int64", "id", 64) for unit in filters], ENCRYPTED)
    place = BlobContext(SEGMENT, 1, cipher)
    data = b"".join(pages_of(groups, filters, place))
    stride = groups[0].layout.row_stride
    assert (len(groups), len(data)) == (1, 512 * stride)
    used: dict[int, int] = {}
    for number in range(512):
        context = struct.pack("<Ii16sIIQ", 1, 1, SEGMENT, 0, number % 256, number // 256)
        piece, aad = data[number * stride :][:stride], bytes.fromhex(TABLE.replace("-", "")) + context
        opened = []
        for key_number in range(4):
            name = b"sidecar piece key" + struct.pack("<III", 1, 0, key_number)
            try:
                AESGCM(hmac.digest(bytes(range(32)), name, "sha256")).decrypt(piece[:12], piece[12:], aad)
            except InvalidTag:
                continue
            opened.append(key_number)
        assert opened == [number // limit], number
        used[opened[0]] = used.get(opened[0], 0) + 1
        assert place.open(context, piece) is not None
        assert BlobContext(SEGMENT, 1, Cipher(bytes(range(32)), TABLE)).open(context, piece) is None or number < limit
    assert used == {0: 200, 1: 200, 2: 112}


def test_the_largest_places_stay_below_what_random_nonces_allow():
    """A key has at most 2^31 places, and the next one takes the next key."""
    last = struct.pack("<Ii16sIIQ", 1, 1, SEGMENT, 7, 255, (1 << 23) - 1)
    after = struct.pack("<Ii16sIIQ", 1, 1, SEGMENT, 7, 0, 1 << 23)
    assert MODULES_PER_KEY == 1 << 31
    assert key_name(last) == b"sidecar piece key" + struct.pack("<III", 1, 7, 0)
    assert key_name(after) == b"sidecar piece key" + struct.pack("<III", 1, 7, 1)
    names = {key_name(struct.pack("<Ii16sIIQ", kind, 1, SEGMENT, g, 0, 0)) for kind in (1, 2) for g in (0, 1)}
    assert len(names) == 4
