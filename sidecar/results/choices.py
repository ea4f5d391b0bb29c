"""The choices of options, each once: for Python, the command line and JSON. It loads nothing."""

from __future__ import annotations

from typing import Literal, TypeAlias

NameList: TypeAlias = list[str] | tuple[str, ...]
"""Names of columns. A text is a sequence of texts too, so ``Sequence[str]`` would let ``"id"`` stand for ``i, d``."""
BuildEngine: TypeAlias = Literal["auto", "spark", "local"]
"""Where a build, or work on many files, runs."""
EngineKind: TypeAlias = Literal["local", "spark"]
"""Where work ran."""
ReuseRule: TypeAlias = Literal["good", "always", "never"]
"""Which filters of a data file are reused: those whose bits show about the target rate, all, or none."""
FilterFormat: TypeAlias = Literal["auto", "parquet", "orc"]
"""The filters of ORC files in a sidecar."""
RebuiltKind: TypeAlias = Literal["parquet", "orc"]
"""The kind that filters are rebuilt as."""
Placement: TypeAlias = Literal["end", "row-group"]
"""Where filters are in a Parquet file: at its end, or after each row group."""
CareStep: TypeAlias = Literal["repair", "refresh", "expire", "gc", "check", "report"]
"""A step of :func:`sidecar.care`, in their order."""
