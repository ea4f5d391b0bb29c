"""Describes the indexes of a Parquet file, and looks up a value in its filters.

A damaged filter does not hide the others: it is listed with its reason. Only a file without a readable footer raises.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Literal

from sidecar.errors import (
    Problem,
    SidecarError,
    UnsupportedFeatureError,
    UsageError,
    column_hint,
    problem_in,
    reason_of,
)
from sidecar.filters.leaf import Leaf
from sidecar.filters.literals import LiteralValue, as_literal
from sidecar.filters.values import probe_hashes
from sidecar.parquet.bloom import FoundFilter, read_bloom_filters
from sidecar.parquet.chunk_statistics import footer_findings
from sidecar.parquet.encrypted.footer import declaration_in, read_declaration
from sidecar.parquet.encrypted.modules import Declaration
from sidecar.parquet.footer import LOCKED, ColumnChunk, Footer, RowGroup, read_footer, read_tail
from sidecar.parquet.page_indexes.page_index import ColumnIndex, OffsetIndex, read_page_indexes
from sidecar.parquet.trust import INDEX_PARTS, why_not_believed, wrong_writers
from sidecar.results.base import ProbedRowGroup, Result
from sidecar.storage.source import Source

FilterAnswer = FoundFilter | SidecarError | None


@dataclass(frozen=True, repr=False, slots=True)
class ByteRange(Result):
    """A part of a file."""

    offset: int
    """The offset in bytes from the start of the file."""
    length: int | None
    """The length in bytes; ``None`` if the file does not say it."""


@dataclass(frozen=True, repr=False, slots=True, kw_only=True)
class ParquetFilterInfo(Result):
    """The Bloom filter of one column chunk. ``None`` stands for what a filter that cannot be read does not show."""

    offset: int | None
    """The offset of the filter with its header in bytes."""
    length: int | None
    """The length with the header in bytes."""
    bytes: int | None = None
    """The length of the bitset in bytes."""
    hash: str | None = None
    """The hash function of the filter."""
    fill: float | None = None
    """The share of the bits that are set."""
    estimated_fpp: float | None = None
    """The false-positive rate that the bits show."""
    trusted: bool
    """Whether readers may believe the filter."""
    reason: str
    """Why the filter is not trusted; empty if it is."""
    sha256: str | None = None
    """The SHA-256 of the bitset as hexadecimal digits."""


@dataclass(frozen=True, repr=False, slots=True)
class ParquetColumnInfo(Result):
    """The indexes of one column chunk; ``None`` for each one that it does not have."""

    bloom_filter: ParquetFilterInfo | None
    """The Bloom filter."""
    column_index: ByteRange | None
    """Where the column index is: the bounds of each page."""
    offset_index: ByteRange | None
    """Where the offset index is: the place of each page."""


@dataclass(frozen=True, repr=False, slots=True)
class ParquetRowGroupInfo(Result):
    """The indexes of one row group."""

    row_group: int
    """The number of the row group in the file."""
    rows: int
    """The number of rows."""
    columns: dict[str, ParquetColumnInfo]
    """The indexes of each column by its dotted path, with the number of the leaf if two have the same path."""


@dataclass(frozen=True, repr=False, slots=True)
class ParquetEncryptionInfo(Result):
    """How a Parquet file is encrypted, without keys, key metadata and AAD prefix."""

    algorithm: str
    """The algorithm."""
    footer: Literal["encrypted", "plaintext"]
    """Whether the footer is encrypted."""
    verified: bool
    """Whether the footer was decrypted or its signature was verified."""
    aad_prefix: Literal["stored", "supplied"] | None
    """Where the AAD prefix is: in the file, or with the caller; ``None`` if there is none."""
    columns: list[str] | None
    """The dotted paths of encrypted columns; ``None`` if the footer cannot be read."""
    locked: list[str] | None
    """The dotted paths of columns whose key is missing; ``None`` if the footer cannot be read."""


@dataclass(frozen=True, repr=False, slots=True)
class ParquetFileInfo(Result):
    """The Bloom filters and page indexes of a Parquet file."""

    file: str
    """The path of the file."""
    format: Literal["parquet"]
    """The format of the file."""
    size: int
    """The size of the file in bytes."""
    created_by: str | None
    """The program that wrote the file, if the footer says it."""
    rows: int | None
    """The number of rows; ``None`` if the footer cannot be read."""
    encryption: ParquetEncryptionInfo | None
    """How the file is encrypted; ``None`` if it is not."""
    units: list[ParquetRowGroupInfo]
    """The row groups; empty if the footer cannot be read."""
    not_believed: list[Problem]
    """Statements of the footer about values that sidecar does not use; see :mod:`sidecar.parquet.trust`."""


def inspect_file(source: Source) -> ParquetFileInfo:
    """Describe the filters and page indexes of every column chunk.

    A file whose encrypted footer has no key has no units. Raises the errors of
    :func:`sidecar.parquet.footer.read_footer`.
    """
    try:
        footer = read_footer(source)
    except UnsupportedFeatureError:
        if not read_tail(source).is_encrypted:
            raise
        return ParquetFileInfo(
            source.name, "parquet", source.size, None, None, describe_encryption(source, None), [], []
        )
    return ParquetFileInfo(
        footer.name,
        "parquet",
        footer.size,
        footer.created_by,
        footer.num_rows,
        describe_encryption(source, footer),
        [_describe_row_group(source, footer, group) for group in footer.row_groups],
        [*footer_findings(footer), *_index_findings(source, footer)],
    )


def _index_findings(source: Source, footer: Footer) -> Iterator[Problem]:
    """Yield the page indexes that are not believed because of the file's writer, once a column.

    Reads no index of other writers. Those that sidecar built for the file are believed.
    """
    known: set[tuple[str, str]] = set()
    for group in footer.row_groups if wrong_writers(footer.created_by) else ():
        columns, offsets = read_page_indexes(source, footer, group.columns, group.columns)
        for chunk, *found in zip(group.columns, columns, offsets, strict=True):
            for part, index in zip(INDEX_PARTS, found, strict=True):
                why = why_not_believed(footer.created_by, part, chunk.leaf, chunk.encodings)
                if why and isinstance(index, ColumnIndex | OffsetIndex) and not index.is_ours:
                    path, text = chunk.leaf.path, f"{part}: {why}"
                    if (path, text) not in known:
                        known.add((path, text))
                        yield problem_in(footer.name, text, path)


def _describe_row_group(source: Source, footer: Footer, group: RowGroup) -> ParquetRowGroupInfo:
    filters: dict[int, ParquetFilterInfo | None] = {
        chunk.leaf.index: describe_filter(chunk, found) for chunk, found in read_bloom_filters(source, group.columns)
    }
    for chunk in group.columns.locked:
        if chunk.bloom_filter_offset:
            filters[chunk.leaf.index] = _unread_filter(chunk, LOCKED)
    columns = {
        footer.label(chunk.leaf): ParquetColumnInfo(
            filters.get(chunk.leaf.index),
            _range(chunk.column_index_offset, chunk.column_index_length),
            _range(chunk.offset_index_offset, chunk.offset_index_length),
        )
        for chunk in group.columns.stored
    }
    return ParquetRowGroupInfo(group.ordinal, group.num_rows, columns)


def describe_encryption(source: Source, footer: Footer | None) -> ParquetEncryptionInfo | None:
    """Describe how a file is encrypted; ``None`` if it is not. ``footer`` is ``None`` if it cannot be read."""
    unlocked = None if footer is None else footer.encryption
    if unlocked is not None:
        declaration: Declaration | None = unlocked.declaration
    else:
        declaration = read_declaration(source) if footer is None else declaration_in(footer.metadata)
    if declaration is None:
        return None
    hidden = footer is None or (unlocked is not None and unlocked.encrypted_footer)
    return ParquetEncryptionInfo(
        algorithm=declaration.algorithm,
        footer="encrypted" if hidden else "plaintext",
        verified=unlocked is not None,
        aad_prefix=_place_of_prefix(declaration),
        columns=None if footer is None else encrypted_columns(footer),
        locked=None if footer is None else _paths(footer, footer.locked),
    )


def _place_of_prefix(declaration: Declaration) -> Literal["stored", "supplied"] | None:
    if declaration.aad_prefix is not None:
        return "stored"
    return "supplied" if declaration.supply_aad_prefix else None


def encrypted_columns(footer: Footer) -> list[str]:
    """Return the dotted paths of the columns that are encrypted in the file, with or without a key."""
    return _paths(footer, footer.encrypted)


def _paths(footer: Footer, leaves: Iterable[int]) -> list[str]:
    return list(dict.fromkeys(footer.columns[leaf].path for leaf in sorted(leaves)))


def describe_filter(chunk: ColumnChunk, found: FilterAnswer) -> ParquetFilterInfo | None:
    """Describe a filter, or why it cannot be read. ``None`` without a filter."""
    if found is None:
        return None
    if isinstance(found, SidecarError):
        return _unread_filter(chunk, reason_of(found))
    return describe_found(found)


def _unread_filter(chunk: ColumnChunk, reason: str) -> ParquetFilterInfo:
    return ParquetFilterInfo(
        offset=chunk.bloom_filter_offset, length=chunk.bloom_filter_length, trusted=False, reason=reason
    )


def describe_found(found: FoundFilter) -> ParquetFilterInfo:
    """Describe a filter that was read: its place, hash and fill, and whether it is trusted."""
    return ParquetFilterInfo(
        offset=found.offset,
        length=found.length,
        bytes=found.bitset_length,
        hash=found.hash,
        fill=found.filter.fill(),
        estimated_fpp=found.filter.estimated_fpp(),
        trusted=found.trusted,
        reason=found.reason,
        sha256=hashlib.sha256(found.filter.to_bytes()).hexdigest(),
    )


def _range(offset: int | None, length: int | None) -> ByteRange | None:
    return None if offset is None else ByteRange(offset, length)


def find_leaf(footer: Footer, column: str) -> Leaf:
    """Return the leaf at a dotted path.

    Raises :class:`UsageError` if there is none, with similar paths, and if there is more than one.
    """
    leaf = footer.leaf(column)
    if leaf is not None:
        return leaf
    paths = [leaf.path for leaf in footer.columns]
    if column in paths:
        raise UsageError(
            f"the file has more than one column '{column}'",
            file=footer.name,
            found=f"leaves {', '.join(str(leaf.index) for leaf in footer.columns if leaf.path == column)}",
        )
    raise UsageError(f"the file has no column '{column}'", file=footer.name, hint=column_hint(column, paths))


def probe_file(source: Source, column: str, literal: LiteralValue) -> list[ProbedRowGroup]:
    """Ask the filter of each row group whether the column might contain ``literal``.

    A string is parsed as a value of the column's type; anything else must be the value of a bound literal (see
    :mod:`sidecar.filters.literals`). The answer is ``False`` only if a filter without defect denies the value, or if
    the column's encoding cannot store it. Raises :class:`UsageError` for an unknown column and for a literal that does
    not fit it.
    """
    footer = read_footer(source)
    leaf = find_leaf(footer, column)
    value = as_literal(literal, leaf.iceberg_type)
    probe = probe_hashes(value, leaf.iceberg_type, leaf.encoding)
    if probe.verdict != "probe":
        might = False if probe.verdict == "cannot-exist" else None
        return [_unit(group.ordinal, might, probe.reason) for group in footer.row_groups]
    found = [group.columns.get(leaf.index) for group in footer.row_groups]
    answers = {
        chunk.row_group: _ask(chunk, answer, value)
        for chunk, answer in read_bloom_filters(source, (chunk for chunk in found if chunk is not None))
    }
    return [answers.get(group.ordinal) or _unit(group.ordinal, None, LOCKED) for group in footer.row_groups]


def _ask(chunk: ColumnChunk, found: FilterAnswer, value: LiteralValue) -> ProbedRowGroup:
    """Return the answer of one filter. A filter of the historical form is asked with its own hash function."""
    if found is None:
        return _unit(chunk.row_group, None, "no filter")
    if isinstance(found, SidecarError):
        return _unit(chunk.row_group, None, reason_of(found))
    if found.defect:
        return _unit(chunk.row_group, None, found.defect)
    might = found.filter.might_contain(value, chunk.leaf.iceberg_type, chunk.leaf.encoding)
    return _unit(chunk.row_group, might, "")


def _unit(row_group: int, might_contain: bool | None, reason: str) -> ProbedRowGroup:
    return ProbedRowGroup(row_group=row_group, might_contain=might_contain, reason=reason)
