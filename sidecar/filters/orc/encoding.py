"""ORC encodings: how a column's value becomes the key that an ORC Bloom filter hashes.

Writers use different keys (time zones, fractions of a millisecond before 1970, charsets), and a filter does not say how
it was made. So sidecar gives every ORC filter an encoding with a fixed name, which bundles store:

    orc/long              the integer; smallint, int and bigint alike, and Iceberg's times
    orc/date              days since 1970-01-01, as stored
    orc/double            the 64 bits of the double
    orc/float             the 64 bits of the double that equals the float
    orc/bytes             bytes, or text in UTF-8
    orc/ascii             text in the unknown charset of the writer: only ASCII is certain
    orc/char:N            UTF-8, cut or filled with blanks to N code points
    orc/varchar:N         UTF-8, cut to N code points
    orc/decimal:S         ASCII of the shortest plain number: 1.5 for 1.50, 100, -0.01, 0
    orc/decimal64:S       the unscaled integer (file version UNSTABLE-PRE-2.0)
    orc/instant:W         milliseconds of a TIMESTAMP_INSTANT since the epoch
    orc/timestamp:W:ZONE  milliseconds of a TIMESTAMP as the wall clock of the writer's time zone shows it

N is a length in code points, S is a scale. W says how the writer rounds fractions of a millisecond: ``java`` rounds
down, ``c++`` (called by pyarrow) rounds toward zero. ZONE is ``UTC`` or the name of another zone: the key is the wall
clock, but readers with other rules for the zone see a different wall clock.

Keys are integers or bytes; :mod:`sidecar.filters.orc.key_hash` hashes them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from sidecar.errors import UnsupportedFeatureError

_PLAIN = ("long", "date", "double", "float", "bytes", "ascii")
_LENGTH = re.compile(r"orc/(char|varchar):([1-9][0-9]{0,9})")
_SCALE = re.compile(r"orc/(decimal|decimal64):(0|[1-9][0-9]?)")
_TIME = re.compile(r"orc/(?:(instant):(java|c\+\+)|(timestamp):(java|c\+\+):([A-Za-z0-9_+:/-]{1,64}))")
_MAX_SCALE = 38


@dataclass(frozen=True)
class OrcEncoding:
    """One entry of the registry; equal encodings have equal names.

    ``family`` is the first word of the name. ``length`` is the N of ``char`` and ``varchar``, ``scale`` the S of
    decimals, ``writer`` and ``zone`` the W and ZONE of timestamps; they are ``None`` for other families.
    """

    name: str
    family: str
    length: int | None = None
    scale: int | None = None
    writer: str | None = None
    zone: str | None = None

    @staticmethod
    def parse(name: str) -> OrcEncoding:
        """Return the encoding of a registered name. Raises :class:`UnsupportedFeatureError` for any other name."""
        if name.startswith("orc/") and name[4:] in _PLAIN:
            return OrcEncoding(name, name[4:])
        if match := _LENGTH.fullmatch(name):
            return OrcEncoding(name, match[1], length=int(match[2]))
        if (match := _SCALE.fullmatch(name)) and int(match[2]) <= _MAX_SCALE:
            return OrcEncoding(name, match[1], scale=int(match[2]))
        if match := _TIME.fullmatch(name):
            return OrcEncoding(name, match[1] or match[3], writer=match[2] or match[4], zone=match[5])
        raise UnsupportedFeatureError("unknown ORC encoding", found=name[:80])

    @property
    def not_indexable(self) -> str | None:
        """The reason why sidecar builds no filter in this encoding, or ``None`` if it does."""
        return "the charset of the file's writer is unknown" if self.family == "ascii" else None

    def __str__(self) -> str:
        return self.name
