"""What becomes of indexes of columns that are encrypted in their data files.

A filter in plaintext lets anyone who has it test values, a page index and bounds show the smallest and largest ones,
and a sketch tells how many there are. So none of them goes into a plaintext sidecar unless the caller says so; where
the caller names a master key for the column, its bundles are encrypted (:mod:`sidecar.bundle.encryption`), and it has
no sketch and no bounds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sidecar.bundle.encryption import FieldKey
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import UsageError

PLAINTEXT_PROPERTY = "plaintext-of-encrypted-columns"
"""Property, ``true``, of blobs that hold in plaintext what is encrypted in data files."""

NO_SKETCH = "no sketch of an encrypted column is kept"

LEAKS = (
    "whoever has it could test whether a value occurs, and in which files; read the smallest and largest values out "
    "of page indexes; and see how many distinct values there are"
)


@dataclass(frozen=True, repr=False)
class Protection:
    """What the caller says of encrypted columns: keys, and whether plaintext is allowed."""

    keys: EncryptionKeys | None = None
    allow_plaintext: bool = False

    def seals(self, path: str) -> bool:
        """Whether the bundles of a column are encrypted, which then holds for all its files."""
        return self.keys is not None and path in self.keys.bundle_keys

    def check(self, paths: list[str]) -> None:
        """Raise :class:`UsageError` if a master key is named that is not to be had."""
        for path in filter(self.seals, paths):
            self._master(path)

    def key_for(self, path: str, table_uuid: str, segment_id: bytes, field_id: int) -> FieldKey | None:
        """A fresh data key for a column of a segment, ``None`` if it is kept in plaintext."""
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
    """The error for columns that would go into a plaintext sidecar."""
    return UsageError(
        f"an index of an encrypted column in a plaintext sidecar would leak: {LEAKS}",
        column=", ".join(paths),
        hint="Name a master key in bundle_keys of the encryption keys, and its bundles are encrypted; or allow "
        "plaintext in so many words (allow_plaintext=True, --allow-plaintext).",
    )


def properties_of(in_clear: bool) -> Mapping[str, str]:
    """The blob's properties in the Puffin footer."""
    return {PLAINTEXT_PROPERTY: "true"} if in_clear else {}
