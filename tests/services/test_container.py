"""The trial of ``scripts/container`` without containers: the same command line, keys and reader, as processes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from pyiceberg.catalog import load_catalog

from scripts.servers.processes import free_ports
from scripts.servers.services import FOLDER
from tests.guide_examples import ROOT

pytestmark = pytest.mark.services

HOME = ROOT / "scripts" / "container"


def served_line() -> list[str]:
    """The command of the service ``sidecar`` in ``compose.yaml``."""
    found = re.search(
        r"\n    command: >-\n((?:      .+\n)+)    environment:\n      <<: \*storage\n",
        (HOME / "compose.yaml").read_text(),
    )
    assert found is not None
    return found.group(1).split()


def test_a_reader_of_the_served_catalog(tmp_path: Path) -> None:
    keys = tmp_path / "keys"
    subprocess.run([sys.executable, HOME / "keys.py", keys, "localhost"], check=True)
    assert {path.stat().st_mode & 0o777 for path in keys.iterdir()} == {0o600}
    upstream = str(load_catalog("rest").properties["uri"])
    (port,) = free_ports(1)
    address = f"https://localhost:{port}"
    changed = {"http://catalog:8181": upstream, "s3://lake/": f"file:{FOLDER}", "https://sidecar:8181": address}
    line = [changed.get(word, word).replace("/keys/", f"{keys}/") for word in served_line()]
    assert all(old not in line for old in changed)
    command = [sys.executable, "-m", "sidecar.cli", *line, "--port", str(port)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True) as server:
        try:
            assert server.stdout is not None
            address = next(
                found.group() for text in server.stdout if (found := re.search(r"https://localhost:\d+", text))
            )
            environment = {name: value for name, value in os.environ.items() if name != "AWS_ENDPOINT_URL_S3"}
            done = subprocess.run(
                [sys.executable, HOME / "reader.py", address, keys],
                env=environment, capture_output=True, text=True, check=True, timeout=60,
            )  # fmt: skip
        finally:
            server.terminate()
    assert done.stdout.splitlines() == ["before  20 of 20 files", "after   1 of 20 files", "rows    [{'id': 4242}]"]


def test_the_image_runs_what_compose_mounts() -> None:
    """Each file that compose names is there, and the image has a user of its own and a health check."""
    text = (HOME / "compose.yaml").read_text()
    assert {HOME / name for name in re.findall(r"/trial/(\w+\.py)", text)} == set(HOME.glob("*.py"))
    image = (HOME / "Containerfile").read_text()
    words = re.findall(r"^(USER|HEALTHCHECK|ENTRYPOINT) (.*)$", image, re.MULTILINE)
    assert [word for word, _ in words] == ["USER", "HEALTHCHECK", "ENTRYPOINT"]
    assert words[0][1].isdigit()
    assert json.loads(words[2][1]) == ["sidecar"]
