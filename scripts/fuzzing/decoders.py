"""All fuzzers by name. A module is imported when one of its fuzzers is asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from importlib import import_module

from scripts.fuzzing.cases import Fuzzer

_PLACES = {
    "parquet-footer": "parquet_files.ParquetFooters",
    "parquet-filter": "parquet_files.ParquetFilterHeaders",
    "parquet-page-index": "parquet_files.ParquetPageIndexes",
    "parquet-page-header": "parquet_files.ParquetPageHeaders",
    "parquet-page": "parquet_files.ParquetPages",
    "orc-tail": "orc_files.OrcTails",
    "orc-row-index": "orc_files.OrcRowIndexes",
    "orc-stream": "orc_files.OrcStreams",
    "puffin-footer": "puffin_files.PuffinFooters",
    "key-material": "key_material.KeyMaterial",
    "theta-sketch": "theta_sketches.ThetaSketches",
    "sidecar-units": "sidecar_files.SidecarUnits",
    "sidecar-filter": "sidecar_files.SidecarFilters",
    "sidecar-index": "sidecar_files.SidecarIndexes",
    "sidecar-sketch": "sidecar_files.SidecarSketches",
    "sidecar-contents": "sidecar_files.SidecarContents",
    "sidecar-encrypted": "sidecar_files.EncryptedSidecars",
    "sidecar-state": "sidecar_files.SidecarProperties",
    "sidecar-footer": "sidecar_files.SidecarFooters",
    "plan-request": "plan_requests.PlanRequests",
}
"""A new decoder is a module with a fuzzer and a line here."""


class _Fuzzers(Mapping[str, type[Fuzzer]]):
    def __getitem__(self, name: str) -> type[Fuzzer]:
        module, _, kind = _PLACES[name].partition(".")
        found: type[Fuzzer] = getattr(import_module(f"scripts.fuzzing.{module}"), kind)
        return found

    def __iter__(self) -> Iterator[str]:
        return iter(_PLACES)

    def __len__(self) -> int:
        return len(_PLACES)


FUZZERS = _Fuzzers()
