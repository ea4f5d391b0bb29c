"""Iceberg's own REST server, out of its test fixtures: a JDBC catalog on SQLite behind Java's reference code.

Its jars (20 MB) are downloaded once with the Ivy that is in Spark. Hadoop and the SQLite driver are Spark's.
"""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.conftest import DOWNLOADED

ICEBERG, JETTY = "1.11.0", "12.1.1"
SERVER = f"""
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{ICEBERG}">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{ICEBERG}">
      <artifact name="iceberg-open-api" type="jar" m:classifier="test-fixtures"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{JETTY}"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-server" rev="{JETTY}"/>
    <dependency org="org.eclipse.jetty.compression" name="jetty-compression-gzip" rev="{JETTY}"/>
"""
MODULE = """
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="sidecar" module="{name}"/>
  <dependencies defaultconf="default->default">{dependencies}</dependencies>
</ivy-module>
"""
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")
DOWNLOAD_SECONDS, START_SECONDS = 300, 60


def java(tool: str = "java") -> str:
    home = os.environ.get("JAVA_HOME")
    return str(Path(home) / "bin" / tool) if home else shutil.which(tool) or tool


def spark_jars() -> Path:
    pyspark = pytest.importorskip("pyspark", reason="the extra [spark] is not installed")
    return Path(pyspark.__file__).parent / "jars"


def downloaded(name: str, dependencies: str) -> Path:
    """The folder ``name`` of jars, which is downloaded once; skip the test where that is not possible."""
    folder = DOWNLOADED / name
    if folder.is_dir():
        return folder
    (ivy,) = spark_jars().glob("ivy-*.jar")
    partial = folder.with_name(f"{name}.{os.getpid()}")
    partial.mkdir(parents=True)
    (partial / "ivy.xml").write_text(MODULE.format(name=name, dependencies=dependencies))
    files = f"{partial}/[artifact]-[revision](-[classifier]).[ext]"
    home = [f"-Divy.default.ivy.user.dir={DOWNLOADED}", f"-Divy.cache.dir={DOWNLOADED}/cache"]
    options = ["-ivy", str(partial / "ivy.xml"), "-types", "jar", "bundle", "-retrieve", files, "-warn"]
    try:
        subprocess.run([java(), *home, "-jar", str(ivy), *options], check=True, timeout=DOWNLOAD_SECONDS)
    except (subprocess.SubprocessError, OSError) as error:
        shutil.rmtree(partial)
        pytest.skip(f"the jars of {name} cannot be downloaded: {type(error).__name__}")
    partial.rename(folder)
    return folder


def server_jars() -> list[str]:
    """The class path of Iceberg's REST server and of its client, without a driver for SQL."""
    found = [f"{downloaded('reference-rest-server', SERVER)}/*"]
    return found + [
        str(one) for name in ("hadoop-client-*", "jcl-over-slf4j*") for one in spark_jars().glob(f"{name}.jar")
    ]


@contextmanager
def reference_server(warehouse: Path) -> Iterator[str]:
    """Run the server; yield its address."""
    jars = [*server_jars(), f"{DOWNLOADED}/jars/*"]
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    settings = {"CATALOG_WAREHOUSE": str(warehouse), "CATALOG_REST_PORT": str(port)}
    command = [java(), *OPTIONS, "-cp", os.pathsep.join(jars), "org.apache.iceberg.rest.RESTCatalogServer"]
    server = subprocess.Popen(command, env=os.environ | settings, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        wait_for(server, f"http://127.0.0.1:{port}")
        yield f"http://127.0.0.1:{port}"
    finally:
        server.terminate()
        server.wait(20)


def wait_for(server: subprocess.Popen[bytes], address: str) -> None:
    until = time.monotonic() + START_SECONDS
    while time.monotonic() < until:
        assert server.poll() is None, "the reference server ended"
        try:
            with urllib.request.urlopen(f"{address}/v1/config", timeout=5):
                return
        except OSError:
            time.sleep(0.05)
    raise AssertionError("the reference server does not answer")
