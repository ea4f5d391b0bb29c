"""Decides whether a live data file of a table is the one that a segment lists. No other module decides this.

A path is not enough: a file may leave a table and come back under its path with other content, of the same size and
with as many rows. So a file is the same only if path, size, record count and the id of the snapshot that added it
agree, and the file sequence numbers agree where both are known. Format version 1 has no
sequence numbers, and its files keep 0 after an upgrade. Rewriting manifests, moving a table, fast-forwarding a branch
and registering a table keep both numbers; adding the file again changes them, and then it is another file.

A wrong "same" loses rows; a wrong "not the same" reads a file in vain. So a file counts as another one when in doubt.
"""

from __future__ import annotations

from typing import Any, NamedTuple, TypeVar

import numpy.typing as npt

Sequences = TypeVar("Sequences", int, npt.NDArray[Any])

UNKNOWN_SEQUENCE = 0
"""The file sequence number of files in format version 1, and of files for which none is recorded."""


class DataFileIdentity(NamedTuple):
    """A data file as a live manifest entry has it, or as a segment lists it.

    ``path`` is spelt as in the manifest. ``added_snapshot_id`` is the snapshot that added the file, inherited from the
    manifest where its entry has none; ``None`` if it is not known, as for files of no table. ``file_sequence_number``
    is the sequence number with which the file was added (not that of its data).
    """

    path: str
    file_size: int
    record_count: int
    added_snapshot_id: int | None = None
    file_sequence_number: int = UNKNOWN_SEQUENCE

    @property
    def is_certain(self) -> bool:
        """Whether it is known who added the file; the ids of snapshots are greater than 0."""
        return self.added_snapshot_id is not None and self.added_snapshot_id > 0


def is_same_file(one: DataFileIdentity, other: DataFileIdentity) -> bool:
    """Whether both are one file, with the same content; false where it is not certain."""
    return (
        one.is_certain
        and one[:4] == other[:4]
        and bool(sequences_agree(one.file_sequence_number, other.file_sequence_number))
    )


def sequences_agree(one: Sequences, other: Sequences) -> Sequences:
    """Whether two file sequence numbers, or each two of arrays, can be of one file: equal, or one is not known."""
    agree: Sequences = (one == other) | (one <= UNKNOWN_SEQUENCE) | (other <= UNKNOWN_SEQUENCE)
    return agree
