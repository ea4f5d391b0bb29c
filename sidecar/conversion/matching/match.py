"""Matches a data file with the files that a sidecar lists. A wrong match gives the file filters that deny its rows.

If the live manifest entry of the file is at hand, the file is found by that entry, as in planning
(:meth:`Finder.find_live`). Otherwise it is found by path, size and record count together. A file that was moved, or
that lost its indexes since, is found by its footer:

- In a sidecar of plain files: by the fingerprint of its data (:mod:`sidecar.parquet.identity`,
  :mod:`sidecar.orc.identity`). The footer must have statistics, because without them files of one shape look the same.
- In a table's sidecar: by name, size, record count and row groups, because file names in a table are unique.

In each case the row groups must be those that were indexed, or one unit for all of them in a sidecar of merged filters
(:mod:`sidecar.conversion.reshape`). A match in doubt is refused.

A match may still be a different file: names repeat in other folders, and footers with equal sizes and bounds may hide
different values. :attr:`Match.proof` says what proves that it is the same file: the table's live entry, the recorded
digest of the stored pages, or the id that encryption gave the file. If the recorded digest differs from the file's, the
match is refused. Without a proof, an index may be used only after all values were looked up.
"""

from __future__ import annotations

import os
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath
from typing import NamedTuple

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import FileEntry
from sidecar.bundle.sidecar_file import SidecarFile
from sidecar.conversion.matching.identity import Identity
from sidecar.conversion.reshape import WHOLE_FILE
from sidecar.errors import UsageError
from sidecar.parquet.identity import FINGERPRINT_BYTES
from sidecar.storage.locations import local_path

BY_TABLE = "the table's live entry"
BY_DIGEST = "the digest of the stored pages"
BY_ENCRYPTION = "the file's id in its encryption"
WRITTEN_ANEW = "the file was rewritten since it was indexed"


