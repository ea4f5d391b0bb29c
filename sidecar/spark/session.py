"""Starts the embedded Spark session, and says why it cannot start."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from sidecar.dependencies.supported import PYSPARK, unsupported
from sidecar.errors import UsageError, foreign_reason

_INSTALL = "Type pip install 'lakehouse-sidecar[spark]', or choose"


def java_runtime() -> str | None:
    """Return the path of the ``java`` that Spark would start, by JAVA_HOME or PATH; ``None`` without one."""
    home = os.environ.get("JAVA_HOME")
    if home:
        java = Path(home) / "bin" / "java"
        return str(java) if os.access(java, os.X_OK) else None
    return shutil.which("java")


def _hindrance() -> tuple[str, str] | None:
    """Return why an embedded session cannot start, and what to do about it; ``None`` if it can."""
    if find_spec("pyspark") is None:
        return "the package pyspark is not installed", _INSTALL
    if why := unsupported(PYSPARK):
        return why, "Choose"
    if find_spec("pandas") is None:  # mapInArrow imports pandas even though it does not use it
        return "the package pandas is not installed", _INSTALL
    return None if java_runtime() else ("there is no Java runtime", "Install Java 17 or 21, or choose")


def unavailable() -> str | None:
    """Return why an embedded session cannot start, in a few words; ``None`` if it can."""
    found = _hindrance()
    return None if found is None else found[0]


def checked_session(session: Any) -> Any:
    """Return a caller's session. Raises :class:`UsageError` if the installed PySpark does not work."""
    if why := unsupported(PYSPARK):
        raise UsageError(why)
    return session


def check_available() -> None:
    """Raise :class:`UsageError` with a hint what to install if pyspark, pandas or Java is missing."""
    found = _hindrance()
    if found is not None:
        raise UsageError(f"Spark cannot start: {found[0]}", hint=f"{found[1]} the engine 'local'.")


def embedded_session(threads: int | None = None) -> Any:
    """Return the active session, or start one on this machine: ``local[threads]``, without web page, loopback only.

    Raises :class:`UsageError` if pyspark, pandas or Java is missing.
    """
    check_available()
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    # By default workers run the first python3 on the PATH, which may lack our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    settings = {
        "spark.ui.enabled": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{threads or '*'}]").appName("sidecar")
    for key, value in settings.items():
        builder = builder.config(key, value)
    return builder.getOrCreate()


def configured_session(settings: Mapping[str, str]) -> Any:
    """Return the active session, or start one by Spark's own configuration, over which ``settings`` go.

    The configuration is ``spark-defaults.conf`` in ``SPARK_CONF_DIR`` or in ``SPARK_HOME/conf``. It says where Spark
    runs, by default on this machine. Raises :class:`UsageError` if pyspark, pandas or Java is missing.
    """
    check_available()
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.appName("sidecar")
    for key, value in {"spark.ui.enabled": "false", "spark.log.level": "ERROR", **settings}.items():
        builder = builder.config(key, value)
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return builder.getOrCreate()
    except Exception as error:
        raise UsageError(f"Spark cannot start with this configuration: {foreign_reason(error)}") from error
