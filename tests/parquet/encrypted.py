"""The encrypted files and their keys, which are public."""

from __future__ import annotations

from typing import Any

from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.parquet.encrypted.plain_view import DecryptedSource, unlock
from sidecar.storage.local import LocalSource
from sidecar.storage.source import Source
from tests.parquet.foreign import DATA

KC1, KC2 = b"1234567890123450", b"1234567890123451"
_LONG = b"1234567890123456789012345678901"

OURS: dict[str, Any] = {
    "footer_key": b"0123456789012345",
    "column_keys": {"str": KC1},
    "retriever": ExplicitKeys({b"kc2": KC2}),
}
APACHE: dict[str, Any] = {
    "footer_key": b"0123456789012345",
    "column_keys": {"double_field": KC1, "float_field": KC2},
}
APACHE_256: dict[str, Any] = {
    "footer_key": b"01234567890123456789012345678901",
    "column_keys": {
        path: _LONG + str(digit).encode()
        for digit, path in enumerate(
            (
                "double_field",
                "float_field",
                "boolean_field",
                "int32_field",
                "ba_field",
                "flba_field",
                "int64_field.list.element",
                "int96_field",
            ),
            2,
        )
    },
}

WRITTEN = [
    "j118_enc_gcm_encfooter",
    "j118_enc_gcm_uniform_dict",
    "j118_enc_gcmctr_plainfooter_aadsupplied",
]
"""Files with expected values of their own."""

REBUILT = ["variants/er_enc_ctr_ef", "variants/er_enc_ef", "variants/er_enc_pf_signed"]
PUBLIC = sorted(path.name for path in DATA.glob("apache_*.encrypted"))


def path_of(name: str) -> str:
    return str(DATA / (name if name.endswith(".encrypted") else f"{name}.parquet"))


def keys_of(name: str, **changed: Any) -> EncryptionKeys:
    parts = APACHE_256 if "aes256" in name else APACHE if name.startswith("apache") else OURS
    prefix = {"aad_prefix": b"tester"} if "supplied" in name else {}
    return EncryptionKeys(**(parts | prefix | changed))


def opened(name: str, below: Source | None = None, **changed: Any) -> DecryptedSource:
    """The plaintext view of a file, or of ``below`` with that file's keys."""
    view = unlock(below or LocalSource(path_of(name)), keys_of(name, **changed))
    assert isinstance(view, DecryptedSource)
    return view
