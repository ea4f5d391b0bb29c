"""Choose how to probe a filter for a literal: split-block filters with ``values``, ORC filters with ``orc_values``."""

from __future__ import annotations

from sidecar.filters.encoding import Encoding
from sidecar.filters.orc.encoding import OrcEncoding
from sidecar.filters.orc.values import probe_orc
from sidecar.filters.values import Probe, probe_hashes

AnyEncoding = Encoding | OrcEncoding


def probe_for(value: object, iceberg_type: str, encoding: AnyEncoding) -> Probe:
    """Return the hashes to probe a filter of ``encoding`` with for ``value``; see :func:`values.probe_hashes`."""
    if isinstance(encoding, OrcEncoding):
        return probe_orc(value, iceberg_type, encoding)
    return probe_hashes(value, iceberg_type, encoding)
