"""Chooses how to probe a filter for a literal: split-block filters with ``values``, ORC filters with ``orc_values``."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.filters.values import Probe, probe_hashes

AnyEncoding = Encoding | OrcEncoding


Probes = Mapping[AnyEncoding, Sequence[Probe]]
"""Values that filters of one column are asked for: one probe each, by the encoding of a filter."""

Resolutions = Mapping[tuple[int, str], bool]
"""Whether columns (field ids) are found in files today as they were when the files were indexed (resolution)."""


class ValueProbes(dict[AnyEncoding, Sequence[Probe]]):
    """Probes of values of a column's type, made for each encoding that is asked for."""

    def __init__(self, values: Sequence[object], iceberg_type: str) -> None:
        self._values, self._type = values, iceberg_type

    def __missing__(self, encoding: AnyEncoding) -> Sequence[Probe]:
        return self.setdefault(encoding, [probe_for(value, self._type, encoding) for value in self._values])


@dataclass(frozen=True)
class FieldQuestion:
    """The question to the filters of one field. ``resolutions`` are missing where no table says how columns are
    found."""

    field_id: int
    probes: Probes
    resolutions: Resolutions | None = None

    def may_ask(self, resolution: str) -> bool:
        """Return whether filters may be asked of a column that was found in this way."""
        return self.resolutions is None or self.resolutions[self.field_id, resolution]


def any_of(probes: Iterable[Probe]) -> Probe:
    """Return one probe for any of several values. It is unknown if that of one value is."""
    hashes: dict[int, None] = {}
    reason = ""
    for probe in probes:
        if not probe.is_certain:
            return probe
        hashes |= dict.fromkeys(probe.hashes)
        reason = reason or probe.reason
    return Probe("probe", tuple(hashes)) if hashes else Probe("cannot-exist", reason=reason)


def probe_for(value: object, iceberg_type: str, encoding: AnyEncoding) -> Probe:
    """Return the hashes to probe a filter of ``encoding`` with for ``value``; see :func:`values.probe_hashes`."""
    if isinstance(encoding, OrcEncoding):
        return probe_orc(value, iceberg_type, encoding)
    return probe_hashes(value, iceberg_type, encoding)
