"""Names for types of arrays that several rooms use. A text below a value says what its numbers mean."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Bytes = npt.NDArray[np.uint8]
Flags = npt.NDArray[np.bool_]
"""One for each of some files, row groups or values."""
Hashes = npt.NDArray[np.uint64]
Ordinals = npt.NDArray[np.int64]
"""Places in a list, such as those of files or units in a segment; -1 for none."""
Blocks = npt.NDArray[np.uint32]
"""uint32[..., 8]: blocks of split-block filters, of eight words each."""
