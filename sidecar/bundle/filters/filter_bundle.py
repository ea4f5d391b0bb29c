"""Looks up values in a bundle of filters. The byte layout is described in ``layout`` and ``filter_toc``.

A probe tests some bits of a filter; the group's index rule (``rules``) says which. Bit p of all members is stored as
row p % 256 of region p // 256. So the AND of the tested rows *is* the set of members that might contain the hash:
eight rows of one region for split-block filters, k rows for ORC filters. Only "no" is certain. If anything cannot be
read, verified or understood, the answer stays "maybe".
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.checksum import BlobContext
from sidecar.bundle.field_blob import FieldBlob
from sidecar.bundle.filters.filter_toc import FilterToc, StoredGroup
from sidecar.bundle.filters.layout import BLOCK_BITS, BLOCK_BYTES
from sidecar.bundle.filters.pages import open_pages, read_own_blocks, read_tails, walk_pages
from sidecar.errors import DamagedFileError, SidecarError, UnsupportedFeatureError
from sidecar.filters.probes import FieldQuestion, any_of
from sidecar.filters.values import Probe

Bits = npt.NDArray[np.bool_]


class BundlePiece(NamedTuple):
    """A row, region or page: a range of the blob in bytes, and the context of its checksum."""

    offset: int
    length: int
    context: bytes


class _Lookup(NamedTuple):
    """One hash in one group: the (region, row) pairs that it tests, by the piece that has them."""

    group: StoredGroup
    rows: Mapping[BundlePiece, list[tuple[int, int]]]


class FilterBundle(FieldBlob[FilterToc]):
    """The filters of one field of one segment. A damaged group is unknown."""

    consequence = "; its units are kept"
    _damage_reported = False

    @property
    def members(self) -> int:
        """The units that have a filter in the bundle."""
        return sum(group.members for group in self.toc.groups)

    @property
    def stored_bytes(self) -> int:
        """The bytes of all groups."""
        return sum(group.length for group in self.toc.groups)

    def describe(self) -> dict[str, Any]:
        """Return what the table of contents says, as plain data."""
        return {
            "field": self.toc.field_id,
            "kind": self.toc.rule_type.name,
            "encrypted": self.toc.lock is not None,
            "fpp": self.toc.fpp,
            "expected_false_units": self.toc.expected_false_units,
            "groups": [group.describe() for group in self.toc.groups],
            "damage": list(self.toc.damage),
        }

    def verify(self) -> Iterator[str]:
        """Yield the problems of the bundle, one line for each damaged page or group."""
        yield from self.toc.damage
        try:
            place = self.place
        except SidecarError as error:
            yield f"not checked: {error}"
            return
        for group in self.toc.groups:
            try:
                read_own_blocks(group, place, self.read_ranges)
                read_tails(group, place, self.read_ranges)
                for pages in walk_pages(group, self.read_ranges):
                    for bad in open_pages(group, place, pages)[1]:
                        where = f"segment {self.toc.segment_id.hex()}, {group.rule.name} group {group.ordinal}, {bad}"
                        yield f"{where}: wrong checksum or padding"
            except (DamagedFileError, UnsupportedFeatureError) as error:
                yield str(error)

    def might_match(self, question: FieldQuestion) -> Bits:
        """Return bool[units]: False where a filter excludes all probed values.

        One call of the reader fetches the ranges of all groups. Never raises for the content of the file.
        """
        self.report_skipped_groups()
        keep = np.ones(self.toc.num_units, np.bool_)
        place = self.usable_place()
        if place is None:
            return keep
        lookups: list[_Lookup] = []
        answers: dict[int, Bits] = {}
        for group in self.toc.groups:
            probes = self.probes_for(group, question)
            answer = None if probes is None else any_of(probes)
            if answer is None or not answer.is_certain:
                continue  # nothing is certain, so the group's units stay True in ``keep``
            answers[group.ordinal] = np.zeros(group.layout.members, np.bool_)
            if answer.verdict == "probe":
                lookups += [_locate(group, value, place) for value in answer.hashes]
        data = self._fetch(lookups)
        for lookup in lookups:
            answers[lookup.group.ordinal] |= self._evaluate(lookup, data, place)
        for group in self.toc.groups:
            if group.ordinal in answers:
                keep[group.units] &= answers[group.ordinal]
        return keep

    def probes_for(self, group: StoredGroup, question: FieldQuestion) -> Sequence[Probe] | None:
        """Return the probes of the question in the group's encoding, ``None`` if the group cannot answer."""
        try:
            if question.may_ask(group.resolution):
                return question.probes[group.rule.parse_encoding(group.encoding)]
        except SidecarError as error:
            self.report(error)
        return None

    def _fetch(self, lookups: Sequence[_Lookup]) -> Mapping[BundlePiece, bytes] | None:
        """Return all pieces of the lookups, ``None`` if they cannot be read."""
        pieces = list(dict.fromkeys(piece for lookup in lookups for piece in lookup.rows))
        try:
            data = self.read_ranges([(piece.offset, piece.length) for piece in pieces])
        except SidecarError as error:
            self.report(error)
            return None
        return dict(zip(pieces, data, strict=True))

    def _evaluate(self, lookup: _Lookup, data: Mapping[BundlePiece, bytes] | None, place: BlobContext) -> Bits:
        """Return bool[N]: which members might contain the hash; all of them if a piece does not verify."""
        group = lookup.group
        all_members = np.ones(group.layout.members, np.bool_)
        if data is None:
            return all_members
        tested = []
        for piece, rows in lookup.rows.items():
            opened = place.open(piece.context, data[piece])
            if opened is None:
                self.report_damage(piece)
                return all_members
            tested.append(rows_of(group, opened, rows))
        return members_in_all(group, tested)

    def report_damage(self, piece: BundlePiece) -> None:
        """Report a damaged piece, only the first one of the bundle."""
        if not self._damage_reported:
            self._damage_reported = True
            problem = "have a wrong checksum" if self.toc.lock is None else "do not decrypt: they were changed"
            self.report(DamagedFileError(f"the filters {problem}; their units are kept", offset=piece.offset))


