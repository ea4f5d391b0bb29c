"""An encrypted sidecar, what is lost of a changed one, and all changes that somebody without keys can make.

Each forgery is a change of what a position means, or of which blob answers.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.envelopes.encryption import FieldKey
from sidecar.bundle.filters.field_bundle import FieldBundle
from sidecar.bundle.filters.key_lookup import KeyRuns, units_with_some_key
from sidecar.bundle.filters.positions import GroupMember, plan_groups
from sidecar.bundle.indexes.index_blob import FieldIndexes
from sidecar.bundle.indexes.index_toc import plan_index_groups
from sidecar.bundle.indexes.page_indexes import PAGE_INDEXES, PageIndexKind
from sidecar.bundle.indexes.row_indexes import ROW_INDEXES, RowIndexKind
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.bundle.units.fingerprints import FINGERPRINT_BYTES
from sidecar.crypto.keys import EncryptionKeys, ExplicitKeys
from sidecar.errors import DamagedFileError, UsageError
from sidecar.filters.probes import FieldQuestion
from sidecar.filters.values import Probe
from sidecar.storage.source import BytesSource
from tests.bundle.cases import (
    SEGMENT,
    TABLE,
    filter_of,
    group_filters,
    hash_of,
    known_probes,
    orc_case,
    pages_of,
    segment_header,
    units_table,
    write_file,
)
from tests.iceberg.forging import Forgery, encoded, put_sections, sections_of

MASTER, METADATA = b"master key 16 by", b"name of the key"
FILES = 100
COUNTS = [2 if file % 5 == 0 else 1 for file in range(FILES)]
FIRST = np.concatenate(([0], np.cumsum(COUNTS)))
UNITS = int(FIRST[-1])
PAGES = PageIndexKind("int64", "id", "signed:8", 1)
ROWS = RowIndexKind("id", "LONG", "DIRECT_V2", True, True, 0, 6)
KEYS = EncryptionKeys(ExplicitKeys({METADATA: MASTER}))
NAMED = {1: METADATA, 2: METADATA}


def values_of(unit: int) -> list[int]:
    return [unit * 1000 + number for number in range(3)]


def entry_of(unit: int) -> tuple[bytes, bytes]:
    return b"column index of unit %d" % unit, b"offset index of unit %d" % unit


def file_table(skip: int = 0):  # type: ignore[no-untyped-def]
    """The files, the first ``skip`` of them last: another build of the same files."""
    table = units_table(FILES, COUNTS)
    return (
        table
        if not skip
        else type(table)([*table.files[skip:], *table.files[:skip]], (), table.schemas, table.coverage)
    )


def write(
    key: Callable[[int], FieldKey | None],
    *,
    segment: bytes = SEGMENT,
    table: str = TABLE,
    empty: bool = False,
    units: Any = None,
) -> bytes:
    """Filters of fields 1 (split-block) and 2 (ORC), page and row indexes of field 1; ``empty`` ones deny all."""
    bundles = []
    for field_id in (1, 2):
        own = key(field_id)
        place = BlobContext(segment, field_id) if own is None else own.place
        members, parts = [], {}
        for unit in range(UNITS):
            values = [] if empty else values_of(unit)
            if field_id == 1:
                parts[unit] = filter_of(values, 8)
                members.append(GroupMember(unit, "int64", "id", 256))
            else:
                made = orc_case([hash_of(value) for value in values], 640)
                members.append(GroupMember(unit, made.encoding, "id", len(made.bitset), rule=made.rule))
                parts[unit] = np.frombuffer(made.rule.split(made.bitset)[0], "<u4").reshape(-1, 8)
        groups = plan_groups(members, place.sealing)
        bundles.append(FieldBundle(field_id, groups, pages_of(groups, parts, place), 0.01, 1.5, own))
    entries = {unit: entry_of(unit) for unit in range(UNITS)}
    pages = plan_index_groups(PAGE_INDEXES, ((u, PAGES, tuple(map(len, e))) for u, e in entries.items()))
    rows = plan_index_groups(ROW_INDEXES, ((u, ROWS, (len(e[0]),)) for u, e in entries.items()))
    indexes = [
        FieldIndexes(PAGE_INDEXES, 1, pages, list(entries.values()), key(1)),
        FieldIndexes(ROW_INDEXES, 1, rows, [e[:1] for e in entries.values()], key(1)),
    ]
    return write_file([*indexes, *bundles], units or file_table(), segment_header(segment, table))[0]


def sealed(segment: bytes = SEGMENT, table: str = TABLE) -> Callable[[int], FieldKey]:
    return lambda field_id: FieldKey(MASTER, METADATA, table, segment, field_id)


def asked(field_id: int, *values: int) -> FieldQuestion:
    return FieldQuestion(field_id, known_probes(*(Probe("probe", (hash_of(value),)) for value in values)))


def lost(data: bytes, keys: EncryptionKeys = KEYS, named: dict[int, bytes] | None = None) -> list[str]:
    """What a reader with the keys is told wrongly: values denied to their file, entries of another unit."""
    sidecar = SidecarFile.open(BytesSource(data, "forged"), table_uuid=TABLE)
    sidecar.use_keys(keys, *(() if named is None else (named,)))
    found: list[str] = []
    for segment in sidecar.segments:
        filters = _taken_out(segment)
        for number, file in enumerate(file_table().files):
            ordinal = segment.file_ordinal(file.identity)
            if ordinal is None:
                continue  # not listed, so it is kept
            first, end = segment.unit_ranges[ordinal : ordinal + 2].tolist()
            values = [value for unit in range(FIRST[number], FIRST[number + 1]) for value in values_of(unit)]
            found += _denied(segment, first, end, number, values)
            for unit in range(first, end):
                true_unit = int(FIRST[number]) + unit - first
                truth = entry_of(true_unit)
                for field_id in (1, 2):
                    if filters.get((field_id, unit), b"") not in (b"", filter_bytes(field_id, true_unit)):
                        found.append(f"a filter of another unit for {file.path}")
                for stored in (segment.page_indexes(1, [unit]), segment.row_indexes(1, [unit])):
                    if stored and stored[unit][0] != truth[0]:
                        found.append(f"an index of another unit for {file.path}")
    return found


def _taken_out(segment: Any) -> dict[tuple[int, int], bytes]:
    """The filters that can be taken out, by field and unit."""
    found = {}
    for field_id, groups in segment.fields.items():
        for group in groups:
            with suppress(UsageError, DamagedFileError):
                found.update({(field_id, u): bits for u, bits in group_filters(segment, field_id, group)})
    return found


def filter_bytes(field_id: int, unit: int) -> bytes:
    values = values_of(unit)
    return filter_of(values, 8).tobytes() if field_id == 1 else orc_case(list(map(hash_of, values)), 640).bitset


def _denied(segment: Any, first: int, end: int, number: int, values: list[int]) -> list[str]:
    found = []
    for field_id in (1, 2):
        kept = [segment.might_match(asked(field_id, value))[first:end].any() for value in values]
        found += [f"{values[n]} in field {field_id} of file {number}" for n, is_kept in enumerate(kept) if not is_kept]
        runs = np.zeros(segment.num_units, np.int64), np.full(segment.num_units, len(values), np.int64)
        for bundle in segment.bundles_of(field_id):
            some = units_with_some_key(
                bundle, asked(field_id, *values), np.arange(len(values)), KeyRuns(*runs), 1 << 30
            )
            if not np.asarray(some)[first:end].any():
                found.append(f"all keys in field {field_id} of file {number}")
    return found


def shifted(forged: Forgery) -> None:
    """Every filter and entry belongs to the unit after its own, the units have one more."""
    for blob in forged.blobs:
        for group in blob.toc.get("groups", ()):
            group["units"] = {"runs": [[1, UNITS]]}
    units = forged.units()
    parts = sections_of(units)
    counts = bytearray(parts["unit_counts", 0][0])
    counts[-1] += 1
    parts["unit_counts", 0] = [bytes(counts)]
    length = struct.unpack_from("<I", parts["coverage", 0][0])[0] + 4
    for at, piece in enumerate(parts["coverage", 0]):
        (size,) = struct.unpack_from("<I", piece)
        said = json.loads(piece[4 : 4 + size]) | {"states": [["indexed", "id"]]}
        text = encoded(said)
        parts["coverage", 0][at] = struct.pack("<I", len(text)) + text + struct.pack("<II", UNITS + 1, 0)
    assert length
    units.toc["units"] = UNITS + 1
    put_sections(units, parts)


def swapped_fingerprints(forged: Forgery, digests: bool = True) -> None:
    """File 1 is at the place of file 2."""
    units = forged.units()
    parts = sections_of(units)
    prints = parts["fingerprints", 0][0]
    n = FINGERPRINT_BYTES
    parts["fingerprints", 0] = [prints[:n] + prints[2 * n : 3 * n] + prints[n : 2 * n] + prints[3 * n :]]
    put_sections(units, parts, digests=digests)


def swapped_unit_counts(forged: Forgery) -> None:
    """File 0 has the units of file 1 too, file 1 those of others."""
    units = forged.units()
    parts = sections_of(units)
    counts = bytearray(parts["unit_counts", 0][0])
    counts[0], counts[1] = counts[1], counts[0]
    parts["unit_counts", 0] = [bytes(counts)]
    put_sections(units, parts)


def other_files(forged: Forgery) -> None:
    """The units table of another build of the same files, in another order."""
    skip = 3
    table = file_table(skip)
    files = [type(f)(**(vars(f) | {"manifest": -1})) for f in table.files]
    other = Forgery.of(write(lambda field_id: None, units=type(table)(files, (), table.schemas, table.coverage)))
    forged.replace(forged.units(), other.units())


def other_encoding(forged: Forgery) -> None:
    """Filters of field 1 say that they hold other bytes of the values."""
    for group in forged.of_field(1).toc["groups"]:
        group["encoding"] = "int32"


def fewer_members(forged: Forgery) -> None:
    for kind in ("sbbf", "page-index", "row-index"):
        for group in forged.of_field(1, kind).toc["groups"]:
            group["members"], group["units"] = UNITS - 1, {"runs": [[1, UNITS - 1]]}


def without_groups(forged: Forgery) -> None:
    for blob in forged.blobs:
        if "groups" in blob.toc:
            blob.toc["groups"] = []


def other_table(forged: Forgery) -> None:
    """The blobs of another table's segment of the same id, which say that they are of this table."""
    uuid = TABLE[:-1] + "6"
    _moved(forged, Forgery.of(write(sealed(table=uuid), table=uuid, units=file_table())), table=TABLE)


