"""The engine of this process, what opens files for it, and how an engine is chosen."""

from __future__ import annotations

import pickle
import threading
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import sidecar
from sidecar.access import Access
from sidecar.crypto.keys import EncryptionKeys
from sidecar.engines import choice
from sidecar.engines.choice import asked_engine, choose_engine
from sidecar.engines.work import LocalWork, estimated_size
from sidecar.errors import DamagedFileError, UsageError
from tests.object_store import FolderIO


def half(number: int) -> int:
    if number % 2:
        raise DamagedFileError("it is odd", found=number)
    return number // 2


@pytest.mark.parametrize("threads", [1, 3])
def test_results_and_errors_come_in_the_order_of_the_items(threads: int) -> None:
    seen: list[Any] = []
    with sidecar.progress(lambda *step: seen.append(step)):
        answers = list(LocalWork(threads).run(half, range(20)))
    assert [answer if isinstance(answer, int) else answer.found for answer in answers] == [
        number if number % 2 else number // 2 for number in range(20)
    ]
    assert seen == [("files", done, 20) for done in range(1, 21)]


def test_foreign_errors_are_raised() -> None:
    with pytest.raises(ZeroDivisionError):
        list(LocalWork().run(lambda n: 1 // n, [1, 0]))


@pytest.mark.parametrize("threads", [1, 2])
def test_who_stops_early_leaves_the_rest_undone(threads: int) -> None:
    done: list[int] = []
    lock = threading.Lock()

    def work(number: int) -> int:
        with lock:
            done.append(number)
        return number

    with closing(LocalWork(threads).run(work, range(1000))) as answers:
        assert next(answers) == 0
    assert len(done) <= 1 + 2 * threads


def test_access_travels_without_its_connections_and_shows_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sidecar.storage.stores._check_server", lambda *_: None)
    keys = EncryptionKeys(footer_key=b"hush, sixteen by")
    io: Any = FolderIO({"folder": str(tmp_path), "s3.secret-access-key": "hush"})
    sent = pickle.loads(pickle.dumps(Access(io, keys)))
    assert sent.io_of("folder://a/b").properties == {"folder": str(tmp_path), "s3.secret-access-key": "hush"}
    assert sent.keys == keys
    assert "hush" not in repr(sent)
    assert Access().io_of("/local/file") is None
    own = Access()
    assert own.io_of("s3://a/b") is own.io_of("s3://a/d")
    assert pickle.loads(pickle.dumps(own)).io_of("s3://a/b") is not None
    assert [pickle.loads(pickle.dumps(one)).is_repeated for one in (own, own.repeated())] == [False, True]
    with pytest.raises(UsageError, match="over https"):
        own.open("https://host/file")


def test_sizes_are_estimated_by_the_first_files(tmp_path: Path) -> None:
    paths = []
    for number in range(3):
        path = tmp_path / str(number)
        path.write_bytes(b"x" * 100 * number)
        paths.append(str(path))
    assert estimated_size(paths, Access()) == 300
    assert estimated_size(paths * 40, Access()) == (100 + 200) * 21 * 120 // 64
    assert estimated_size([*paths, str(tmp_path / "missing")], Access()) == 300
    assert estimated_size([], Access()) == 0


def test_the_choice_says_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def unasked() -> int:
        raise AssertionError("the size does not matter here")

    session = object()
    assert choose_engine("spark", None, unasked) == ("spark", "as asked for")
    assert choose_engine("local", session, unasked) == ("local", "as asked for")
    assert choose_engine("auto", session, unasked) == ("spark", "a Spark session was given")
    small = ("local", "at most 4 GiB of data files are to be read")
    assert choose_engine("auto", None, lambda: choice.LOCAL_BYTES) == small
    monkeypatch.setattr("sidecar.spark.session.unavailable", lambda: None)
    large = ("spark", "more than 4 GiB of data files are to be read")
    assert choose_engine("auto", None, lambda: choice.LOCAL_BYTES + 1) == large


def test_the_automatic_engine_is_taken_where_none_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIDECAR_ENGINE", "local")  # for commands alone
    assert asked_engine(None, None) == "auto"
    assert asked_engine(None, object()) == "auto"
    assert asked_engine("spark", None) == "spark"
    with pytest.raises(UsageError, match="unknown engine 'cloud'; expected auto or spark or local"):
        asked_engine("cloud", None)  # type: ignore[arg-type]