def _locate(group: StoredGroup, value: int, place: BlobContext) -> _Lookup:
    rows: dict[BundlePiece, list[tuple[int, int]]] = defaultdict(list)
    layout = group.layout
    rows_alone = layout.sliced and layout.rows_sealed
    pieces: dict[tuple[int, int], BundlePiece] = {}
    for region, row in group.rule.rows(value, layout.blocks):
        smallest = (region, row if rows_alone else 0)
        if smallest not in pieces:
            pieces[smallest] = piece_of(group, place, *smallest)
        rows[pieces[smallest]].append((region, row))
    return _Lookup(group, rows)


def piece_of(group: StoredGroup, place: BlobContext, region: int, row: int) -> BundlePiece:
    """Return the smallest piece with its own checksum that has the row."""
    layout, rule = group.layout, group.rule
    if layout.sliced and layout.rows_sealed:
        offset, length = layout.row_offset(region, row), layout.row_stride
        context = place.context(rule.row, region, group.ordinal, row)
    else:
        page = region // layout.page_regions
        offset, length = layout.page_offset(page), layout.page_length(page)
        context = place.context(rule.region if layout.sliced else rule.page, page, group.ordinal)
    return BundlePiece(group.offset + offset, length, context)


def rows_of(group: StoredGroup, piece: bytes | memoryview, rows: Sequence[tuple[int, int]]) -> npt.NDArray[np.uint8]:
    """Return the rows of an opened piece: bits uint8[r, ceil(N / 8)], or for transposed groups 0 or 1 uint8[r, N]."""
    layout = group.layout
    if layout.sliced and layout.rows_sealed:
        return np.frombuffer(piece, np.uint8, count=layout.row_bytes)[None]
    regions, places = np.array(rows).T
    if layout.sliced:
        held = np.frombuffer(piece, np.uint8, count=BLOCK_BITS * layout.row_bytes)
        rows_held: npt.NDArray[np.uint8] = held.reshape(BLOCK_BITS, -1)[places]
        return rows_held
    blocks = np.frombuffer(piece, np.uint8, count=len(piece) // BLOCK_BYTES * BLOCK_BYTES)
    page = blocks.reshape(-1, layout.members, BLOCK_BYTES)
    tested_bytes = page[regions % layout.page_regions, :, places >> 3]
    bits: npt.NDArray[np.uint8] = (tested_bytes >> (places & 7).astype(np.uint8)[:, None]) & np.uint8(1)
    return bits


def members_in_all(group: StoredGroup, rows: Sequence[npt.NDArray[np.uint8]]) -> Bits:
    """Return bool[N]: the members whose bit is set in every row."""
    both: npt.NDArray[np.uint8] = np.bitwise_and.reduce(np.concatenate(rows), axis=0)
    if group.layout.sliced:
        both = np.unpackbits(both, count=group.layout.members, bitorder="little")
    return both.view(np.bool_)
