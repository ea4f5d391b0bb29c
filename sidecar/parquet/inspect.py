"""Describes the indexes of a Parquet file, and looks up a value in its filters, as plain data.

A damaged filter does not hide the others: it is listed with its reason. Only a file without a readable footer raises.
"""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Callable
from typing import Any, TypedDict

from sidecar.errors import SidecarError, UnsupportedFeatureError, UsageError
from sidecar.filters.leaf import Leaf
from sidecar.filters.literals import LiteralValue, literal_from_text
from sidecar.filters.values import probe_hashes
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.encrypted.footer import read_declaration
from sidecar.parquet.footer import ColumnChunk, Footer, read_footer, read_tail
from sidecar.source import Source

FilterAnswer = FoundFilter | SidecarError | None


class ProbedUnit(TypedDict):
    """The answer for one row group; ``might_contain`` is ``None`` if the filter cannot answer, and ``reason`` says why.

    ``row_group`` is ``None`` for a filter that is a file of its own.
    """

    row_group: int | None
    might_contain: bool | None
    reason: str


def inspect_file(source: Source) -> dict[str, Any]:
    """Describe the filters and page indexes of every column chunk.

    ``units`` has for each row group ``row_group``, ``rows`` and ``columns``: dotted path -> ``bloom_filter``
    (see :func:`describe_filter`), ``column_index`` and ``offset_index`` (``None``, or ``offset`` and ``length`` in
    bytes). ``encryption`` is the answer of :func:`describe_encryption`. A file whose encrypted footer has no key has no
    units. Raises the errors of :func:`sidecar.parquet.footer.read_footer`.
    """
    try:
        footer = read_footer(source)
    except UnsupportedFeatureError:
        if not read_tail(source).is_encrypted:
            raise
        return _locked(source)
    units: list[dict[str, Any]] = []
    for group in footer.row_groups:
        columns = {
            chunk.leaf.path: {
                "bloom_filter": describe_filter(chunk, found),
                "column_index": _range(chunk.column_index_offset, chunk.column_index_length),
                "offset_index": _range(chunk.offset_index_offset, chunk.offset_index_length),
            }
            for chunk, found in read_bloom_filters(source, group.columns)
        }
        units.append({"row_group": group.ordinal, "rows": group.num_rows, "columns": columns})
    return {
        "file": footer.name,
        "format": "parquet",
        "size": footer.size,
        "created_by": footer.created_by,
        "rows": footer.num_rows,
        "encryption": describe_encryption(source, footer),
        "units": units,
    }


def _locked(source: Source) -> dict[str, Any]:
    """Describe a file whose encrypted footer cannot be read."""
    return {
        "file": source.name,
        "format": "parquet",
        "size": source.size,
        "created_by": None,
        "rows": None,
        "encryption": describe_encryption(source, None),
        "units": [],
    }


def describe_encryption(source: Source, footer: Footer | None) -> dict[str, Any] | None:
    """Describe how a file is encrypted, without keys, key metadata and AAD prefix; ``None`` if it is not encrypted.

    ``footer`` is ``encrypted`` or ``plaintext``; ``verified`` says whether it was decrypted or its signature verified;
    ``aad_prefix`` is ``stored``, ``supplied`` or ``None``. ``columns`` has the dotted paths of encrypted columns,
    ``locked`` those whose key is missing; both are ``None`` if the footer cannot be read.
    """
    unlocked = None if footer is None else footer.encryption
    declaration = read_declaration(source) if unlocked is None else unlocked.declaration
    if declaration is None:
        return None
    prefix = "supplied" if declaration.supply_aad_prefix else None
    return {
        "algorithm": declaration.algorithm,
        "footer": "encrypted" if footer is None or (unlocked and unlocked.encrypted_footer) else "plaintext",
        "verified": unlocked is not None,
        "aad_prefix": "stored" if declaration.aad_prefix is not None else prefix,
        "columns": footer and encrypted_columns(footer),
        "locked": footer and _paths(footer, lambda chunk: chunk.encrypted),
    }


def encrypted_columns(footer: Footer) -> list[str]:
    """Return the dotted paths of the columns that are encrypted in the file, with or without a key."""
    known = {} if footer.encryption is None else footer.encryption.columns
    return _paths(footer, lambda chunk: chunk.encrypted or (chunk.row_group, chunk.leaf.index) in known)


