"""Decides what happens to the indexes of columns that are encrypted in their data files.

A plaintext filter lets anyone who has it test values, page indexes and bounds show the smallest and largest values, and
a sketch tells how many distinct values there are. So none of them goes into a plaintext sidecar unless the caller
allows it. If the caller names a master key for the column, its bundles are encrypted
(:mod:`sidecar.bundle.envelopes.encryption`) and the column gets no sketch and no bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UsageError

PLAINTEXT_PROPERTY = "plaintext-of-encrypted-columns"
"""Property with the value ``true`` of blobs that hold plaintext from encrypted columns."""

NO_SKETCH = "no sketch of an encrypted column is kept"

LEAKS = (
    "whoever has it could test whether a value occurs, and in which files; read the smallest and largest values out "
    "of page indexes; and see how many distinct values there are"
)


@dataclass(frozen=True, repr=False)
class Protection:
    """The caller's choice for encrypted columns: their keys, and whether plaintext is allowed."""

    keys: EncryptionKeys | None = None
    allow_plaintext: bool = False

    def seals(self, path: str) -> bool:
        """Return whether the bundles of a column are encrypted. This holds for all files, encrypted or not."""
        return self.keys is not None and path in self.keys.bundle_keys

    def check(self, paths: list[str]) -> None:
        """Raise :class:`UsageError` if a named master key is missing."""
        for path in filter(self.seals, paths):
            self._master(path)

    def key_for(self, path: str, table_uuid: str, segment_id: bytes, field_id: int) -> FieldKey | None:
        """Make a fresh data key for a column of a segment; ``None`` if the column is kept in plaintext."""
        return FieldKey(*self._master(path), table_uuid, segment_id, field_id) if self.seals(path) else None

    def _master(self, path: str) -> tuple[bytes, bytes]:
        assert self.keys is not None
        key_metadata = self.keys.bundle_keys[path]
        key = self.keys.for_bundle(key_metadata)
        if key is None:
            raise UsageError(
                "the key that bundle_keys name for a column is not among the keys",
                column=path,
                hint="Add it to keys, under the same key metadata.",
            )
        return key, key_metadata


def refusal(paths: list[str]) -> UsageError:
    """Return the error for encrypted columns that would go into a plaintext sidecar."""
    return UsageError(
        f"an index of an encrypted column in a plaintext sidecar would leak: {LEAKS}",
        column=", ".join(paths),
        hint="Name a master key in bundle_keys of the encryption keys, and its bundles are encrypted; or allow "
        "plaintext explicitly (allow_plaintext=True, --allow-plaintext).",
    )


def properties_of(plaintext: bool) -> Mapping[str, str]:
    """Return the properties that a blob gets in the Puffin footer."""
    return {PLAINTEXT_PROPERTY: "true"} if plaintext else {}
