"""Fixtures shared by all rooms: the JVM as an oracle, and the folder of foreign files."""

from __future__ import annotations

import gc
import os
import shutil
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from scripts.servers.jars import DOWNLOADED
from sidecar import errors
from sidecar.run import announce_compiling
from tests import memoized_pyiceberg
from tests.disk import spare_disk
from tests.memoized_pyiceberg import spare_py4j, spare_pyiceberg, spare_typer

settings.register_profile("sidecar", deadline=None)  # how long a case takes is the machine's affair
settings.load_profile("sidecar")

ICEBERG_RUNTIMES = {"4.0": "1.11.0", "4.1": "1.12.0"}
"""The newest runtime of Iceberg for each minor version of Spark; newer versions of Spark have none yet."""
SQLITE = "org.xerial:sqlite-jdbc:3.50.3.0"
JAVA_OPTIONS = (
    "-XX:TieredStopAtLevel=1",
    "-XX:ReservedCodeCacheSize=256m",
    "-XX:-UseCodeCacheFlushing",
    "-XX:+UseSerialGC",
    "-Xmn300m",
    "-XX:MetaspaceSize=300m",
    "-XX:+UnlockDiagnosticVMOptions",
    "-XX:-BytecodeVerificationRemote",
)
"""The quick compiler, room for all that it compiles, so that nobody looks for code to throw away, a collector without
threads that runs seldom, and no verification of the jars' classes: half the CPU time for work as short as tests'."""
OFTEN_LOADED = ("scala-library", "spark-catalyst", "spark-sql", "spark-core", "spark-common-utils")
"""Spark's jars that most classes come from."""
IS_PLAIN = os.environ.get("SIDECAR_TEST_PLAIN") == "1"
"""Whether pyiceberg is left as it is, in all tests: ``scripts/test --plain``."""
SHARED_DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


@cache
def needs_jvm(file: Path) -> bool:
    """Whether tests in this file need the JVM."""
    return "mark.jvm" in file.read_text("utf-8")


def pytest_configure() -> None:
    """Let bugs of advisory code fail tests, which users get as a warning. No command has to say that it compiles."""
    errors.reraise_foreign = True
    announce_compiling()


def pytest_collectstart() -> None:
    """Look for no garbage while tests are collected: that only makes objects that stay."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Let the collector of garbage leave out what is there: half a million objects, in each of its full runs.

    Those are seldom: what tests leave in cycles is small, and they make many short-lived objects.
    """
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)
    gc.enable()


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Skip what needs services that do not run. With workers, start with files that need the JVM, the longest chain."""
    if of_services := [item for item in items if item.get_closest_marker("services")]:
        from scripts.servers.services import STARTERS, running

        if set(running()) != set(STARTERS):
            for item in of_services:
                item.add_marker(pytest.mark.skip(reason="needs servers: scripts/services up"))
    if "pyiceberg" in sys.modules:
        if not IS_PLAIN:
            spare_pyiceberg()
        spare_disk()
    if "typer.testing" in sys.modules:
        spare_typer()
    if hasattr(config, "workerinput"):
        items.sort(key=lambda item: not needs_jvm(item.path))


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Have the tests that are for it run on pyiceberg as it is, the fixtures that are made for them included."""
    memoized_pyiceberg.is_plain = item.nodeid.startswith(memoized_pyiceberg.PLAIN)


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print what the random cases of each door came to, and the seconds of each share of CI."""
    from tests.ci_time import shares_line
    from tests.life.tally import summary

    reports = [r for kind in ("passed", "failed") for r in terminalreporter.stats.get(kind, [])]
    for line in summary(pair for report in reports for pair in report.user_properties):
        terminalreporter.write_line(line)
    of_all = (report for reports in terminalreporter.stats.values() for report in reports)
    if (line := shares_line(of_all, config.getoption("numprocesses", None) or 1)) is not None:
        terminalreporter.write_line(line)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests by files, whose fixtures are made once; files that need the JVM are one group, with one JVM.

    (The groups of ``--dist loadgroup`` are not seen by pytest-xdist 3.8 with pytest 9.2.)
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):  # type: ignore[misc]
        def _split_scope(self, nodeid: str) -> str:
            file = nodeid.partition("::")[0]
            return "jvm" if needs_jvm(config.rootpath / file) else file

    return ByFile(config, log)


@pytest.fixture(scope="session")
def shared_data() -> Path:
    """Files by foreign writers that are too many to copy; the test is skipped where they are absent."""
    if not SHARED_DATA.is_dir():
        pytest.skip("the folder of foreign files (../shared/data) is absent")
    return SHARED_DATA


@pytest.fixture(scope="session")
def catalog_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Folder of the SQLite catalog ``cat`` that Spark and pyiceberg share in a test session."""
    return tmp_path_factory.mktemp("lake")


@pytest.fixture(scope="session")
def catalog(catalog_dir: Path) -> Any:
    """pyiceberg's side of the catalog ``cat``."""
    from tests.tables import new_catalog

    return new_catalog(catalog_dir)