@dataclass(frozen=True)
class Match:
    """A data file as a sidecar lists it under a ``number``. ``units`` are the numbers of its units, by row group.

    Each segment that lists the file has a number of its own for it. ``proof`` is :data:`BY_TABLE`, :data:`BY_DIGEST` or
    :data:`BY_ENCRYPTION`: it proves that the file is the one that was indexed. It is empty without a proof.
    """

    sidecar: SidecarFile
    entry: FileEntry
    units: tuple[int, ...]
    number: int
    proof: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether it was listed as a plain file, not as one of a table."""
        return self.sidecar.is_plain(self.number)

    @property
    def is_proven(self) -> bool:
        """Whether the pages are certainly those that were indexed. Their offsets in the file may differ."""
        return bool(self.proof)


class _ListedFile(NamedTuple):
    """A file of the sidecar; ``is_plain`` says that it was listed as a plain file, not as one of a table."""

    number: int
    entry: FileEntry
    is_plain: bool


class Finder:
    """Finds data files in a sidecar. It reads the sidecar's list of files at most once.

    ``live`` has the live files of the sidecar's table by path, if the table is at hand. ``merged`` says whether files
    with merged filters are wanted: each row group then has the same unit. Without it they raise :class:`UsageError`.
    """

    def __init__(
        self, sidecar: SidecarFile, live: Mapping[str, DataFileIdentity] | None = None, *, merged: bool = False
    ) -> None:
        self._sidecar = sidecar
        self._merged = merged
        self._live = live or {}
        self._by_name: dict[str, list[_ListedFile]] = {}
        self._by_data: dict[bytes, list[_ListedFile]] = {}
        self._is_listed = False

    def listed_files(self) -> list[FileEntry]:
        """Return all files that the sidecar lists, each path once. Raises :class:`UsageError` if the list is broken."""
        self._list()
        found = {listed.entry.path: listed.entry for same in self._by_name.values() for listed in same}
        return list(found.values())

    def find(self, file: Identity) -> list[Match]:
        """Return the matches of a file, one for each segment that lists it, the oldest segment first.

        Raises :class:`UsageError` if no segment lists the file, if several listed files look like it, or if its pages
        are not those that were indexed, and :class:`sidecar.errors.WrongChecksumError` if a page is damaged.
        """
        return prove(file, self.look_up(file))

    def look_up(self, file: Identity) -> list[Match]:
        """Return what :meth:`find` returns, without the proof that takes all pages: see :func:`prove`.

        Reads the pages of a file only if several listed files look like it. Raises the errors of :meth:`find`.
        """
        known_as = self._live_entry(file)
        if known_as is not None and (live := self.find_live(known_as, file)):
            return live
        sidecar, candidates = self._sidecar, dict[int, list[_ListedFile]]()
        named = [n for path in _spellings(file.name) for n in sidecar.named_as(path, file.size, file.num_rows)]
        for listed in map(self._listed, named):
            candidates.setdefault(sidecar.owner(listed.number), [listed])
        is_named = set(candidates)
        if not sidecar.are_in_all(named):  # look for a file that was moved
            for listed in self._moved(file):
                if sidecar.owner(listed.number) not in is_named:
                    candidates.setdefault(sidecar.owner(listed.number), []).append(listed)
        found = (_likely(file, candidates[owner], owner in is_named) for owner in sorted(candidates))
        matches = [self._match(listed, file) for listed in found if listed is not None]
        if not matches:
            raise self._unknown(file)
        return matches

    def _live_entry(self, file: Identity) -> DataFileIdentity | None:
        entries = (self._live.get(path) for path in _spellings(file.name))
        return next((entry for entry in entries if entry is not None), None)

    def find_live(self, known_as: DataFileIdentity, file: Identity) -> list[Match]:
        """Return the matches of a live file of the table, one for each segment that lists it, the oldest first.

        ``file`` is the identity from its footer. Raises :class:`UsageError` if that contradicts the sidecar.
        """
        matches = []
        for listed in map(self._listed, self._sidecar.numbers_of(known_as)):
            if _is_unread(listed.entry, file):
                continue
            if listed.entry.identity.file_size != file.size or not _same_data(listed, file):
                raise _is_another(listed.entry, file)
            matches.append(replace(self._match(listed, file), proof=BY_TABLE))
        return matches

    def _listed(self, number: int) -> _ListedFile:
        (entry,) = self._sidecar.entries([number])
        return self._readable(number, entry)

    def _readable(self, number: int, entry: FileEntry | None) -> _ListedFile:
        if entry is None:
            raise UsageError("the sidecar's list of files cannot be read", file=self._sidecar.source.name)
        return _ListedFile(number, entry, self._sidecar.is_plain(number))

    def _match(self, listed: _ListedFile, file: Identity) -> Match:
        number, entry, _ = listed
        first, stop = self._sidecar.unit_ranges[number : number + 2].tolist()
        if stop - first != len(entry.units):
            raise UsageError("the sidecar contradicts itself on the units of a file", file=entry.path)
        if not _is_merged(entry):
            return Match(self._sidecar, entry, tuple(range(first, stop)), number)
        if not self._merged:
            raise UsageError(
                "the sidecar has merged filters, one for all row groups that were indexed",
                file=file.name,
                hint="Extract the filters again without merging them.",
            )
        return Match(self._sidecar, entry, (first,) * len(file.units), number)

    def _moved(self, file: Identity) -> list[_ListedFile]:
        """Return the listed files that may be this one at another path, in the order of their numbers."""
        self._list()
        alike = self._by_data.get(file.fingerprint, []) if file.is_distinctive() else []
        named = self._by_name.get(_name(file.name), [])
        candidates = [listed for listed in alike if listed.is_plain]
        candidates += [one for one in named if not one.is_plain and one.entry.identity.file_size == file.size]
        return [listed for listed in candidates if _same_data(listed, file)]

    def _unknown(self, file: Identity) -> UsageError:
        """Return the error for a file that was not found. If its name is listed, the error says what differs."""
        self._list()
        same_name = self._by_name.get(_name(file.name))
        if not same_name:
            return UsageError("the sidecar does not list this file", file=file.name)
        listed = same_name[0]
        if _is_unread(listed.entry, file):
            return UsageError(
                "the sidecar has no row groups of this file: it could not be read when it was indexed",
                file=file.name,
                hint="Build again, with the keys of an encrypted file.",
            )
        if listed.is_plain and _same_data(listed, file):
            return UsageError(
                "cannot tell whether the file is the one that was indexed: its footer has no statistics",
                file=file.name,
                expected=f"the path {listed.entry.path}",
            )
        return _is_another(listed.entry, file)

    def _list(self) -> None:
        if self._is_listed:
            return
        numbers = range(self._sidecar.num_files)
        for listed in map(self._readable, numbers, self._sidecar.entries(numbers)):
            self._by_name.setdefault(_name(listed.entry.path), []).append(listed)
            self._by_data.setdefault(listed.entry.entry[:FINGERPRINT_BYTES], []).append(listed)
        self._is_listed = True


def _likely(file: Identity, candidates: list[_ListedFile], is_named: bool) -> _ListedFile | None:
    """Return which of the candidates of a segment is the file; ``None`` if it was listed without row groups.

    Without one that has the path, the same name goes before, then the same digest. Several entries with the file's
    digest hold the same values, so any of them will do; other ties are refused.
    """
    if is_named:
        (listed,) = candidates
        if _is_unread(listed.entry, file):
            return None
        if not _same_data(listed, file):
            raise UsageError(WRITTEN_ANEW, file=file.name)
        return listed
    likely = [listed for listed in candidates if _name(listed.entry.path) == _name(file.name)] or candidates
    if (
        len(likely) == 1 or not file.num_rows
    ):  # files without rows look alike, and indexes of one deny nothing of another
        return likely[0]
    digest = _digest(file, {_recorded(listed.entry) for listed in candidates})
    alike = [listed for listed in candidates if digest and _recorded(listed.entry) == digest]
    if not alike:
        raise UsageError(
            "several files of the sidecar look like this one",
            file=file.name,
            found=", ".join(listed.entry.path for listed in likely[:3]),
        )
    return alike[0]


def prove(file: Identity, matches: Sequence[Match]) -> list[Match]:
    """Return the matches of a file with their proofs. Safe in any thread: it reads the file's pages and nothing else.

    Raises :class:`UsageError` if the pages are not those that were indexed, and
    :class:`sidecar.errors.WrongChecksumError` if one is damaged.
    """
    return [match if match.proof else replace(match, proof=_proof(match, file)) for match in matches]


def _proof(match: Match, file: Identity) -> str:
    """Return the proof for a plain file; an empty text without one."""
    if not match.is_plain or not match.entry.entry:
        return ""
    if file.is_unique:
        return BY_ENCRYPTION
    recorded = _recorded(match.entry)
    if recorded and _digest(file, {recorded}) != recorded:
        raise UsageError(WRITTEN_ANEW, file=file.name, found="different bytes in its pages")
    return BY_DIGEST if recorded else ""


def _recorded(entry: FileEntry) -> bytes:
    """Return the digest that a plain file's entry has after the fingerprint; empty without one."""
    return entry.entry[FINGERPRINT_BYTES:]


