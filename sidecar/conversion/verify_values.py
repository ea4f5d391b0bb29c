"""Verifies a sidecar against the values of its data files.

Every value of an indexed column is looked up in the filter of its row group. Page indexes are compared with the pages,
row indexes with the values of their row groups. Each group of filters is read once for all files. Data files are read
one after the other, and only their indexed column chunks.

The files are those of a table (:func:`place_problems`) or files without a table (:func:`verify_against`). The
latter must first be files that the sidecar lists, with their size, rows, row groups and, in a sidecar of plain
files, the fingerprint of their data and the digest of their pages. In a table's sidecar nothing but the values can tell
a file from another one of equal name, size, rows and row groups.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.filter_pool import FilterPool
from sidecar.conversion.matching.identity import identity_of
from sidecar.conversion.matching.match import Finder, Match
from sidecar.conversion.rebuild import ParquetEvidence
from sidecar.conversion.restore import filter_parts, other_filter_parts, restore_pages
from sidecar.conversion.verify_orc import orc_value_problems
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_orc import OpenOrc
from sidecar.data_files.open_parquet import OpenParquet
from sidecar.errors import Problem, SidecarError, UsageError, problem_in
from sidecar.filters.arrays import Ordinals
from sidecar.filters.orc.array_hash import hash_orc
from sidecar.filters.orc.bloom import OrcBloomFilter
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.parquet.footer import LOCKED, ColumnChunk, Footer
from sidecar.parquet.inspect import place_and_reason
from sidecar.parquet.page_indexes.page_index import decode_column_index, decode_offset_index
from sidecar.parquet.verify.filters import ValueCheck, ValuesLookedUp, value_problems
from sidecar.parquet.verify.page_index import chunk_index_problems
from sidecar.storage.source import Source


class DataPlace(NamedTuple):
    """A live data file: its path, and its identity in the sidecar's list."""

    path: str
    listed: DataFileIdentity


def places_to_check(sidecar: SidecarFile, files: Sequence[DataPlace], check: ValueCheck) -> list[DataPlace]:
    """Return the files that ``check`` chooses out of those that have row groups in the sidecar.

    The others are not listed by it, or their footer could not be read when it was built.
    """
    indexed = [place for place in files if len(_units(sidecar, [place]))]
    chosen = check.choose(len(indexed))
    return [place for number, place in enumerate(indexed) if number in chosen]


def place_problems(
    sidecar: SidecarFile,
    files: Sequence[DataPlace],
    access: Access,
    check: ValueCheck,
) -> Iterator[Problem]:
    """Yield a problem for each index that denies values of ``files``; ``check`` counts what is compared.

    Damage is a problem, not an exception.
    """
    finder = Finder(sidecar)
    with closing(FilterPool()) as pool:
        yield from load_filters(pool, sidecar, _units(sidecar, files))
        for place in files:
            try:
                with opened_file(access, place.path) as file:
                    matches = finder.find_live(place.listed, identity_of(file))
                    yield from value_problems_of(file, matches, pool, check)
            except SidecarError as error:
                yield problem_in(place.path, place_and_reason(error), error.column)


def _units(sidecar: SidecarFile, places: Sequence[DataPlace]) -> Ordinals:
    """Return the units of files in all segments that list them."""
    numbers = [number for place in places for number in sidecar.numbers_of(place.listed)]
    return sidecar.units_of(np.array(numbers, np.int64))


def load_filters(pool: FilterPool, sidecar: SidecarFile, units: Ordinals) -> Iterator[Problem]:
    """Read the filters of ``units`` into the pool; yield a problem for each damaged group."""
    for field_id in sorted(sidecar.filtered_fields):
        for bundle, group, members in sidecar.groups_of(field_id):
            try:
                wanted = group.ordinals()[np.isin(members, units)].tolist()
                if wanted:
                    pool.load_group(bundle, group, wanted)
            except SidecarError as error:
                column = sidecar.damage.column(field_id)
                yield problem_in(sidecar.source.name, place_and_reason(error), column)


