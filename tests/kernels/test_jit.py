"""The compile cache may be unwritable, damaged or raced: kernels must answer all the same."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "sidecar"
SERVER = """
import json, os, sys
import numpy as np
from numba import njit
from numba.core import config

def work(job):
    os.environ.update(job["environment"])
    os.chdir(os.path.dirname(job["root"]))
    sys.path.insert(0, job["root"])
    config.reload_config()
    from sidecar.kernels import theta
    out = np.zeros(3, np.uint64)
    hashes = np.array([7, 1, 9], np.uint64)
    below = theta.below
    if job["kind"] == "other types":
        below = below.dispatcher  # compiles for the types of each call
    assert below(hashes, np.uint64(8), out) == 2
    assert out.tolist() == [7, 1, 0]
    return theta.__file__, theta.below.dispatcher.stats.cache_hits.total()

def fork(job):
    reading, writing = os.pipe()
    if os.fork() == 0:
        try:
            answer = work(job)
        except BaseException as error:
            answer = None, repr(error)
        os.write(writing, json.dumps(answer).encode())
        os._exit(0)
    os.close(writing)
    return reading

njit(nogil=True)(lambda n: n + 1)(1)  # numba is loaded and warm: children compile the kernel and no more
for line in sys.stdin:
    pipes = [fork(job) for job in json.loads(line)]
    answers = []
    for pipe in pipes:
        answers.append(json.loads(os.read(pipe, 1 << 16) or b'[null, "no answer"]'))
        os.close(pipe)
        os.wait()
    print(json.dumps(answers), flush=True)
"""


class Workers:
    """Processes that import the copied package: children of one that has loaded numba, and nothing of the package."""

    def __init__(self, folder: Path) -> None:
        environment = {k: v for k, v in os.environ.items() if not k.startswith(("NUMBA_", "PYTHONPATH"))}
        environment.pop("XDG_CACHE_HOME", None)
        self.server = subprocess.Popen(
            [sys.executable, "-c", SERVER],
            env={**environment, "PYTHONDONTWRITEBYTECODE": "1"},
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def hits(self, root: Path, caches: Sequence[str | None] = (None,), kind: str = "usual") -> list[int]:
        """How many kernels came from the cache, in a worker for each of ``caches``, all at once.

        Fails unless the answers of the kernels are right.
        """
        jobs = []
        for cache in caches:
            environment = {"HOME": str(root.with_suffix("") / "no-home")}
            environment |= {"NUMBA_CACHE_DIR": cache} if cache else {}
            jobs.append({"root": str(root), "kind": kind, "environment": environment})
        assert self.server.stdin is not None
        assert self.server.stdout is not None
        self.server.stdin.write(json.dumps(jobs) + "\n")
        self.server.stdin.flush()
        counts = []
        for file, count in json.loads(self.server.stdout.readline()):
            assert file is not None, count
            assert Path(file).is_relative_to(root), "the copy was not the package that ran"
            counts.append(int(count))
        return counts

    def hit(self, root: Path, cache: str | None = None, kind: str = "usual") -> int:
        """:meth:`hits` of one worker."""
        return self.hits(root, [cache], kind)[0]

    def close(self) -> None:
        self.server.communicate(timeout=60)


@pytest.fixture(scope="module")
def workers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workers]:
    workers = Workers(tmp_path_factory.mktemp("elsewhere"))
    yield workers
    workers.close()


@pytest.fixture
def copied(tmp_path: Path) -> Path:
    """A folder with a copy of the package, as small as imports allow."""
    root = tmp_path / "site"
    kernels = root / "sidecar" / "kernels"
    kernels.mkdir(parents=True)
    for source in (PACKAGE / "kernels").glob("*.py"):
        shutil.copy(source, kernels / source.name)
    (root / "sidecar" / "__init__.py").touch()
    return root


def test_compiled_code_is_cached(workers: Workers, copied: Path) -> None:
    assert workers.hit(copied) == 0
    assert workers.hit(copied) == 1


def blocked(path: Path) -> str:
    """A file where a folder is wanted: nobody, not even root, can write below it."""
    path.write_text("no folder")
    return str(path / "below")


@pytest.mark.parametrize("in_zip", [False, True], ids=["folder", "zip"])
def test_a_change_of_any_source_compiles_again(workers: Workers, copied: Path, in_zip: bool) -> None:
    def root() -> Path:
        return Path(shutil.make_archive(str(copied), "zip", copied, "sidecar")) if in_zip else copied

    assert workers.hit(root()) == 0
    assert workers.hit(root()) == 1
    helper = copied / "sidecar" / "kernels" / "_words.py"
    helper.write_text(helper.read_text() + "\n# changed\n")
    assert workers.hit(root()) == 0
    assert workers.hit(root()) == 1


def test_no_writable_folder_compiles_without_cache(workers: Workers, copied: Path) -> None:
    """A read-only package folder and an unusable NUMBA_CACHE_DIR, several workers at once."""
    blocked(copied / "sidecar" / "kernels" / "__pycache__")
    blocked(copied / "no-home")
    os.chmod(copied / "sidecar" / "kernels", 0o555)
    assert workers.hits(copied, [blocked(copied / "cache")] * 3) == [0, 0, 0]


def test_many_workers_start_cold_on_one_folder(workers: Workers, copied: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert set(workers.hits(copied, [str(shared)] * 4)) <= {0, 1}
    assert workers.hit(copied, str(shared)) == 1


def test_damaged_index_compiles_again_and_heals(workers: Workers, copied: Path, tmp_path: Path) -> None:
    shared = tmp_path / "shared"
    shared.mkdir()
    assert workers.hit(copied, str(shared)) == 0
    for damage in (b"", b"garbage that is no pickle", None):
        (index,) = shared.rglob("theta.below*.nbi")
        whole = index.read_bytes()
        index.write_bytes(whole[: len(whole) // 2] if damage is None else damage)
        assert workers.hit(copied, str(shared)) == 0
        assert workers.hit(copied, str(shared)) == 1


def test_lost_index_never_leads_to_other_code(workers: Workers, copied: Path, tmp_path: Path) -> None:
    """Two workers read the same empty index, compile for different types, and write one after the other."""
    shared = tmp_path / "shared"
    shared.mkdir()
    assert workers.hit(copied, str(shared), "usual") == 0
    (index,) = shared.rglob("theta.below*.nbi")
    first = index.read_bytes()
    index.unlink()
    assert workers.hit(copied, str(shared), "other types") == 0
    index.write_bytes(first)
    assert len(list(shared.rglob("theta.below*.nbc"))) == 2
    assert workers.hit(copied, str(shared), "usual") == 1
