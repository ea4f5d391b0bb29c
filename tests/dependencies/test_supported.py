"""An installed version that does not work is refused at the first use, with what to type."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from packaging.requirements import Requirement

import sidecar
from sidecar.dependencies.supported import PYICEBERG, PYSPARK, VersionRange, check_pyiceberg, unsupported
from sidecar.engines.choice import choose_engine, session_of
from sidecar.errors import UsageError

if sys.version_info >= (3, 11):
    import tomllib
else:
    tomllib = pytest.importorskip("tomli")

PROJECT = Path(__file__).resolve().parents[2] / "pyproject.toml"


@pytest.mark.parametrize("supported", [PYICEBERG, PYSPARK])
def test_the_ranges_are_those_of_the_project(supported: VersionRange) -> None:
    project = tomllib.loads(PROJECT.read_text("utf-8"))["project"]
    extras = project["optional-dependencies"]
    # These pin what Iceberg has a runtime for, which is less.
    users = [extra for name, extra in extras.items() if name not in ("test", "bench", "demo")]
    stated = [*project["dependencies"], *(one for extra in users for one in extra)]
    ranges = {Requirement(one).specifier for one in stated if Requirement(one).name == supported.package}
    assert ranges == {Requirement(supported.requirement).specifier}


@pytest.mark.parametrize(
    ("version", "works"),
    [("0.11.1", False), ("0.12.0", True), ("0.12.7rc1", True), ("0.13.0", False), ("1.0", False)],
)
def test_a_version_is_compared_by_its_numbers(monkeypatch: pytest.MonkeyPatch, version: str, works: bool) -> None:
    monkeypatch.setattr("pyiceberg.__version__", version)
    why = unsupported(PYICEBERG)
    assert why is None if works else why is not None and version in why


def test_the_first_use_refuses_another_pyiceberg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pyiceberg.__version__", "0.11.1")
    check_pyiceberg.cache_clear()
    with pytest.raises(UsageError) as caught:
        sidecar.plan  # noqa: B018
    check_pyiceberg.cache_clear()
    assert str(caught.value) == (
        "pyiceberg 0.11.1 is installed, and sidecar works with pyiceberg >=0.12,<0.13: "
        "pip install 'pyiceberg[pyarrow,sql-sqlite]>=0.12,<0.13'"
    )


def test_the_first_use_refuses_another_pyspark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The engine ``auto`` works without it, and says why."""
    monkeypatch.setitem(sys.modules, "pyspark", SimpleNamespace(__version__="3.5.9", __spec__=SimpleNamespace()))
    why = f"pyspark 3.5.9 is installed, and sidecar works with pyspark {PYSPARK.specifier}: pip install 'pyspark[sql]"
    for session in (object(), None):
        with pytest.raises(UsageError) as caught:
            session_of(session, None)
        assert why in str(caught.value)
    chosen = choose_engine("auto", None, lambda: 1 << 50)
    assert chosen.name == "local"
    assert why in chosen.reason
