"""A request to a real S3 server fails in each way, through a proxy: the answer is right or a named error, and no harm.

All requests: ``scripts/torture storage``.
"""

from __future__ import annotations

import random
import time
from collections.abc import Iterator

import pytest

from scripts.servers import s3
from scripts.servers.services import running
from sidecar.errors import StorageError
from sidecar.storage import remote
from sidecar.storage.opening import open_source
from tests.faults.faults import Mode
from tests.faults.s3_place import CLIENTS, S3Place
from tests.faults.storage_cases import KEYS, LONGEST, Grid

pytestmark = pytest.mark.services
COMMANDS = ("build", "gc", "embed TABLE", "embed", "scan", "find")
"""A share of the commands; ``scripts/torture storage`` runs all of them."""


@pytest.fixture(scope="module", params=CLIENTS)
def grid(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Grid]:
    settings = running()["s3"].catalogs["s3"]
    place = S3Place(request.param, settings, s3.BUCKET, tmp_path_factory.mktemp("s3") / "lake")
    yield Grid(place)
    place.close()


@pytest.mark.parametrize("name", COMMANDS)
def test_a_request_of_a_command_fails(name: str, grid: Grid) -> None:
    seed = f"{name} by {grid.place.name}"
    broken, wrong = grid.share(name, random.Random(seed).sample([*grid.place.modes], 3), seed)
    assert wrong == []
    assert broken >= 1


def test_s3fs_is_ended_before_it_has_asked_125_times(grid: Grid, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit of sidecar's own reads. By itself s3fs would take a minute, with the time-outs of this test."""
    if grid.place.name != "s3 fsspec":
        pytest.skip("Arrow's client has limits of its own")
    from s3fs import S3FileSystem

    monkeypatch.setattr(remote, "ANSWER_SECONDS", 1.5)
    monkeypatch.delenv("AWS_MAX_ATTEMPTS")
    monkeypatch.setattr(S3FileSystem, "retries", 5)
    S3FileSystem.clear_instance_cache()
    grid.place.restore()
    lake = grid.open()
    began = time.monotonic()
    with grid.place.breaking(Mode.LATE, 0), pytest.raises(StorageError, match="no answer in 2 s"):
        open_source(lake.path("plain.parquet"), lake.table.io, 100).read(0, 10)
    assert time.monotonic() - began < LONGEST
    assert grid.place.faults.attempts > 1
    S3FileSystem.clear_instance_cache()


def test_a_server_that_does_not_answer_is_given_up(grid: Grid) -> None:
    grid.place.restore()
    lake = grid.open()
    path = lake.path("plain.parquet")
    began = time.monotonic()
    with grid.place.breaking(Mode.LATE, 0), pytest.raises(StorageError) as caught:
        open_source(path, lake.table.io).size  # noqa: B018
    assert caught.value.file == path
    assert time.monotonic() - began < LONGEST
    assert grid.place.faults.attempts >= 1
    assert lake.table.scan(KEYS).to_arrow().num_rows, "the server answers again"
