"""The footer's payload: JSON of ``FileMetadata`` with its ``BlobMetadata`` (Puffin spec, "Footer Payload").

Decoding is strict, because the footer has no checksum: required keys, exact types (neither a bool nor a float is
an integer), 32 bits for field ids and 64 bits for the rest, strings that are valid Unicode, no duplicate keys,
no NaN. Unknown keys are kept in ``extra`` and written back, so that a copied blob keeps what its writer recorded.
``"compression-codec": null`` means uncompressed, as in Iceberg's own reader.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import pairwise

from sidecar.errors import DamagedFileError

MAX_NESTING = 32
"""The most levels that values of unknown keys may nest."""

_MAX_DIGITS = 20
_INT32 = (-(2**31), 2**31 - 1)
_INT64 = (-(2**63), 2**63 - 1)
_LENGTH = (0, 2**63 - 1)
_BLOB_KEYS = (
    "type",
    "fields",
    "snapshot-id",
    "sequence-number",
    "offset",
    "length",
    "compression-codec",
    "properties",
)
_FILE_KEYS = ("blobs", "properties")


@dataclass(frozen=True)
class BlobMetadata:
    """The footer's metadata of one blob, with the specification's names. ``offset`` and ``length`` are in bytes."""

    type: str
    fields: tuple[int, ...]
    snapshot_id: int
    sequence_number: int
    offset: int
    length: int
    compression_codec: str | None = None
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)


@dataclass(frozen=True)
class FileMetadata:
    """The decoded footer: all blobs in the footer's order, and the file's properties."""

    blobs: tuple[BlobMetadata, ...] = ()
    properties: Mapping[str, str] = field(default_factory=dict, hash=False)
    extra: Mapping[str, object] = field(default_factory=dict, hash=False)


class InvalidMetadataError(ValueError):
    """A value that a footer must not have. Readers turn it into DamagedFileError, writers into UsageError."""

    def __init__(self, what: str, expected: object, found: object) -> None:
        self.what = what
        self.expected = expected
        self.found = shorten(found)
        super().__init__(f"{what}: expected {expected}, found {self.found}")


def decode_metadata(payload: bytes) -> FileMetadata:
    """Decode an uncompressed payload.

    Raises :class:`DamagedFileError` for anything but exactly one valid ``FileMetadata``.
    """
    try:
        document = json.loads(
            payload.decode("utf-8"),
            object_pairs_hook=_object,
            parse_int=_integer,
            parse_float=_float,
            parse_constant=_constant,
        )
        return file_from_json(document)
    except InvalidMetadataError as error:
        what, expected, found = error.what, error.expected, error.found
    except UnicodeDecodeError as error:
        what, expected, found = "the footer is not UTF-8", "UTF-8", f"{error.reason} at byte {error.start}"
    except json.JSONDecodeError as error:
        what, expected, found = "the footer is not JSON", "JSON", f"{error.msg} at character {error.pos}"
    except RecursionError:
        what, expected, found = "the footer nests too deep", f"at most {MAX_NESTING} levels", "more"
    raise DamagedFileError(what, expected=expected, found=found)


def encode_metadata(metadata: FileMetadata) -> bytes:
    """Return the uncompressed payload: compact JSON, with keys in the order of Iceberg's own writer."""
    document: dict[str, object] = {"blobs": [blob_to_json(blob) for blob in metadata.blobs]}
    if metadata.properties:
        document["properties"] = dict(metadata.properties)
    document.update(metadata.extra)
    return json.dumps(document, ensure_ascii=False, separators=(",", ":")).encode("utf-8")


def blob_to_json(blob: BlobMetadata) -> dict[str, object]:
    """Return a blob as the footer's JSON object. Optional keys without a value are omitted."""
    document: dict[str, object] = {
        "type": blob.type,
        "fields": list(blob.fields),
        "snapshot-id": blob.snapshot_id,
        "sequence-number": blob.sequence_number,
        "offset": blob.offset,
        "length": blob.length,
    }
    if blob.compression_codec is not None:
        document["compression-codec"] = blob.compression_codec
    if blob.properties:
        document["properties"] = dict(blob.properties)
    document.update(blob.extra)
    return document


def file_from_json(document: object) -> FileMetadata:
    """Validate the footer's JSON object. Raises :class:`InvalidMetadataError`."""
    members = _members(document, "the footer")
    blobs = _required(members, "blobs", "the footer")
    if not isinstance(blobs, list):
        raise InvalidMetadataError("the footer's blobs are wrong", "a list", blobs)
    return FileMetadata(
        tuple(blob_from_json(blob, f"blob {i}") for i, blob in enumerate(blobs)),
        _properties(members, "the footer"),
        _extra(members, _FILE_KEYS, "the footer"),
    )


