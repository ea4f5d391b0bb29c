"""All fuzzers by name."""

from __future__ import annotations

from scripts.fuzzing.cases import Fuzzer
from scripts.fuzzing.key_material import KeyMaterial
from scripts.fuzzing.orc_files import OrcRowIndexes, OrcStreams, OrcTails
from scripts.fuzzing.parquet_files import (
    ParquetFilterHeaders,
    ParquetFooters,
    ParquetPageHeaders,
    ParquetPageIndexes,
    ParquetPages,
)
from scripts.fuzzing.plan_requests import PlanRequests
from scripts.fuzzing.puffin_files import PuffinFooters
from scripts.fuzzing.sidecar_files import (
    EncryptedSidecars,
    SidecarContents,
    SidecarFilters,
    SidecarFooters,
    SidecarIndexes,
    SidecarProperties,
    SidecarSketches,
    SidecarUnits,
)
from scripts.fuzzing.theta_sketches import ThetaSketches

FUZZERS: dict[str, type[Fuzzer]] = {
    one.name: one
    for one in (
        ParquetFooters,
        ParquetFilterHeaders,
        ParquetPageIndexes,
        ParquetPageHeaders,
        ParquetPages,
        OrcTails,
        OrcRowIndexes,
        OrcStreams,
        PuffinFooters,
        KeyMaterial,
        ThetaSketches,
        SidecarUnits,
        SidecarFilters,
        SidecarIndexes,
        SidecarSketches,
        SidecarContents,
        EncryptedSidecars,
        SidecarProperties,
        SidecarFooters,
        PlanRequests,
    )
}
"""A new decoder is a module with a fuzzer and a line here."""
