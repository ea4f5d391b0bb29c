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

from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from sidecar.access import Access
from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.filter_pool import FilterPool, PooledFilters
from sidecar.conversion.matching.identity import identity_of
from sidecar.conversion.matching.match import Finder, Match
from sidecar.conversion.restore import StoredEntry, every_part, stored_entries
from sidecar.data_files.formats import opened_file
from sidecar.data_files.open_file import DataLeaf, OpenFile
from sidecar.errors import Problem, SidecarError, UsageError, problem_in, reason_at
from sidecar.filters.arrays import Ordinals
from sidecar.questions.value_check import ValueCheck, ValuesLookedUp
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
                yield problem_in(place.path, reason_at(error), error.column)


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
                yield problem_in(sidecar.source.name, reason_at(error), column)


def value_problems_of(
    file: OpenFile, matches: Sequence[Match], pool: FilterPool, check: ValueCheck
) -> Iterator[Problem]:
    """Yield a problem for each index that denies values of the file. ``pool`` has the filters of the file's units."""
    filters: dict[tuple[int, int], list[PooledFilters]] = defaultdict(list)
    entries: dict[tuple[int, int], list[StoredEntry]] = defaultdict(list)
    leaves: dict[int, DataLeaf] = {}
    for part in every_part(matches, file):
        for unit in part.units if file.fits(part.leaf, part.group) else ():
            if pool.has(part, unit):
                leaves[part.column] = part.leaf
                filters[unit, part.column].append(part)
    for entry in stored_entries(matches, file):
        leaves[entry.leaf.index] = entry.leaf
        entries[entry.unit, entry.leaf.index].append(entry)
    for number in range(file.parts):
        for index, leaf in sorted(leaves.items()) if file.part_units(number) else ():
            column = file.column_part(number, leaf)
            try:
                for unit in file.part_units(number):
                    texts: list[str] = []
                    for part in filters.get((unit, index), ()):
                        encoding = part.group.rule.parse_encoding(part.group.encoding)
                        texts += column.filter_problems(unit, pool.get(part, unit), encoding, check)
                    for entry in entries.get((unit, index), ()):
                        texts += column.index_problems(unit, entry.stored, entry.is_proven, check)
                    yield from (problem_in(file.name, f"sidecar: {text}", leaf.own_path, unit) for text in texts)
            except SidecarError as error:
                text = f"sidecar: values could not be looked up: {reason_at(error)}"
                yield problem_in(file.name, text, leaf.own_path)


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
    if not sidecar.is_sidecar:
        raise UsageError("the Puffin file lists no data files: it is not a sidecar", file=source.name)
    problems: list[Problem] = []
    found = dict(_find(Finder(sidecar, merged=True), paths, access, problems))
    chosen = check.choose(len(found))
    with closing(FilterPool()) as pool:
        picked = {path: matches for number, (path, matches) in enumerate(found.items()) if number in chosen}
        numbers = [match.number for matches in picked.values() for match in matches]
        problems += load_filters(pool, sidecar, sidecar.units_of(np.array(numbers, np.int64)))
        for path, matches in picked.items():
            try:
                with opened_file(access, path) as file:
                    problems += value_problems_of(file, matches, pool, check)
            except SidecarError as error:
                problems.append(problem_in(path, reason_at(error), error.column))
    seen = {match.number for matches in found.values() for match in matches}
    return problems, replace(check.looked_up(), files_not_given=sidecar.num_files - len(seen))


def _find(
    finder: Finder, paths: Sequence[str], access: Access, problems: list[Problem]
) -> Iterator[tuple[str, list[Match]]]:
    """Yield the files that the sidecar lists. Each other file, and two that are one listed file, are problems."""
    taken: dict[int, str] = {}
    for path in paths:
        try:
            with opened_file(access, path) as file:
                matches = finder.find(identity_of(file))
        except SidecarError as error:
            problems.append(problem_in(path, f"sidecar: {reason_at(error)}", error.column))
            continue
        for match in matches:
            other = taken.setdefault(match.number, path)
            if other != path:
                problems.append(problem_in(path, f"sidecar: it is the same listed file as {other}"))
        yield path, matches
