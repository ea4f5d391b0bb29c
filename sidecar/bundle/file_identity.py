"""Decides whether a live data file of a table is the one that a segment lists. No other module decides this.

A path is not enough: a file can leave a table and come back under the same path with other content, of the same size
and row count. Two files are the same only if path, size, record count and the id of the snapshot that added them are
equal, and the file sequence numbers are equal where both are known. Format version 1 has no sequence numbers, and its
files keep 0 after an upgrade. Both numbers survive rewriting manifests, moving a table, fast-forwarding a branch and
registering a table. Adding the file again changes them, and then it counts as a different file.

A wrong "same" loses rows. A wrong "not the same" only reads a file in vain. So files differ when in doubt.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

Sequences = TypeVar("Sequences", int, npt.NDArray[Any])

UNKNOWN_SEQUENCE = 0
"""The file sequence number of files in format version 1, and of files without a recorded number."""


class DataFileIdentity(NamedTuple):
    """The identity of a data file, from a live manifest entry or from a segment.

    ``path`` is spelt as in the manifest. ``added_snapshot_id`` is the snapshot that added the file, inherited from the
    manifest if its entry has none; ``None`` if unknown, as for files outside a table. ``file_sequence_number`` is the
    sequence number with which the file was added (not the data sequence number).
    """

    path: str
    file_size: int
    record_count: int
    added_snapshot_id: int | None = None
    file_sequence_number: int = UNKNOWN_SEQUENCE

    @property
    def is_certain(self) -> bool:
        """Whether the snapshot that added the file is known. Snapshot ids are greater than 0."""
        return self.added_snapshot_id is not None and self.added_snapshot_id > 0


def is_same_file(first: DataFileIdentity, second: DataFileIdentity) -> bool:
    """Return whether both are the same file with the same content; False if that is not certain."""
    return (
        first.is_certain
        and first[:4] == second[:4]
        and bool(sequences_agree(first.file_sequence_number, second.file_sequence_number))
    )


def sequences_agree(first: Sequences, second: Sequences) -> Sequences:
    """Return whether two file sequence numbers (or arrays, pairwise) can belong to one file: equal, or one unknown."""
    agree: Sequences = (first == second) | (first <= UNKNOWN_SEQUENCE) | (second <= UNKNOWN_SEQUENCE)
    return agree
