"""Which file of a sidecar a data file is; a wrong answer would give it filters that deny its rows.

A file whose live manifest entry is at hand is found by that, as planning does (:meth:`Finder.find_live`). Any other is
first looked for by path, size and record count together. A file that was moved, or that has lost its indexes since, is
found by what its footer says:

- in a sidecar of plain files by the fingerprint of its data (:mod:`sidecar.parquet.identity`,
  :mod:`sidecar.orc.identity`), provided that the footer has statistics, without which files of one shape all look the
  same;
- in a table's sidecar by name, size, record count and row groups, as the names of a table's data files are unique.

In each case the row groups must be those that were indexed. Whatever is in doubt is refused.

What was found so may still be another file: names repeat in other folders, and footers of equal sizes and bounds may
have other values between. :attr:`Match.proof` says what proves that it is not: the table's live entry, the digest of
the stored pages that was recorded beside the fingerprint, or the id that encryption gave the file. A recorded digest
that is another one is refused. Without a proof, an index may be taken only after all values were looked at.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from sidecar.bundle.file_identity import DataFileIdentity
from sidecar.bundle.model import FileEntry
from sidecar.bundle.sidecar_file import Segment, SidecarFile
from sidecar.convert.collection import NO_TABLE
from sidecar.convert.identity import Identity
from sidecar.errors import UsageError
from sidecar.parquet.identity import FINGERPRINT_BYTES
from sidecar.source import local_path

BY_TABLE = "the table's live entry"
BY_DIGEST = "the digest of the stored pages"
BY_ENCRYPTION = "the file's id in its encryption"
WRITTEN_ANEW = "the file was written anew since it was indexed"
PROOFS = (BY_TABLE, BY_DIGEST, BY_ENCRYPTION)


@dataclass(frozen=True)
class Match:
    """A file as one segment lists it; ``units`` are unit ordinals by row group.

    ``proof`` says what proves that the file is the one that was indexed, one of :data:`PROOFS`; empty if nothing does.
    """

    segment: Segment
    entry: FileEntry
    units: tuple[int, ...]
    proof: str = ""

    @property
    def is_proven(self) -> bool:
        """Whether the pages certainly are those that were indexed; they may be at other places in the file."""
        return bool(self.proof)


def is_plain(segment: Segment) -> bool:
    """Whether a segment speaks of plain files, not of a table's."""
    return segment.header.table_uuid == NO_TABLE


