"""Encodes and decodes coverage: the states of a segment's units for one field and kind, as runs.

offset  size  content (little-endian)
0       4     u32 length j of the JSON text
4       j     JSON {"field": id, "kind": name, "states": [[state, resolution], ...]}
4 + j   8 r   r runs: u32 number of units, u32 index into states; together they cover all units of the segment
"""

from __future__ import annotations

import struct
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from sidecar.bundle.envelopes.envelope import decode_toc, encode_toc, integer, member
from sidecar.bundle.model import Coverage, CoverageState
from sidecar.errors import DamagedFileError

_LENGTH = struct.Struct("<I")


def encode_coverage(coverage: Coverage) -> bytes:
    """Encode the coverage of one field and kind."""
    states = [list(state) for state in coverage.states]
    text = encode_toc({"field": coverage.field_id, "kind": coverage.kind, "states": states})
    codes = coverage.codes
    starts = np.flatnonzero(np.diff(codes, prepend=-1))
    runs = np.stack((np.diff(starts, append=len(codes)), codes[starts]), axis=1)
    return _LENGTH.pack(len(text)) + text + runs.astype("<u4").tobytes()


def decode_coverage(data: bytes, num_units: int) -> Coverage:
    """Decode verified bytes to the state of each unit. Raises as :func:`decode_runs`."""
    return decode_runs(data, num_units).expand()


class CoverageRuns(NamedTuple):
    """The coverage of one field and kind as it is stored: int64[n, 2], numbers of units and indexes into ``states``.

    It takes as much memory as its bytes, however many units it covers.
    """

    field_id: int
    kind: str
    states: tuple[CoverageState, ...]
    runs: npt.NDArray[np.int64]

    def counts(self) -> dict[str, int]:
        """Return the number of units by state, as :meth:`Coverage.counts` does."""
        counts = dict.fromkeys((state.state for state in self.states), 0)
        for units, code in self.runs.tolist():
            counts[self.states[code].state] += units
        return counts

    def expand(self) -> Coverage:
        """Return the state of each unit."""
        codes = np.repeat(self.runs[:, 1].astype(np.int32), self.runs[:, 0])
        return Coverage(self.field_id, self.kind, self.states, codes)


def decode_runs(data: bytes, num_units: int) -> CoverageRuns:
    """Decode verified bytes. Raises :class:`DamagedFileError` unless they cover exactly ``num_units`` units."""
    if len(data) < _LENGTH.size:
        raise DamagedFileError("the coverage is too short", found=len(data))
    start = _LENGTH.size + _LENGTH.unpack_from(data)[0]
    content = decode_toc(data[_LENGTH.size : start])
    states = [_state(state) for state in member(content, "states", list)]
    if start > len(data) or (len(data) - start) % 8:
        raise DamagedFileError("the coverage is cut short or has an incomplete run", expected=start, found=len(data))
    runs = np.frombuffer(data, "<u4", offset=start).reshape(-1, 2).astype(np.int64)
    total = int(runs[:, 0].sum())
    if total != num_units or (runs[:, 1] >= len(states)).any():
        raise DamagedFileError("the coverage does not cover the segment's units", expected=num_units, found=total)
    field_id = integer(content, "field", -(1 << 31), (1 << 31) - 1)
    return CoverageRuns(field_id, member(content, "kind", str), tuple(states), runs)


def _state(value: object) -> CoverageState:
    if not (isinstance(value, list) and len(value) == 2 and all(isinstance(part, str) for part in value)):
        raise DamagedFileError("a coverage state is not a list of two strings", found=repr(value)[:60])
    return CoverageState(*value)