def _digest(file: Identity, recorded: Collection[bytes]) -> bytes:
    """Return the digest of a file; an empty text if ``recorded`` has none to compare it with.

    A digest that is recorded says that no page has changed, so checksums of pages can tell nothing more. For another
    one the pages are read again, with their checksums, which tell damage from another file.
    """
    if not any(recorded):
        return b""
    digest = file.digest()
    return digest if digest in recorded else file.checked_digest()


def _same_data(listed: _ListedFile, file: Identity) -> bool:
    entry = listed.entry
    if entry.identity.record_count != file.num_rows or (entry.units != file.units and not _is_merged(entry)):
        return False
    return not listed.is_plain or entry.entry[:FINGERPRINT_BYTES] in (b"", file.fingerprint)


def _is_merged(entry: FileEntry) -> bool:
    return [unit.row_group for unit in entry.units] == [WHOLE_FILE]


def _is_unread(entry: FileEntry, file: Identity) -> bool:
    """Return whether the file was listed without row groups because it was damaged or its keys were missing."""
    return not entry.units and bool(file.units) and entry.identity.record_count == file.num_rows


def _is_another(entry: FileEntry, file: Identity) -> UsageError:
    return UsageError(
        "the file is not the one that was indexed",
        file=file.name,
        expected=_facts(entry.identity.file_size, entry.identity.record_count, len(entry.units)),
        found=_facts(file.size, file.num_rows, len(file.units)),
    )


def _facts(size: int, rows: int, groups: int) -> str:
    return f"{size} bytes, {rows} rows, {groups} row groups"


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _spellings(path: str) -> list[str]:
    """Return the spellings of a local path that writers use; a remote path has one."""
    local = local_path(path)
    if local is None:
        return [path]
    full = os.path.abspath(local)
    return list(dict.fromkeys([path, local, full, f"file://{full}", f"file:{full}"]))