def _paths(footer: Footer, which: Callable[[ColumnChunk], bool]) -> list[str]:
    chunks = (chunk for group in footer.row_groups for chunk in group.columns)
    return list(dict.fromkeys(chunk.leaf.path for chunk in chunks if which(chunk)))


def describe_filter(chunk: ColumnChunk, found: FilterAnswer) -> dict[str, Any] | None:
    """Describe a filter: ``length`` includes the header, ``bytes`` and ``sha256`` do not. ``None`` without a filter."""
    if found is None:
        return None
    if isinstance(found, SidecarError):
        stated = {"offset": chunk.bloom_filter_offset, "length": chunk.bloom_filter_length}
        unknown = dict.fromkeys(("bytes", "hash", "fill", "estimated_fpp", "sha256"))
        return {**stated, **unknown, "trusted": False, "reason": reason_of(found)}
    return describe_found(found)


def describe_found(found: FoundFilter) -> dict[str, Any]:
    """Describe a filter that was read: its place, hash and fill, and whether it is trusted."""
    return {
        "offset": found.offset,
        "length": found.length,
        "bytes": found.bitset_length,
        "hash": found.hash,
        "fill": found.filter.fill(),
        "estimated_fpp": found.filter.estimated_fpp(),
        "trusted": found.trusted,
        "reason": found.reason,
        "sha256": hashlib.sha256(found.filter.to_bytes()).hexdigest(),
    }


def reason_of(error: SidecarError) -> str:
    """Return an error as one line, without file and column, which the answer names elsewhere."""
    parts = (("expected", error.expected), ("found", error.found))
    return "; ".join([error.what, *(f"{name} {value}" for name, value in parts if value is not None)])


def place_and_reason(error: SidecarError) -> str:
    """Return an error as one line with its offset, so that all checks report it in the same words."""
    return reason_of(error) if error.offset is None else f"{reason_of(error)} (offset {error.offset})"


def _range(offset: int | None, length: int | None) -> dict[str, int | None] | None:
    return None if offset is None else {"offset": offset, "length": length}


def find_leaf(footer: Footer, column: str) -> Leaf:
    """Return the leaf at a dotted path. Raises :class:`UsageError`, which names similar paths, if there is none."""
    leaf = footer.leaf(column)
    if leaf is not None:
        return leaf
    paths = [leaf.path for leaf in footer.columns]
    near = [path for path in paths if path.startswith(f"{column}.")] or difflib.get_close_matches(
        column, paths
    )
    hint = f"Did you mean {' or '.join(near[:5])}?" if near else f"It has: {', '.join(paths[:20])}."
    raise UsageError(f"the file has no column '{column}'", file=footer.name, hint=hint)


def probe_file(source: Source, column: str, literal: LiteralValue) -> list[ProbedUnit]:
    """Ask the filter of each row group whether the column might contain ``literal``.

    A string is parsed as a value of the column's type; anything else must be the value of a bound literal (see
    :mod:`sidecar.filters.literals`). The answer is ``False`` only if a filter without defect denies the value, or if
    the column's encoding cannot store it. Raises :class:`UsageError` for an unknown column and for a literal that does
    not fit it.
    """
    footer = read_footer(source)
    leaf = find_leaf(footer, column)
    value = (
        literal_from_text(literal, leaf.iceberg_type, quoted=True) if isinstance(literal, str) else literal
    )
    probe = probe_hashes(value, leaf.iceberg_type, leaf.encoding)
    chunks = [group.columns[leaf.index] for group in footer.row_groups]
    if probe.verdict != "probe":
        might = False if probe.verdict == "cannot-exist" else None
        return [_unit(chunk, might, probe.reason) for chunk in chunks]
    return [_ask(chunk, found, value) for chunk, found in read_bloom_filters(source, chunks)]


def _ask(chunk: ColumnChunk, found: FilterAnswer, value: LiteralValue) -> ProbedUnit:
    """Return the answer of one filter. A filter of the historical form is asked with its own hash function."""
    if found is None:
        return _unit(chunk, None, "no filter")
    if isinstance(found, SidecarError):
        return _unit(chunk, None, reason_of(found))
    if found.defect:
        return _unit(chunk, None, found.defect)
    return _unit(chunk, found.filter.might_contain(value, chunk.leaf.iceberg_type, chunk.leaf.encoding), "")


def _unit(chunk: ColumnChunk, might_contain: bool | None, reason: str) -> ProbedUnit:
    return {"row_group": chunk.row_group, "might_contain": might_contain, "reason": reason}
