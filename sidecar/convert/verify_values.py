"""What a sidecar says of data files, held against their data.

Every value of an indexed column is looked up in the filter that the sidecar has for its row group, and page indexes are
held against the pages. Groups of filters are read once for all files; data files are read one after the other, only
the column chunks that are indexed.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from typing import TYPE_CHECKING

import numpy as np

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.convert.filter_pool import FilterPool
from sidecar.convert.identity import identity_of_parquet
from sidecar.convert.match import Finder, Match
from sidecar.convert.restore import filter_parts, restore_pages
from sidecar.crypto.keys import EncryptionKeys
from sidecar.errors import SidecarError
from sidecar.filters.sbbf import SplitBlockBloomFilter
from sidecar.parquet.decrypted import unlock
from sidecar.parquet.footer import Footer, read_footer
from sidecar.parquet.page_index import decode_column_index, decode_offset_index
from sidecar.parquet.problem import Problem, place_and_reason
from sidecar.parquet.verify_index import chunk_index_problems
from sidecar.parquet.verify_values import ValueCheck, value_problems
from sidecar.source import Source, open_source

if TYPE_CHECKING:
    from pyiceberg.io import FileIO


def sidecar_value_problems(
    sidecar: SidecarFile,
    files: Sequence[DataFileIdentity],
    io: FileIO | None,
    check: ValueCheck,
    encryption_keys: EncryptionKeys | None = None,
) -> Iterator[Problem]:
    """Whatever the sidecar denies of the Parquet files among ``files`` that ``check`` chooses.

    Files that the sidecar does not list are passed over. Damage is a problem, not an exception.
    """
    listed = [file for file in files if any(s.file_ordinal(file) is not None for s in sidecar.segments)]
    chosen = check.choose(len(listed))
    listed = [file for number, file in enumerate(listed) if number in chosen]
    finder = Finder(sidecar)
    with closing(FilterPool()) as pool:
        for segment in sidecar.segments:
            yield from _load(pool, sidecar, segment, listed)
        for file in listed:
            try:
                with closing(open_source(file.path, io)) as opened:
                    source = unlock(opened, encryption_keys)
                    footer = read_footer(source)
                    for match in finder.find_live(file, identity_of_parquet(source, footer)):
                        yield from _filter_problems(source, footer, match, pool, check)
                        yield from _page_index_problems(source, footer, match)
            except SidecarError as error:
                yield _problem(file.path, None, error.column, place_and_reason(error))


def _load(
    pool: FilterPool, sidecar: SidecarFile, segment: Segment, files: Sequence[DataFileIdentity]
) -> Iterator[Problem]:
    """Read the filters of these files out of one segment; a group that is damaged is left out."""
    units: list[int] = []
    for file in files:
        ordinal = segment.file_ordinal(file)
        if ordinal is not None:
            units += range(*segment.unit_ranges[ordinal : ordinal + 2].tolist())
    for field_id, bundle in sorted(segment.bundles.items()):
        for group in bundle.toc.groups:
            members = group.ordinals()
            try:
                wanted = members[np.isin(members, units)].tolist()
                if wanted:
                    pool.load_group(segment, bundle, group, wanted)
            except SidecarError as error:
                yield _problem(sidecar.source.name, None, f"field {field_id}", place_and_reason(error))


def _filter_problems(
    source: Source, footer: Footer, match: Match, pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    for part in filter_parts([match], footer):
        for row_group in sorted(part.units):
            if not pool.has(part, row_group):
                continue
            chunk = footer.row_groups[row_group].columns[part.column]
            found = pool.get(part, row_group)
            assert isinstance(found, SplitBlockBloomFilter)
            for text in value_problems(source, footer, chunk, found, check, forms=False):
                yield _problem(footer.name, row_group, part.path, f"sidecar: {text}")


def _page_index_problems(source: Source, footer: Footer, match: Match) -> Iterator[Problem]:
    for (row_group, leaf), stored in restore_pages([match], footer).items():
        chunk = footer.row_groups[row_group].columns[leaf]
        texts = [stored.reason] if stored.reason else []
        if stored.offset_index is not None:
            column = None if stored.column_index is None else decode_column_index(stored.column_index)
            offset = decode_offset_index(stored.offset_index)
            texts += chunk_index_problems(source, footer, chunk, column, offset)
        for text in dict.fromkeys(texts):
            yield _problem(footer.name, row_group, chunk.leaf.path, f"sidecar: {text}")


def _problem(file: str, unit: int | None, column: str | None, problem: str) -> Problem:
    return {"file": file, "unit": unit, "column": column, "problem": problem}