def blob_from_json(document: object, where: str = "the blob") -> BlobMetadata:
    """Validate one blob's JSON object. Raises :class:`InvalidMetadataError` with ``where`` in the message."""
    members = _members(document, where)
    fields = _required(members, "fields", where)
    if not isinstance(fields, list):
        raise InvalidMetadataError(f"{where}: fields is wrong", "a list of field ids", fields)
    codec = members.get("compression-codec")
    return BlobMetadata(
        type=_string(_required(members, "type", where), f"{where}: type"),
        fields=tuple(_bounded(field_id, _INT32, f"{where}: fields") for field_id in fields),
        snapshot_id=_bounded(_required(members, "snapshot-id", where), _INT64, f"{where}: snapshot-id"),
        sequence_number=_bounded(_required(members, "sequence-number", where), _INT64, f"{where}: sequence-number"),
        offset=_bounded(_required(members, "offset", where), _LENGTH, f"{where}: offset"),
        length=_bounded(_required(members, "length", where), _LENGTH, f"{where}: length"),
        compression_codec=None if codec is None else _string(codec, f"{where}: compression-codec"),
        properties=_properties(members, where),
        extra=_extra(members, _BLOB_KEYS, where),
    )


def shorten(value: object) -> str:
    """Return a value as text for a message: one line of at most about 80 characters."""
    if isinstance(value, (dict, list)) and value:
        return f"{'an object' if isinstance(value, dict) else 'a list'} of {len(value)}"
    text = ascii(value[:100] if isinstance(value, (str, bytes)) else value)
    return text if len(text) <= 80 else text[:77] + "..."


def _object(pairs: list[tuple[str, object]]) -> dict[str, object]:
    """Build an object, but refuse duplicate keys, because readers differ in which value they take."""
    members = dict(pairs)
    if len(members) != len(pairs):
        keys = sorted(key for key, _ in pairs)
        twice = next(key for key, after in pairwise(keys) if key == after)
        raise InvalidMetadataError("the footer has a key twice", "each key once", twice)
    return members


def _integer(text: str) -> int:
    # Python takes time quadratic in the number of digits, and refuses more than 4,300 of them.
    if len(text) > _MAX_DIGITS:
        raise InvalidMetadataError(
            "the footer has an integer that is too long", f"at most {_MAX_DIGITS} characters", text
        )
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise InvalidMetadataError("the footer has a number outside the range of doubles", "a finite number", text)
    return value


def _constant(text: str) -> object:
    raise InvalidMetadataError("the footer has a number that is not JSON", "a finite number", text)


def _members(document: object, where: str) -> dict[str, object]:
    if not isinstance(document, dict):
        raise InvalidMetadataError(f"{where} is wrong", "an object", document)
    return document


def _required(members: dict[str, object], key: str, where: str) -> object:
    if key not in members:
        raise InvalidMetadataError(f"{where} does not have a required key", key, "nothing")
    return members[key]


def _string(value: object, where: str) -> str:
    if not isinstance(value, str) or not _is_unicode(value):
        raise InvalidMetadataError(f"{where} is wrong", "a string of Unicode characters", value)
    return value


def _is_unicode(text: str) -> bool:
    """Return False for text with a lone surrogate, which JSON can escape but UTF-8 cannot encode."""
    if text.isascii():
        return True
    try:
        text.encode("utf-8")
    except UnicodeEncodeError:
        return False
    return True


def _bounded(value: object, bounds: tuple[int, int], where: str) -> int:
    if type(value) is not int or not bounds[0] <= value <= bounds[1]:
        raise InvalidMetadataError(f"{where} is wrong", f"an integer from {bounds[0]} to {bounds[1]}", value)
    return value


def _properties(members: dict[str, object], where: str) -> dict[str, str]:
    properties = members.get("properties", {})
    if not isinstance(properties, dict):
        raise InvalidMetadataError(f"{where}: properties is wrong", "an object of strings", properties)
    return {
        _string(key, f"{where}: a property's name"): _string(value, f"{where}: property {shorten(key)}")
        for key, value in properties.items()
    }


def _extra(members: dict[str, object], known: tuple[str, ...], where: str) -> dict[str, object]:
    extra = {key: value for key, value in members.items() if key not in known}
    if extra:
        _check_kept(extra, where)
    return extra


def _check_kept(extra: dict[str, object], where: str) -> None:
    """Check that the values of unknown keys can be written back."""
    level: list[object] = [extra]
    for _ in range(MAX_NESTING):
        below: list[object] = []
        for value in level:
            if isinstance(value, str):
                _string(value, f"{where}: an unknown key or its value")
            elif isinstance(value, dict):
                below.extend(value.keys())
                below.extend(value.values())
            elif isinstance(value, list):
                below.extend(value)
        if not below:
            return
        level = below
    raise InvalidMetadataError(f"{where} nests too deep", f"at most {MAX_NESTING} levels", "more")