@pytest.fixture
def own_catalog(tmp_path: Path) -> Any:
    """A catalog of the test's own."""
    from tests.tables import new_catalog

    return new_catalog(tmp_path)


def spark_version() -> str:
    """The minor version of the installed PySpark."""
    import pyspark

    return ".".join(pyspark.__version__.split(".")[:2])


def iceberg_packages() -> list[str]:
    """What Spark loads for Iceberg tables in an SQLite catalog: nothing if there is no runtime for its version."""
    version = spark_version()
    if version not in ICEBERG_RUNTIMES:
        return []
    return [f"org.apache.iceberg:iceberg-spark-runtime-{version}_2.13:{ICEBERG_RUNTIMES[version]}", SQLITE]


def class_path(spark_home: Path, wanted: list[str]) -> dict[str, str]:
    """Settings that load packages such as Iceberg and the SQLite driver: Spark downloads them once.

    Later they come first on the class path, and then the jars that most classes come from: Java looks for each class
    in one jar after the other, and Spark has 280 of them.
    """
    packages = {"spark.jars.ivy": str(DOWNLOADED), "spark.jars.packages": ",".join(wanted)}
    jars = [DOWNLOADED / "jars" / f"{'_'.join(name.split(':')[:2])}-{name.split(':')[2]}.jar" for name in wanted]
    if not all(jar.is_file() for jar in jars):
        return packages
    for name in OFTEN_LOADED:
        jars += sorted((spark_home / "jars").glob(f"{name}[-_]*.jar"))
    return {"spark.driver.extraClassPath": os.pathsep.join(map(str, jars))}


@pytest.fixture(scope="session")
def spark(catalog_dir: Path) -> Iterator[Any]:
    """One classic Spark session with Iceberg's runtime; catalog ``cat`` is the one of :func:`catalog`."""
    if not (os.environ.get("JAVA_HOME") or shutil.which("java")):
        pytest.skip("no Java runtime; scripts/test installs one")
    pytest.importorskip("pyspark.sql", reason="the extra [spark] is not installed")
    session = start_spark(catalog_dir)
    yield session
    session.stop()


def start_spark(catalog_dir: Path) -> Any:
    """The session of the fixture ``spark``, whose catalog is in a folder; the caller stops it."""
    import pyspark.sql as pyspark_sql

    os.environ["PYSPARK_PYTHON"] = sys.executable
    wanted = iceberg_packages()
    settings = {
        **(class_path(Path(pyspark_sql.__file__).parents[1], wanted) | iceberg_settings(catalog_dir) if wanted else {}),
        "spark.python.daemon.module": "tests.spark.daemon",
        "spark.ui.enabled": "false",
        # each query would be a class of its own, for rows so few that it is quicker to interpret the plan
        "spark.sql.codegen.wholeStage": "false",
        "spark.sql.codegen.factoryMode": "NO_CODEGEN",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.session.timeZone": "UTC",
        "spark.driver.memory": "2g",
        "spark.driver.extraJavaOptions": " ".join(JAVA_OPTIONS),
        "spark.driver.host": "127.0.0.1",
    }
    builder = pyspark_sql.SparkSession.builder.master("local[2]").appName("sidecar-tests")
    for key, value in settings.items():
        builder = builder.config(key, value)
    session = builder.getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    spare_py4j()
    return session


def iceberg_settings(catalog_dir: Path) -> dict[str, str]:
    """Settings of a session with Iceberg's extensions and the SQLite catalog ``cat`` in a folder."""
    prefix = "spark.sql.catalog.cat"
    return {
        "spark.sql.extensions": "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
        prefix: "org.apache.iceberg.spark.SparkCatalog",
        f"{prefix}.type": "jdbc",
        f"{prefix}.uri": f"jdbc:sqlite:{catalog_dir}/cat.db",
        f"{prefix}.jdbc.schema-version": "V1",
        f"{prefix}.jdbc.synchronous": "OFF",
        f"{prefix}.warehouse": f"file:{catalog_dir}/wh",
        f"{prefix}.cache-enabled": "false",
    }


@pytest.fixture(scope="session")
def iceberg_in_spark() -> None:
    """Iceberg's own tables in Spark; the test is skipped if there is no runtime for the installed version."""
    if not iceberg_packages():
        pytest.skip(f"there is no Iceberg runtime for Spark {spark_version()} yet")


def add_rest_catalog(session: Any, name: str, address: str) -> None:
    """Have the session know the catalog of a REST server by a name."""
    prefix = f"spark.sql.catalog.{name}"
    settings = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": address}
    for key, value in {**settings, ".cache-enabled": "false"}.items():
        session.conf.set(f"{prefix}{key}", value)


@pytest.fixture(scope="session")
def duckdb_iceberg() -> Iterator[Any]:
    """A DuckDB connection with its own Iceberg reader; the extensions come as PyPI packages."""
    import duckdb
    import duckdb_extension_avro
    import duckdb_extension_iceberg

    connection = duckdb.connect()
    for package in (duckdb_extension_avro, duckdb_extension_iceberg):
        (extension,) = Path(package.__file__).parent.rglob("*.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    yield connection
    connection.close()
