"""The private attributes of PySpark's classic sessions and frames: ways into their JVM."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


def is_classic(session: Any) -> bool:
    """Return whether a session gives access to its JVM. One of Spark Connect does not."""
    return hasattr(session, "_jsparkSession")


def jvm_of(session: Any) -> Any:
    """Return the JVM of a classic session, as py4j shows it."""
    return session._jvm


def gateway_of(session: Any) -> Any:
    """Return py4j's gateway to the JVM of a classic session."""
    return session.sparkContext._gateway


def java_session_of(session: Any) -> Any:
    """Return the Java session behind a classic session."""
    return session._jsparkSession


def java_context_of(session: Any) -> Any:
    """Return the Java context of a classic session. It answers after the session was stopped, too."""
    return session._jsc


def java_exception_of(error: BaseException) -> Any:
    """Return the Java exception behind one of PySpark or py4j; ``None`` for others."""
    return getattr(error, "java_exception", None) or getattr(error, "_origin", None)


def analyzed_plan(frame: DataFrame) -> Any:
    """Return the Java object of a frame's analysed logical plan."""
    return frame._jdf.queryExecution().analyzed()
