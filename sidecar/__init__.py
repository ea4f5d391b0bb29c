"""sidecar adds Bloom filters, page indexes and distinct counts to an Iceberg table without rewriting its data.

A lookup then opens only the files that can hold the value.

    import sidecar

    table = sidecar.open_table("db.lineitem")                    # any catalog that pyiceberg knows
    sidecar.build(table, ["l_partkey", "l_comment"])             # index and register
    plan = sidecar.plan(table, "l_partkey = 42")                 # the files that can hold such rows
    rows = plan.to_arrow()                                       # the rows, as an Arrow table
    rows = sidecar.scan(table, "l_partkey = 42")                 # the same in one call

Only the public names are here. Each is loaded at its first use, so importing the package is cheap. The rooms and their
layers are in ARCHITECTURE.md. Start with :func:`sidecar.indexing.driver.build` and
:func:`sidecar.planning.planner.plan`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from sidecar.errors import (
    CommitConflictError,
    DamagedFileError,
    SidecarError,
    StorageError,
    UnsupportedFeatureError,
    UsageError,
)

if TYPE_CHECKING:
    from sidecar.convert.extract import extract_files as extract_files
    from sidecar.convert.filter_file import convert_filter as convert_filter
    from sidecar.crypto.key_material import KmsKeys as KmsKeys
    from sidecar.crypto.keys import EncryptionKeys as EncryptionKeys
    from sidecar.crypto.keys import ExplicitKeys as ExplicitKeys
    from sidecar.crypto.keys import encryption_keys_from as encryption_keys_from
    from sidecar.embedding.convert import convert_files as convert_files
    from sidecar.embedding.file import embed_file as embed_file
    from sidecar.embedding.file import strip_file as strip_file
    from sidecar.embedding.from_sidecar import embed_all_from as embed_all_from
    from sidecar.embedding.from_sidecar import embed_from as embed_from
    from sidecar.embedding.table import embed_table as embed_table
    from sidecar.files import inspect_file as inspect_file
    from sidecar.files import probe_file as probe_file
    from sidecar.files import verify_file as verify_file
    from sidecar.files import verify_parts as verify_parts
    from sidecar.filters.encoding import Encoding as Encoding
    from sidecar.filters.sbbf import SplitBlockBloomFilter as SplitBlockBloomFilter
    from sidecar.filters.theta import ThetaSketch as ThetaSketch
    from sidecar.iceberg.catalog import open_table as open_table
    from sidecar.iceberg.find_sidecar import open_sidecar as open_sidecar
    from sidecar.iceberg.repair import repair as repair
    from sidecar.indexing.driver import build as build
    from sidecar.planning.inspect import inspect_table as inspect_table
    from sidecar.planning.planner import plan as plan
    from sidecar.planning.probe import probe_table as probe_table
    from sidecar.planning.status import status_table as status_table
    from sidecar.planning.verify import verify_table as verify_table
    from sidecar.reading.file_scanning import open_scan as open_scan
    from sidecar.reading.file_scanning import scan_file as scan_file
    from sidecar.reading.report import TableScanReport as TableScanReport
    from sidecar.reading.scanning import scan as scan
    from sidecar.reading.scanning import scan_batches as scan_batches
    from sidecar.spark.datasource import register_spark as register_spark
    from sidecar.spark.native import spark_read as spark_read

_HOMES = {
    "open_table": "sidecar.iceberg.catalog",
    "build": "sidecar.indexing.driver",
    "convert_files": "sidecar.embedding.convert",
    "embed_file": "sidecar.embedding.file",
    "embed_table": "sidecar.embedding.table",
    "strip_file": "sidecar.embedding.file",
    "embed_from": "sidecar.embedding.from_sidecar",
    "embed_all_from": "sidecar.embedding.from_sidecar",
    "extract_files": "sidecar.convert.extract",
    "open_sidecar": "sidecar.iceberg.find_sidecar",
    "convert_filter": "sidecar.convert.filter_file",
    "plan": "sidecar.planning.planner",
    "repair": "sidecar.iceberg.repair",
    "status_table": "sidecar.planning.status",
    "TableScanReport": "sidecar.reading.report",
    "scan": "sidecar.reading.scanning",
    "scan_batches": "sidecar.reading.scanning",
    "scan_file": "sidecar.reading.file_scanning",
    "open_scan": "sidecar.reading.file_scanning",
    "inspect_file": "sidecar.files",
    "probe_file": "sidecar.files",
    "verify_file": "sidecar.files",
    "verify_parts": "sidecar.files",
    "inspect_table": "sidecar.planning.inspect",
    "probe_table": "sidecar.planning.probe",
    "verify_table": "sidecar.planning.verify",
    "register_spark": "sidecar.spark.datasource",
    "spark_read": "sidecar.spark.native",
    "EncryptionKeys": "sidecar.crypto.keys",
    "ExplicitKeys": "sidecar.crypto.keys",
    "KmsKeys": "sidecar.crypto.key_material",
    "encryption_keys_from": "sidecar.crypto.keys",
    "Encoding": "sidecar.filters.encoding",
    "SplitBlockBloomFilter": "sidecar.filters.sbbf",
    "ThetaSketch": "sidecar.filters.theta",
}

__all__ = [
    "CommitConflictError",
    "DamagedFileError",
    "Encoding",
    "EncryptionKeys",
    "ExplicitKeys",
    "KmsKeys",
    "SidecarError",
    "SplitBlockBloomFilter",
    "StorageError",
    "TableScanReport",
    "ThetaSketch",
    "UnsupportedFeatureError",
    "UsageError",
    "build",
    "convert_files",
    "convert_filter",
    "embed_all_from",
    "embed_file",
    "embed_from",
    "embed_table",
    "encryption_keys_from",
    "extract_files",
    "inspect_file",
    "inspect_table",
    "open_scan",
    "open_sidecar",
    "open_table",
    "plan",
    "probe_file",
    "probe_table",
    "register_spark",
    "repair",
    "scan",
    "scan_batches",
    "scan_file",
    "spark_read",
    "status_table",
    "strip_file",
    "verify_file",
    "verify_parts",
    "verify_table",
]


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module 'sidecar' has no attribute '{name}'")
    return getattr(import_module(_HOMES[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
