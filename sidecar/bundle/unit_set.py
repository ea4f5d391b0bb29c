"""Sets of unit ordinals in tables of contents, as runs, or as a bitmap if runs would take much more space.

``{"runs": [[first, count], ...]}`` in rising order without overlap, or ``{"bitmap": base64}`` with unit u at
bit u & 7 of byte u >> 3. The members of a group are in rising order of their unit ordinals.
"""

from __future__ import annotations

import base64
import binascii
import json

import numpy as np
import numpy.typing as npt

from sidecar.errors import DamagedFileError


def encode_units(units: npt.NDArray[np.int64]) -> dict[str, object]:
    """Return the JSON form of rising unit ordinals."""
    breaks = np.flatnonzero(np.diff(units) != 1) + 1
    starts = np.concatenate(([0], breaks)).astype(np.int64)
    counts = np.diff(np.concatenate((starts, [len(units)])))
    runs = np.stack((units[starts], counts), axis=1) if len(units) else np.empty((0, 2), np.int64)
    bitmap_length = 4 * ((int(units[-1]) // 8 + 3) // 3) if len(units) else 0
    if len(runs) * 5 <= bitmap_length or len(json.dumps(runs.tolist(), separators=(",", ":"))) <= bitmap_length:
        return {"runs": runs.tolist()}
    bits = np.zeros(int(units[-1]) + 1, np.bool_)
    bits[units] = True
    return {"bitmap": base64.b64encode(np.packbits(bits, bitorder="little").tobytes()).decode()}


def decode_units(value: object, limit: int) -> npt.NDArray[np.int64] | slice:
    """Return the unit ordinals of :func:`encode_units`, rising; a slice if they are one run.

    Raises :class:`DamagedFileError` for anything but a rising set of ordinals below ``limit``.
    """
    if isinstance(value, dict) and isinstance(value.get("runs"), list):
        return _decode_runs(value["runs"], limit)
    if isinstance(value, dict) and isinstance(value.get("bitmap"), str):
        try:
            bits = np.frombuffer(base64.b64decode(value["bitmap"], validate=True), np.uint8)
        except (binascii.Error, ValueError) as error:
            raise _impossible_units("a bitmap that is not base64") from error
        units = np.flatnonzero(np.unpackbits(bits, bitorder="little")).astype(np.int64)
        if len(units) and units[-1] >= limit:
            raise _impossible_units(f"unit {units[-1]} of {limit}")
        return units
    raise _impossible_units("neither runs nor a bitmap")


def _decode_runs(runs: list[object], limit: int) -> npt.NDArray[np.int64] | slice:
    end = 0
    for run in runs:
        if not (isinstance(run, list) and len(run) == 2 and all(type(part) is int for part in run)):
            raise _impossible_units(f"the run {str(run)[:40]}")
        first, count = run
        if first < end or count < 1 or first + count > limit:
            raise _impossible_units(f"the run [{first}, {count}] of {limit} units")
        end = first + count
    if len(runs) == 1:
        return slice(end - runs[0][1], end)  # type: ignore[index]
    if not runs:
        return np.empty(0, np.int64)
    pairs = np.array(runs, np.int64)
    starts = np.cumsum(pairs[:, 1]) - pairs[:, 1]
    ordinals: npt.NDArray[np.int64] = np.arange(pairs[:, 1].sum(), dtype=np.int64)
    ordinals += np.repeat(pairs[:, 0] - starts, pairs[:, 1])
    return ordinals


def count_units(units: npt.NDArray[np.int64] | slice) -> int:
    """Return how many ordinals :func:`decode_units` returned."""
    return units.stop - units.start if isinstance(units, slice) else len(units)


def _impossible_units(found: str) -> DamagedFileError:
    return DamagedFileError("a table of contents lists impossible units", found=found)


def unit_ordinals(units: npt.NDArray[np.int64] | slice) -> npt.NDArray[np.int64]:
    """Return the result of :func:`decode_units` as an array int64[N], rising."""
    return np.arange(units.start, units.stop, dtype=np.int64) if isinstance(units, slice) else units
