"""Theta sketches, as Puffin blobs have them."""

from __future__ import annotations

import math
import random
import struct
from pathlib import Path

import numpy as np

from scripts.fuzzing.cases import Case, Change, Fuzzer, WrongAnswerError
from scripts.fuzzing.mutation import bytes_like, number_like
from sidecar.errors import SidecarError
from sidecar.filters.theta import ThetaSketch

PUBLISHED = Path(__file__).resolve().parents[2] / "spec_vectors" / "published"
LG_K = 10


def sketch_changed(rng: random.Random, data: bytes) -> bytes:
    """A sketch with other numbers of its preamble, with other hashes, or of another length."""
    out = bytearray(data)
    way = rng.randrange(6)
    if way < 2 and len(out) >= 8:
        out[rng.randrange(8)] = rng.choice((0, 1, 2, 3, 4, 5, 8, 26, 58, 63, 64, 0x7F, 0xFF))
    elif way == 2 and len(out) >= 12:
        struct.pack_into("<I", out, 8, number_like(rng, int.from_bytes(out[8:12], "little")) & 0xFFFFFFFF)
    elif way == 3 and len(out) >= 24:
        struct.pack_into("<Q", out, 16, number_like(rng, int.from_bytes(out[16:24], "little")) & (1 << 64) - 1)
    elif way == 4 and len(out) >= 32:
        at = 8 * rng.randrange(2, len(out) // 8)
        struct.pack_into("<Q", out, at, rng.choice((0, 1, 1 << 63, (1 << 64) - 1, rng.getrandbits(63))))
    else:
        return bytes_like(rng, data)
    return bytes(out)


class ThetaSketches(Fuzzer):
    name = "theta-sketch"
    what = "theta sketches of Puffin files"

    def make_seeds(self) -> list[bytes]:
        """Sketches of other writers, and of sidecar: empty, of one hash, exact, and with theta."""
        made = []
        for count, lg_k in ((0, 12), (1, 12), (40, 12), (4000, 8)):
            sketch = ThetaSketch(lg_k)
            sketch.update(np.random.default_rng(count).integers(1, 1 << 63, count, np.uint64))
            made.append(sketch.to_bytes())
        return [*made, *(path.read_bytes() for path in sorted(PUBLISHED.glob("theta_*.bin")))]

    def changed(self, rng: random.Random, seed: int) -> bytes:
        return sketch_changed(rng, self.seeds[seed])

    def read(self, case: Case) -> None:
        sketch = ThetaSketch.from_bytes(case.data, LG_K)
        hashes = sketch.retained
        if len(hashes) > 1 << LG_K or (hashes[1:] <= hashes[:-1]).any() or (hashes >= np.uint64(sketch.theta)).any():
            raise WrongAnswerError("the hashes are not rising, too many or not below theta")
        if not (sketch.lower_bound() <= sketch.estimate <= sketch.upper_bound() and math.isfinite(sketch.estimate)):
            raise WrongAnswerError("the estimate is outside its bounds")
        again = ThetaSketch.from_bytes(sketch.to_bytes(), LG_K)
        if (again.theta, again.retained.tolist()) != (sketch.theta, hashes.tolist()):
            raise WrongAnswerError("a sketch that was read and written is another one")
        try:
            other = ThetaSketch.from_bytes(self.seeds[case.seed], LG_K)
        except SidecarError as error:
            raise WrongAnswerError("the seed cannot be read") from error
        both = ThetaSketch.union([sketch, other], LG_K)
        if both.theta > min(sketch.theta, other.theta):
            raise WrongAnswerError("a union has a greater theta than its parts")
        if case.change is Change.NEUTRAL and hashes.tolist() != other.retained.tolist():
            raise WrongAnswerError("the same bytes have other hashes")
