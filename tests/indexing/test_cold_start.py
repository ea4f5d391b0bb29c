"""Builds in new processes: what the first one on a machine compiles, and that ``warm-up`` leaves nothing to compile."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from pyiceberg.catalog import load_catalog

from sidecar.kernels._jit import KERNELS, Kernel
from sidecar.kernels.warming import warm_up
from tests.tables import create_with_rows

ROOT = Path(__file__).resolve().parents[2]

FIRST_BUILD = {
    *(f"murmur3.{name}" for name in ("_hash_spans", "hash_fixed4", "hash_fixed8")),
    *(f"xxh64.{name}" for name in ("_hash_fixed", "_hash_spans", "hash_fixed4", "hash_fixed8")),
    *(f"rle.{name}" for name in ("byte_array_spans", "count_level", "mark_used")),
    *("page_headers._walk", "sbbf.fold", "sbbf.insert", "theta.below"),
}
"""The kernels of a first build of integers and strings. Each costs every new machine some 0.1 s of CPU."""
MOST_FUNCTIONS = 21
"""Functions that numba compiles for them, with those that kernels call."""

BUILD = """
import json, logging, os, resource, sys
import numpy as np
import sidecar
from numba.core import event

class Compiled(event.Listener):
    def on_start(self, started):
        function = started.data["dispatcher"].py_func
        compiled.append(f"{function.__module__.rpartition('.')[2]}.{function.__name__}")

    def on_end(self, ended):
        pass

class Lines(logging.Handler):
    def emit(self, record):
        logged.append(f"{record.name} {record.levelname} {record.getMessage()}")

compiled, shown, logged = [], [], []
event.register("numba:compile", Compiled())
logging.getLogger("sidecar.kernels").setLevel(logging.INFO)
logging.getLogger("sidecar.kernels").addHandler(Lines())
catalog = {"uri": sys.argv[1], "type": "sql"}
from pyiceberg.catalog import load_catalog
table = load_catalog("cold", **catalog).load_table("db.t")
with sidecar.progress(lambda what, *steps: shown.append(what)):
    sidecar.build(table, ["a", "b", "s", "few"], engine="local", full=True)
from sidecar.kernels._jit import KERNELS
kernels = sorted(
    f"{kernel.__module__.rpartition('.')[2]}.{kernel.__name__}" for kernel in KERNELS if kernel.compilations
)
def faults():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    [np.ones(3 << 20, np.uint8) for _ in range(4)]
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before

faults()
print(json.dumps({"faults": faults(), "functions": compiled, "kernels": kernels, "shown": shown, "logged": logged}))
"""


@pytest.fixture(scope="module")
def uri(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The catalog of a small table: long, int and string columns, with dictionaries and without."""
    folder = tmp_path_factory.mktemp("cold")
    uri = f"sqlite:///{folder}/catalog.db"
    catalog = load_catalog("cold", type="sql", uri=uri, warehouse=folder.as_uri())
    catalog.create_namespace("db")
    n = np.arange(8000)
    texts = [f"text-{k:x}" for k in n * 7919]
    columns = {"a": n * 7919, "b": (n * 31).astype(np.int32), "s": texts, "few": [t[-1] for t in texts]}
    rows = pa.table(columns)
    create_with_rows(catalog, "db.t", [rows.slice(0, 4000), rows.slice(4000)])
    return uri


def run(folder: Path, *command: str, says: str = "") -> str:
    """Run Python in a new process whose cache is ``folder``, and return what it prints; on stderr it ``says`` this."""
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *command], env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert says in done.stderr
    return done.stdout


def build(folder: Path, uri: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(run(folder, "-c", BUILD, uri))
    return found


def test_a_first_build_compiles_few_kernels_once_and_says_so(tmp_path: Path, uri: str) -> None:
    """Then ``warm-up`` compiles the others, and a build nothing."""
    first = build(tmp_path, uri)
    assert set(first["kernels"]) == FIRST_BUILD
    assert len(first["functions"]) <= MOST_FUNCTIONS
    assert [name for name in FIRST_BUILD if first["functions"].count(name) != 1] == []
    assert first["shown"].count("compiling kernels, once on this machine") == 1
    assert first["logged"] == ["sidecar.kernels INFO compiling kernels, once on this machine"]
    in_a_pipe = "info: compiling kernels, once on this machine\n"
    report = json.loads(run(tmp_path, "-m", "sidecar.cli", "warm-up", "--json", says=in_a_pipe))
    assert report["compiled"] == report["kernels"] - len(FIRST_BUILD) > 0
    assert Path(report["folder"]).is_relative_to(tmp_path)
    warm = build(tmp_path, uri)
    assert (warm["functions"], warm["kernels"], warm["logged"]) == ([], [], [])
    assert "compiling kernels, once on this machine" not in warm["shown"]
    pages = (12 << 20) // os.sysconf("SC_PAGE_SIZE")  # memory that one file's arrays took stays for the next file
    assert warm["faults"] < pages / 4 or platform.libc_ver()[0] != "glibc"


def test_a_warm_up_loads_every_kernel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of a first build too, whose machine code is in the cache already in the test above."""
    loaded: list[Any] = []
    monkeypatch.setattr(Kernel, "load", lambda kernel: loaded.append(kernel))
    assert warm_up().kernels == len(KERNELS)
    assert loaded == KERNELS
