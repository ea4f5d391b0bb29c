"""The tests of the Spark engine share the cases of the room that they mirror."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "indexing"))
