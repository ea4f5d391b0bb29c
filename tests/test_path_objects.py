"""Functions of files take paths as objects of pathlib, wherever they take them as text."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import sidecar

CALLS: dict[str, Callable[[Any, Any, Any, Any], Any]] = {
    "inspect": lambda plain, indexed, puffin, new: sidecar.inspect(indexed).only.size,
    "verify": lambda plain, indexed, puffin, new: sidecar.verify(indexed).problems,
    "verify against": lambda plain, indexed, puffin, new: sidecar.verify(puffin, against=[indexed]).problems,
    "probe": lambda plain, indexed, puffin, new: sidecar.probe(indexed, "k", 7).only.to_dict(),
    "scan": lambda plain, indexed, puffin, new: sidecar.scan(indexed, "k = 7"),
    "embed": lambda plain, indexed, puffin, new: sidecar.embed(plain, into=new, bloom=["k"]).only.written,
    "embed from": lambda plain, indexed, puffin, new: sidecar.embed(indexed, into=new, from_=puffin).only.written,
    "embed all from": lambda plain, indexed, puffin, new: len(sidecar.embed([indexed], into=new, from_=puffin)),
    "strip": lambda plain, indexed, puffin, new: sidecar.strip(indexed, new).only.written,
    "extract": lambda plain, indexed, puffin, new: sidecar.extract([indexed], new).files,
    "convert": lambda plain, indexed, puffin, new: sidecar.convert([indexed], new).sources,
}


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path, Path]:
    """A file without indexes, one with a filter, and the filter in a Puffin file."""
    folder = tmp_path_factory.mktemp("paths")
    plain, indexed, puffin = (folder / name for name in ("plain.parquet", "indexed.parquet", "indexes.puffin"))
    pq.write_table(pa.table({"k": list(range(100))}), plain)
    sidecar.embed(str(plain), into=str(indexed), bloom=["k"])
    sidecar.extract([str(indexed)], str(puffin))
    return plain, indexed, puffin


@pytest.mark.parametrize("name", CALLS)
def test_path_objects_are_paths(files: tuple[Path, Path, Path], name: str, tmp_path: Path) -> None:
    ending = "" if name == "embed all from" else ".puffin" if name in ("extract", "convert") else ".parquet"
    as_text = CALLS[name](*map(str, (*files, tmp_path / f"a{ending}")))
    assert CALLS[name](*files, tmp_path / f"b{ending}") == as_text
