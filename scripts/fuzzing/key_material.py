"""Keys: key metadata in files, key material beside them, and files of keys."""

from __future__ import annotations

import base64
import json
import random
import tempfile
from pathlib import Path
from typing import Any

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError, attempt_each, value_of
from scripts.fuzzing.mutation import bytes_like
from scripts.fuzzing.trees import json_changed, json_extended
from sidecar.crypto.aes import encrypt_gcm
from sidecar.crypto.key_material import KEY_MATERIAL_TYPE, KmsKeys
from sidecar.crypto.keys import encryption_keys_from
from sidecar.storage.source import BytesSource
from tests.crypto.test_keys import CONFIG, MASTERS, Kms

DATA_KEY, ENCRYPTION_KEY, KEY_ID = b"data key of 16 b", b"encrypting key 1", b"id of the key"
REFERENCE = "keyOfColumn"


def text_of(data: bytes) -> str:
    return base64.b64encode(data).decode()


def wrapped(key: bytes) -> str:
    """A key that the key server of the tests has wrapped."""
    return text_of(encrypt_gcm(MASTERS["one"], key, b""))


def material(*, double: bool) -> dict[str, Any]:
    """The key material of one key."""
    common = {"keyMaterialType": KEY_MATERIAL_TYPE, "masterKeyID": "one", "doubleWrapping": double}
    if not double:
        return common | {"wrappedDEK": wrapped(DATA_KEY)}
    return common | {
        "keyEncryptionKeyID": text_of(KEY_ID),
        "wrappedKEK": wrapped(ENCRYPTION_KEY),
        "wrappedDEK": text_of(encrypt_gcm(ENCRYPTION_KEY, DATA_KEY, KEY_ID)),
    }


class KeyMaterial(Fuzzer):
    name = "key-material"
    what = "key metadata, key material beside files, files of keys"

    def make_seeds(self) -> list[bytes]:
        """Documents with three parts: key metadata, the file beside the data file, and a file of keys."""
        self.folder = tempfile.TemporaryDirectory()
        documents = []
        for double in (False, True):
            inside = material(double=double) | {"internalStorage": True}
            outside = {
                "keyMaterialType": KEY_MATERIAL_TYPE,
                "internalStorage": False,
                "keyReference": REFERENCE,
            }
            beside = {REFERENCE: json.dumps(material(double=double))}
            keys = {
                "footer_key": "hex:" + "00" * 16,
                "column_keys": {"a": "base64:" + text_of(DATA_KEY)},
                "keys": {"name": "hex:" + "11" * 16},
                "bundle_keys": {"a": "name"},
                "aad_prefix": "prefix",
            }
            documents += [{"metadata": one, "beside": beside, "keys": keys} for one in (inside, outside)]
        return [json.dumps(document).encode() for document in documents]

    def changed(self, rng: random.Random, seed: int) -> bytes:
        document = json.loads(self.seeds[seed])
        part = rng.choice(list(document))
        if part == "beside" and rng.random() < 0.5:
            document[part][REFERENCE] = json.dumps(json_changed(rng, json.loads(document[part][REFERENCE])))
        else:
            document[part] = json_changed(rng, document[part])
        return json.dumps(document).encode()

    def extended(self, rng: random.Random, seed: int) -> bytes:
        document = json.loads(self.seeds[seed])
        document["metadata"] = json_extended(rng, document["metadata"])
        return json.dumps(document).encode()

    def blind(self, rng: random.Random, seed: int) -> bytes:
        """Changes a wrapped key by bytes: it must be noticed, as AES-GCM seals it."""
        document = json.loads(self.seeds[seed])
        stored = document["metadata"]
        if REFERENCE in stored.values():
            stored = json.loads(document["beside"][REFERENCE])
        name = rng.choice([name for name in stored if name.startswith("wrapped")])
        stored[name] = text_of(bytes_like(rng, base64.b64decode(stored[name])))
        if REFERENCE in document["metadata"].values():
            document["beside"][REFERENCE] = json.dumps(stored)
        return json.dumps(document).encode()

    def read(self, case: Case) -> None:
        document = json.loads(case.data)
        metadata = json.dumps(document["metadata"]).encode()
        beside = json.dumps(document["beside"]).encode()
        path = Path(self.folder.name, "keys.json")
        path.write_text(json.dumps(document["keys"]))
        keys = KmsKeys(Kms, CONFIG, lambda _: BytesSource(beside)).beside("it.parquet")
        found = value_of(lambda: keys.key(metadata))
        if case.change is Change.NEUTRAL and found != DATA_KEY:
            raise WrongAnswerError("a key is not found for an unknown member of its material")
        if case.change is Change.BLIND and found not in (None, DATA_KEY):
            raise WrongAnswerError("damage of a wrapped key gives another key")
        attempt_each([lambda: keys.key(metadata), lambda: encryption_keys_from(str(path))])
