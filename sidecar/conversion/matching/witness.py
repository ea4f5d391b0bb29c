"""Compares indexes with the values of a file before they are published in it.

An index of a different file denies values that this file has, so readers lose rows. If something proves that the file
is the one that was indexed (:attr:`sidecar.conversion.matching.match.Match.proof`), one page of each column chunk is a
cheap extra check. Without a proof, all values are looked up, which proves that the indexes lose none of them.

``extract`` also checks one page of each column before it takes indexes out of a file (:class:`FileWitness`).

The values of a page are looked up in the filter in their stored bytes, which the filter's writer hashed. The page index
must have the page's offset, rows, nulls and levels exactly; its bounds may be wider than the values.
:mod:`sidecar.data_files.chunk_check` does this, :mod:`sidecar.conversion.matching.orc_witness` for ORC filters.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from sidecar.bundle.kinds.declared import IndexKind
from sidecar.conversion.matching.identity import is_local
from sidecar.data_files.chunk_check import ChunkCheck
from sidecar.data_files.open_file import OpenFile, OwnIndex

UNPROVEN = "nothing proves that the file is the one that was indexed"
ANOTHER_FILE = "the sidecar's indexes deny values that the file has: they belong to another file"


@dataclass
class Witness:
    """Counts what was compared in one file, and lists the contradictions that were found.

    ``proof`` says what proves that the file is the one that was indexed. Then one page of each chunk is compared, and
    all values without a proof, when it is empty.
    """

    proof: str = ""
    chunks: int = 0
    """Column chunks that were compared."""
    pages: int = 0
    """Data pages that were decoded; row groups in ORC."""
    values: int = 0
    """Values that were looked up in filters."""
    contradictions: list[str] = field(default_factory=list)
    """Indexes that the values contradict, and how."""
    not_compared: list[str] = field(default_factory=list)
    """Column chunks that could not be compared, and why."""

    def add(self, column: str, row_group: int, check: ChunkCheck) -> None:
        """Add the result of one chunk."""
        self.chunks += 1
        self.pages += check.pages
        self.values += check.values
        place = f"column {column}, row group {row_group}"
        if check.contradiction:
            self.contradictions.append(f"{place}: {check.contradiction}")
        if check.not_compared:
            self.not_compared.append(f"{place}: {check.not_compared}")

    def add_all(self, other: Witness) -> None:
        """Add what was compared in other files."""
        self.chunks += other.chunks
        self.pages += other.pages
        self.values += other.values
        self.contradictions += other.contradictions
        self.not_compared += other.not_compared

    def why_not_used(self) -> str:
        """Return why doubtful indexes are not used."""
        return ANOTHER_FILE if self.contradictions else UNPROVEN

    def to_dict(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return dict(vars(self))


class FileWitness:
    """Compares the first values of each column of a local file with the first filter and page index taken out of it.

    One page is usually enough, because an index of the wrong file or column contradicts nearly every page.
    """

    def __init__(self, file: OpenFile, witness: Witness) -> None:
        self._file = file
        self._witness = witness
        self._contradictions: dict[tuple[int, IndexKind], str] = {}

    def contradiction(self, part: int, found: OwnIndex) -> str:
        """Return what the column's page contradicts; an empty text if nothing, or if the page cannot be read."""
        if not is_local(self._file.name):
            return ""
        place = found.leaf.index, found.kind
        if place not in self._contradictions:
            check = self._file.column_part(part, found.leaf).first_values(found)
            if check is not None:
                self._witness.add(f"{found.leaf.path} of {self._file.name}", found.unit, check)
            self._contradictions[place] = "" if check is None else check.contradiction or check.misplaced
        return self._contradictions[place]