def other_segment(forged: Forgery) -> None:
    """The blobs of another segment, which say that they are of this one."""
    _moved(forged, Forgery.of(write(sealed(SEGMENT[::-1]), segment=SEGMENT[::-1])), segment=SEGMENT.hex())


def other_field(forged: Forgery) -> None:
    """The filters of field 1 are given to field 3, which has the key, too."""
    blob = forged.of_field(1)
    blob.fields, blob.toc["field"] = (3,), 3


def older_build(forged: Forgery) -> None:
    """The blobs that an older build of other files made, of which somebody has kept a copy."""
    table = file_table(7)
    files = [type(f)(**(vars(f) | {"manifest": -1})) for f in table.files]
    older = Forgery.of(write(sealed(), units=type(table)(files, (), table.schemas, table.coverage)))
    _moved(forged, older)


def _moved(forged: Forgery, source: Forgery, **said: str) -> None:
    for blob in [blob for blob in forged.blobs if blob.fields]:
        new = source.of_field(blob.fields[0], blob.toc["kind"])
        new.toc |= said
        forged.replace(blob, new)


def shorter_blob(forged: Forgery) -> None:
    """The last group's bytes end early."""
    blob = forged.of_field(1)
    blob.body = blob.body[:-1000]
    blob.toc["toc_offset"] -= 1000


def plaintext(forged: Forgery) -> None:
    """Filters in plaintext that deny everything, in place of the encrypted ones of one field."""
    other = Forgery.of(write(lambda field_id: None, empty=True))
    forged.replace(forged.of_field(1), other.of_field(1))


def older_version(forged: Forgery) -> None:
    """Blobs that say they are of the version that did not bind its tables of contents."""
    shifted(forged)
    for blob in forged.blobs:
        if blob.fields:
            blob.version = blob.toc["version"] = 2


FORGERIES = (
    shifted,
    swapped_fingerprints,
    swapped_unit_counts,
    other_files,
    other_encoding,
    fewer_members,
    without_groups,
    other_table,
    other_segment,
    other_field,
    older_build,
    shorter_blob,
    plaintext,
    older_version,
)