class Finder:
    """Finds data files among those of a sidecar; its list of files is read at most once.

    ``live`` are the live files of the sidecar's table by path, as far as they are known.
    """

    def __init__(self, sidecar: SidecarFile, live: Mapping[str, DataFileIdentity] | None = None) -> None:
        self._sidecar = sidecar
        self._live = live or {}
        self._digests: dict[str, bytes] = {}
        self._by_name: dict[tuple[str, str], list[tuple[int, FileEntry]]] = {}
        self._by_data: dict[tuple[str, bytes], list[tuple[int, FileEntry]]] = {}
        self._listed = False

    def listed_files(self) -> list[FileEntry]:
        """All files that the sidecar speaks of, each path once. Raises :class:`UsageError` if it cannot be read."""
        self._list()
        found = {entry.path: entry for same in self._by_name.values() for _, entry in same}
        return list(found.values())

    def find(self, file: Identity) -> list[Match]:
        """The file of this identity, in every segment that lists it, the oldest first.

        Raises :class:`UsageError` if no segment does, or if it cannot be told which file it is.
        """
        known_as = self._live_entry(file)
        if known_as is not None and (live := self.find_live(known_as, file)):
            return live
        found = [self._in_segment(segment, file) for segment in self._sidecar.segments]
        matches = [match for match in found if match is not None]
        if not matches:
            raise self._unknown(file)
        return matches

    def _live_entry(self, file: Identity) -> DataFileIdentity | None:
        entries = (self._live.get(path) for path in _spellings(file.name))
        return next((entry for entry in entries if entry is not None), None)

    def find_live(self, known_as: DataFileIdentity, file: Identity) -> list[Match]:
        """A live file of the sidecar's table, in every segment that lists this very file, the oldest first.

        ``file`` is what its footer says. Raises :class:`UsageError` where that contradicts the sidecar.
        """
        matches = []
        for segment in self._sidecar.segments:
            ordinal = segment.file_ordinal(known_as)
            if ordinal is not None:
                entry = _entry(segment, ordinal)
                if _is_unread(entry, file):
                    continue
                if entry.file_size != file.size or not _same_data(segment, entry, file):
                    raise _is_another(entry, file)
                matches.append(replace(self._match(segment, ordinal, entry, file), proof=BY_TABLE))
        return matches

    def _in_segment(self, segment: Segment, file: Identity) -> Match | None:
        for path in _spellings(file.name):
            ordinal = segment.named_file(path, file.size, file.num_rows)
            if ordinal is not None:
                entry = _entry(segment, ordinal)
                if _is_unread(entry, file):
                    return None
                if not _same_data(segment, entry, file):
                    raise UsageError(WRITTEN_ANEW, file=file.name)
                return self._match(segment, ordinal, entry, file)
        found = self._moved(segment, file)
        certain = [one for one in found if _name(one[1].path) == _name(file.name)] or found
        if len(certain) > 1:
            certain = [one for one in found if self._has_digest_of(one[1], file)] or certain
        if len(certain) > 1 and not all(self._has_digest_of(entry, file) for _, entry in certain):
            raise UsageError(
                "several files of the sidecar look like this one",
                file=file.name,
                found=", ".join(entry.path for _, entry in certain[:3]),
            )
        return self._match(segment, *certain[0], file) if certain else None

    def _match(self, segment: Segment, ordinal: int, entry: FileEntry, file: Identity) -> Match:
        first, stop = segment.unit_ranges[ordinal : ordinal + 2].tolist()
        if stop - first != len(entry.units):
            raise UsageError("the sidecar contradicts itself on the units of a file", file=entry.path)
        return Match(segment, entry, tuple(range(first, stop)), self._proof(segment, entry, file))

    def _proof(self, segment: Segment, entry: FileEntry, file: Identity) -> str:
        """The proof for a plain file, or empty. Raises :class:`UsageError` if the recorded digest is not the file's."""
        if not is_plain(segment) or not entry.entry:
            return ""
        if file.is_unique:
            return BY_ENCRYPTION
        if len(entry.entry) == FINGERPRINT_BYTES:
            return ""
        if not self._has_digest_of(entry, file):
            raise UsageError(WRITTEN_ANEW, file=file.name, found="other bytes in its pages")
        return BY_DIGEST

    def _has_digest_of(self, entry: FileEntry, file: Identity) -> bool:
        """Whether the file has the digest that is recorded; it is read at most once."""
        recorded = entry.entry[FINGERPRINT_BYTES:]
        if not recorded:
            return False
        if file.name not in self._digests:
            self._digests[file.name] = file.digest()
        return recorded == self._digests[file.name]

    def _moved(self, segment: Segment, file: Identity) -> list[tuple[int, FileEntry]]:
        """Files of a segment that may be this one at another place."""
        self._list()
        if is_plain(segment):
            same = self._by_data.get((segment.id, file.fingerprint), []) if file.is_distinctive() else []
        else:
            named = self._by_name.get((segment.id, _name(file.name)), [])
            same = [one for one in named if one[1].file_size == file.size]
        return [one for one in same if _same_data(segment, one[1], file)]

    def _unknown(self, file: Identity) -> UsageError:
        """Say why, where a file of that name is there."""
        self._list()
        for segment in self._sidecar.segments:
            for _, entry in self._by_name.get((segment.id, _name(file.name)), []):
                if _is_unread(entry, file):
                    return UsageError(
                        "the sidecar has no row groups of this file: it could not be read when it was indexed",
                        file=file.name,
                        hint="Build again, with the keys of an encrypted file.",
                    )
                if is_plain(segment) and _same_data(segment, entry, file):
                    return UsageError(
                        "the file may be another one than was indexed: its footer has no statistics to tell by",
                        file=file.name,
                        expected=f"the path {entry.path}",
                    )
                return _is_another(entry, file)
        return UsageError("the sidecar does not speak of this file", file=file.name)

    def _list(self) -> None:
        if self._listed:
            return
        for segment in self._sidecar.segments:
            for ordinal, entry in enumerate(segment.files(range(segment.num_files))):
                if entry is None:
                    raise _unreadable(segment)
                own = entry.entry[:FINGERPRINT_BYTES]
                self._by_name.setdefault((segment.id, _name(entry.path)), []).append((ordinal, entry))
                self._by_data.setdefault((segment.id, own), []).append((ordinal, entry))
        self._listed = True


def _entry(segment: Segment, ordinal: int) -> FileEntry:
    (entry,) = segment.files([ordinal])
    if entry is None:
        raise _unreadable(segment)
    return entry


def _same_data(segment: Segment, entry: FileEntry, file: Identity) -> bool:
    if entry.record_count != file.num_rows or entry.units != file.units:
        return False
    return not is_plain(segment) or entry.entry[:FINGERPRINT_BYTES] in (b"", file.fingerprint)


def _is_unread(entry: FileEntry, file: Identity) -> bool:
    """Whether a file was listed without its row groups: it was damaged then, or encrypted and its keys not given."""
    return not entry.units and bool(file.units) and entry.record_count == file.num_rows


def _unreadable(segment: Segment) -> UsageError:
    return UsageError("the sidecar's list of files cannot be read", found=segment.id)


def _is_another(entry: FileEntry, file: Identity) -> UsageError:
    return UsageError(
        "the file is not the one that was indexed",
        file=file.name,
        expected=_facts(entry.file_size, entry.record_count, len(entry.units)),
        found=_facts(file.size, file.num_rows, len(file.units)),
    )


def _facts(size: int, rows: int, groups: int) -> str:
    return f"{size} bytes, {rows} rows, {groups} row groups"


def _name(path: str) -> str:
    return PurePosixPath(path).name


def _spellings(path: str) -> list[str]:
    """A local path as different writers spell it."""
    local = local_path(path)
    if local is None:
        return [path]
    full = os.path.abspath(local)
    return list(dict.fromkeys([path, local, full, f"file://{full}", f"file:{full}"]))