def value_problems_of(
    file: OpenParquet | OpenOrc, matches: list[Match], pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    """Yield a problem for each index that denies values of the file. ``pool`` has the filters of the file's units."""
    if isinstance(file, OpenOrc):
        return orc_value_problems(file, matches, pool, check)
    return parquet_value_problems(file, matches, pool, check)


def parquet_value_problems(
    file: OpenParquet, matches: Sequence[Match], pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    """Yield the problems of a Parquet file; see :func:`value_problems_of`."""
    for match in matches:
        yield from _filter_problems(file.source, file.footer, match, pool, check)
        yield from _page_index_problems(file.source, file.footer, match, check)


def _filter_problems(
    source: Source, footer: Footer, match: Match, pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    for part in [*filter_parts([match], footer), *other_filter_parts([match], footer)]:
        for row_group in sorted(part.units):
            if not pool.has(part, row_group):
                continue
            chunk = footer.row_groups[row_group].columns.get(part.column)
            if chunk is None:
                yield problem_in(footer.name, f"sidecar: {LOCKED}", part.path, row_group)
                continue
            found = pool.get(part, row_group)
            if isinstance(found, OrcBloomFilter):
                rule = OrcEncoding.parse(part.group.encoding)
                texts = _orc_filter_problems(source, footer, chunk, (found, rule), check)
            else:
                texts = value_problems(source, footer, chunk, found, check, forms=False)
            for text in texts:
                yield problem_in(footer.name, f"sidecar: {text}", part.path, row_group)


def _orc_filter_problems(
    source: Source, footer: Footer, chunk: ColumnChunk, made: tuple[OrcBloomFilter, OrcEncoding], check: ValueCheck
) -> Iterator[str]:
    """Yield the problems of an ORC filter that was ``made`` for a Parquet chunk: all its values are looked up."""
    (found, rule), asked, denied = made, 0, 0
    try:
        for values in ParquetEvidence(source, footer, [chunk]).values()[0]:
            hashes = hash_orc(values.drop_null(), rule, twins=False)
            asked, denied = asked + len(hashes), denied + len(hashes) - int(found.check(hashes).sum())
    except SidecarError as error:
        yield f"Bloom filter: values could not be looked up: {place_and_reason(error)}"
        return
    check.values += asked
    if denied:
        yield f"Bloom filter: denies {denied} of {asked} values that the column chunk has"


def _page_index_problems(source: Source, footer: Footer, match: Match, check: ValueCheck) -> Iterator[Problem]:
    for (row_group, leaf), stored in restore_pages([match], footer).items():
        texts = [stored.reason] if stored.reason else []
        if stored.offset_index is not None:
            check.indexes += 1
            column = None if stored.column_index is None else decode_column_index(stored.column_index)
            offset = decode_offset_index(stored.offset_index)
            chunk = footer.row_groups[row_group].columns[leaf]
            texts += chunk_index_problems(source, footer, chunk, column, offset, forms=False)
        for text in dict.fromkeys(texts):
            yield problem_in(footer.name, f"sidecar: {text}", footer.columns[leaf].path, row_group)


class _GivenFile(NamedTuple):
    """A data file that the sidecar lists, and where its row groups are in the segments."""

    path: str
    matches: list[Match]


def verify_against(
    source: Source,
    paths: Sequence[str],
    access: Access,
    share: float = 1.0,
) -> tuple[list[Problem], ValuesLookedUp]:
    """Compare the data files at ``paths`` with what a sidecar says of them.

    Identities of all files are compared. The values of a ``share`` of the files, chosen at random, are looked up.
    Returns the problems and what was looked up; its units are files. Damage and files that cannot be read are problems.
    Raises :class:`UsageError` without paths, for a path that is given twice and if the file is not a sidecar.
    """
    if not paths or len(set(paths)) != len(paths):
        raise UsageError("give each data file once", file=source.name, found=", ".join(paths[:5]) or "none")
    check = ValueCheck(share)
    sidecar = SidecarFile.open(source, encryption_keys=access.keys)
    if not sidecar.segments:
        raise UsageError("the Puffin file lists no data files: it is not a sidecar", file=source.name)
    problems: list[Problem] = []
    found = list(_find(Finder(sidecar, merged=True), paths, access, problems))
    chosen = check.choose(len(found))
    with closing(FilterPool()) as pool:
        picked = [file for number, file in enumerate(found) if number in chosen]
        numbers = [match.number for file in picked for match in file.matches]
        problems += load_filters(pool, sidecar, sidecar.units_of(np.array(numbers, np.int64)))
        for file in picked:
            problems += _value_problems(file, pool, check, access)
    seen = {match.number for file in found for match in file.matches}
    return problems, replace(check.looked_up(), files_not_given=sidecar.num_files - len(seen))


def _find(finder: Finder, paths: Sequence[str], access: Access, problems: list[Problem]) -> Iterator[_GivenFile]:
    """Yield the files that the sidecar lists. Each other file, and two that are one listed file, are problems."""
    taken: dict[int, str] = {}
    for path in paths:
        try:
            with opened_file(access, path) as file:
                matches = finder.find(identity_of(file))
        except SidecarError as error:
            problems.append(problem_in(path, f"sidecar: {place_and_reason(error)}", error.column))
            continue
        for match in matches:
            other = taken.setdefault(match.number, path)
            if other != path:
                problems.append(problem_in(path, f"sidecar: it is the same listed file as {other}"))
        yield _GivenFile(path, matches)


def _value_problems(file: _GivenFile, pool: FilterPool, check: ValueCheck, access: Access) -> Iterator[Problem]:
    try:
        with opened_file(access, file.path) as opened:
            yield from value_problems_of(opened, file.matches, pool, check)
    except SidecarError as error:
        yield problem_in(file.path, place_and_reason(error), error.column)
