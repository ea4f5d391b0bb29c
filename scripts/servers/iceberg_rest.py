"""Iceberg's own REST server, out of its test fixtures: a JDBC catalog on SQLite behind Java's reference code.

Its jars (33 MB) are downloaded once. Its own ``main`` listens on all addresses of the machine, so that it is put
together here, object by object, through py4j, and told to listen on 127.0.0.1 alone.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

from scripts.servers.jars import downloaded, java, spark_jars
from scripts.servers.processes import NO_PROCESS, START_SECONDS, Begun, Process, ServerError, free_ports, wait_until

if TYPE_CHECKING:
    from py4j.java_gateway import GatewayParameters

ROOT = Path(__file__).resolve().parents[2]
ICEBERG, JETTY, SQLITE = "1.11.0", "12.1.1", "3.50.3.0"
SERVER = f"""
    <dependency org="org.apache.iceberg" name="iceberg-core" rev="{ICEBERG}">
      <artifact name="iceberg-core" type="jar"/>
      <artifact name="iceberg-core" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.apache.iceberg" name="iceberg-open-api" rev="{ICEBERG}">
      <artifact name="iceberg-open-api" type="jar" m:classifier="test-fixtures"/>
    </dependency>
    <dependency org="org.eclipse.jetty.ee10" name="jetty-ee10-servlet" rev="{JETTY}"/>
    <dependency org="org.xerial" name="sqlite-jdbc" rev="{SQLITE}"/>
"""
OPTIONS = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx256m")


def server_jars() -> list[str]:
    """The class path of Iceberg's REST server and of its client."""
    names = ("hadoop-client-*", "jcl-over-slf4j*")
    return [f"{downloaded('iceberg-rest-server', SERVER)}/*"] + [
        str(jar) for name in names for jar in spark_jars().glob(f"{name}.jar")
    ]


def start_server(folder: Path, begun: Begun) -> tuple[Process, str]:
    """Start a server whose tables and catalog are in ``folder``; return its process and its address.

    Args:
        folder: where the tables and the catalog are.
        begun: gets the process as soon as there is one.

    Raises:
        ServerError: if the jars cannot be had, or the server does not start.
    """
    server_jars()
    folder.mkdir(parents=True, exist_ok=True)
    (port,) = free_ports(1)
    log = folder.with_suffix(".log")
    command = [sys.executable, "-m", "scripts.servers.iceberg_rest", str(folder), str(port), str(log)]
    with log.open("ab") as errors:
        launcher = subprocess.Popen(
            command, cwd=ROOT, start_new_session=True, stdout=subprocess.PIPE, stderr=errors, text=True
        )
    assert launcher.stdout is not None
    pid = launcher.stdout.readline()
    process, address = Process.of(int(pid)) if pid else NO_PROCESS, f"http://127.0.0.1:{port}"
    try:
        begun(process, folder)
        if launcher.wait(START_SECONDS):
            raise ServerError(f"Iceberg's REST server does not start: read {log}")
    except BaseException as error:
        launcher.kill()
        launcher.wait()
        process.stop()
        if isinstance(error, subprocess.TimeoutExpired):
            raise ServerError(f"Iceberg's REST server does not start in {START_SECONDS} s: read {log}") from error
        raise
    finally:
        launcher.stdout.close()
    wait_until(lambda: urllib.request.urlopen(f"{address}/v1/config", timeout=5).close(), process, "the server", log)
    return process, address


def launch(folder: Path, port: int, log: Path) -> None:
    """Start Java, say its id, put the server together in it, and close the door through which that was done."""
    from py4j.java_gateway import GatewayParameters, launch_gateway

    (py4j,) = spark_jars().glob("py4j-*.jar")
    with log.open("ab") as errors:
        gate, token, child = launch_gateway(
            jarpath=str(py4j),
            classpath=os.pathsep.join(server_jars()),
            javaopts=list(OPTIONS),
            java_path=java(),
            enable_auth=True,
            return_proc=True,
            redirect_stderr=errors,
        )
    try:
        print(child.pid, flush=True)
        _put_together(folder, port, GatewayParameters(port=gate, auth_token=token, auto_convert=True))
        print("ready", flush=True)
    except BaseException:  # who asked for the server may be gone, and then nobody else knows of it
        child.kill()
        raise


def _put_together(folder: Path, port: int, gate: GatewayParameters) -> None:
    from py4j.java_gateway import JavaGateway

    gateway = JavaGateway(gateway_parameters=gate)
    iceberg, jetty = gateway.jvm.org.apache.iceberg, gateway.jvm.org.eclipse.jetty
    settings = {
        "uri": f"jdbc:sqlite:{folder}/catalog.db",
        "warehouse": str(folder / "warehouse"),
        "jdbc.schema-version": "V1",
        "clients": "1",  # SQLite has one writer; who waits for a connection is not told that the database is locked
    }
    catalog = iceberg.jdbc.JdbcCatalog()
    catalog.setConf(gateway.jvm.org.apache.hadoop.conf.Configuration())
    catalog.initialize("reference", settings)
    servlet = iceberg.rest.RESTCatalogServlet(iceberg.rest.RESTCatalogAdapter(catalog))
    handler = jetty.ee10.servlet.ServletContextHandler(0)
    handler.addServlet(jetty.ee10.servlet.ServletHolder(servlet), "/*")
    server = jetty.server.Server(gateway.jvm.java.net.InetSocketAddress("127.0.0.1", port))
    server.setHandler(handler)
    server.start()
    gateway.shutdown()


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("port", type=int)
    parser.add_argument("log", type=Path)
    given = parser.parse_args()
    launch(given.folder, given.port, given.log)
