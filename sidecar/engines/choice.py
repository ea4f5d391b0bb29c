"""Chooses where work runs: in this process or on Spark. Builds and work on many files ask the same function."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple, get_args

from sidecar.engines.work import LocalWork, WorkEngine
from sidecar.errors import UsageError
from sidecar.results.choices import BuildEngine, EngineKind
from sidecar.storage.remote import StaysInDriver

if TYPE_CHECKING:
    from pyiceberg.io import FileIO

ENGINES: tuple[BuildEngine, ...] = get_args(BuildEngine)

LOCAL_BYTES = 4 << 30
"""``engine="auto"`` reads at most this many bytes of data files in this process."""

AS_ASKED = "as asked for"


class ChosenEngine(NamedTuple):
    """An engine, and why it was chosen."""

    name: EngineKind
    reason: str


def asked_engine(engine: BuildEngine | None, spark: Any) -> BuildEngine:
    """Return the engine that is asked for, ``auto`` by default.

    Raises :class:`UsageError` for an engine that does not exist.
    """
    if engine is None:
        return "auto"
    if engine not in ENGINES:
        raise UsageError(f"unknown engine '{engine}'", expected=" or ".join(ENGINES))
    return engine


def choose_engine(engine: BuildEngine, spark: Any, size: Callable[[], int], io: FileIO | None = None) -> ChosenEngine:
    """Return the engine for data files of ``size()`` bytes, and why. Starts nothing.

    ``size`` is only called if the answer depends on it. ``io`` opens the files. Raises :class:`UsageError` if Spark is
    asked for and its workers have no such ``io``.
    """
    opener: object = io  # type checkers do not take a FileIO for one of the driver
    if isinstance(opener, StaysInDriver):
        if engine == "spark":
            raise UsageError(
                "only Spark's driver can open the files of this table, not its workers",
                hint="Choose the engine 'local'.",
            )
        return ChosenEngine("local", "only Spark's driver can open the files of this table")
    if engine != "auto":
        return ChosenEngine(engine, AS_ASKED)
    if spark is not None:
        return ChosenEngine("spark", "a Spark session was given")
    if size() <= LOCAL_BYTES:
        return ChosenEngine("local", f"at most {LOCAL_BYTES >> 30} GiB of data files are to be read")
    from sidecar.spark.session import unavailable

    missing = unavailable()
    if missing:
        return ChosenEngine("local", f"Spark cannot start: {missing}")
    return ChosenEngine("spark", f"more than {LOCAL_BYTES >> 30} GiB of data files are to be read")


def session_of(spark: Any, threads: int | None) -> Any:
    """Return the given session, or else the active one, or start one. Raises :class:`UsageError` if it cannot start."""
    from sidecar.spark.session import checked_session, embedded_session

    return embedded_session(threads) if spark is None else checked_session(spark)


def work_engine(
    engine: BuildEngine | None,
    spark: Any,
    size: Callable[[], int],
    *,
    threads: int = 1,
    io: FileIO | None = None,
) -> WorkEngine:
    """Return the engine for work on data files of ``size()`` bytes together.

    ``engine`` and ``spark`` are what the caller asks for, see :func:`asked_engine`; ``io`` is as for
    :func:`choose_engine`. In this process ``threads`` items are worked on at the same time. Raises :class:`UsageError`
    for an unknown engine, and if Spark is asked for and cannot start or cannot open the files.
    """
    chosen = choose_engine(asked_engine(engine, spark), spark, size, io)
    if chosen.name == "local":
        return LocalWork(threads, chosen.reason)
    from sidecar.spark.work import SparkWork

    return SparkWork(session_of(spark, None), chosen.reason)
