"""Iceberg's REST compatibility kit gives the same results through the proxy as without it.

It takes 20 s of CPU, so it runs only with ``SIDECAR_THOROUGH`` of 2 and more.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

from scripts.servers.iceberg_rest import ICEBERG, OPTIONS, server_jars
from scripts.servers.jars import downloaded, java
from sidecar.serving.application import make_application
from sidecar.serving.server import running
from sidecar.serving.settings import ServeSettings
from tests.case_counts import TIMES
from tests.serving.reference_server import reference_server

KIT = Path(__file__).with_name("CompatibilityKit.java")
LIBRARIES = f"""
    <dependency org="org.apache.iceberg" name="iceberg-api" rev="{ICEBERG}">
      <artifact name="iceberg-api" type="jar" m:classifier="tests"/>
    </dependency>
    <dependency org="org.junit.platform" name="junit-platform-console-standalone" rev="1.14.0"/>
    <dependency org="org.assertj" name="assertj-core" rev="3.27.3"/>
"""
KIT_SECONDS = 300
LEAST_PASSED = 130


def results_of(addresses: list[str], folder: Path) -> list[dict[str, tuple[str, str]]]:
    """Run the kit against each address; return the result of each test, and the class of its exception."""
    jars = [str(folder), f"{downloaded('rest-compatibility-kit', LIBRARIES)}/*", *server_jars()]
    places = ["-cp", os.pathsep.join(jars)]
    if shutil.which(java("javac")) is None:
        pytest.skip("Java has no compiler here")
    subprocess.run([java("javac"), *places, "-d", str(folder), str(KIT)], check=True, timeout=KIT_SECONDS)
    command = [java(), *OPTIONS, *places, "org.apache.iceberg.rest.CompatibilityKit", *addresses]
    with (folder / "failures.log").open("w") as log:
        done = subprocess.run(command, check=True, timeout=KIT_SECONDS, stdout=subprocess.PIPE, stderr=log, text=True)
    found: list[dict[str, tuple[str, str]]] = [{} for _ in addresses]
    for line in done.stdout.splitlines():
        number, result, test, error = line.split("\t")
        found[int(number)][test] = (result, error)
    return found


@pytest.mark.jvm
@pytest.mark.skipif(TIMES < 2, reason="runs with SIDECAR_THOROUGH=2")
def test_the_kit_finds_no_difference(tmp_path: Path) -> None:
    """Each way has a server of its own: tests of the kit leave files where others write."""
    for name in ("plain", "proxied"):
        (tmp_path / name).mkdir()
    with reference_server(tmp_path / "plain") as plain, reference_server(tmp_path / "proxied") as upstream:
        settings = ServeSettings(upstream=upstream, port=0, storage=[str(tmp_path / "proxied")]).checked()
        with running(settings, make_application(settings)) as proxy:
            without, through = results_of([plain, proxy], tmp_path)
    assert through == without
    assert sum(result == "SUCCESSFUL" for result, _ in through.values()) > LEAST_PASSED
