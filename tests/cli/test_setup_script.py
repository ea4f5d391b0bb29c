"""``scripts/setup`` on machines that this one is not: its installers are replaced, nothing is installed."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

SETUP = Path(__file__).resolve().parents[2] / "scripts" / "setup"


def setup_java(stubs: str) -> tuple[str, str]:
    """What ``setup_java`` leaves in JAVA_HOME and says, functions of the script replaced by ``stubs``."""
    text = SETUP.read_text()
    functions = text[text.index("say() {") : text.index("\nsetup_python ")]
    program = f"set -euo pipefail\nroot=/nowhere python={sys.executable}\n{functions}\n{stubs}\nsetup_java\n"
    done = subprocess.run(
        ["bash", "-c", program + 'echo "${JAVA_HOME:-none}"'], capture_output=True, text=True, check=True
    )
    return done.stdout.strip(), done.stderr


def test_without_java_and_without_a_way_to_get_it_one_sentence_is_said() -> None:
    stubs = "find_java() { return 1; }\njava_from_packages() { return 1; }\njava_from_install_jdk() { return 1; }"
    home, said = setup_java(stubs)
    assert home == "none"
    assert "going on without Spark" in said
    assert said.count("\n") == 2  # that it tries, and that it did not work


def test_a_package_that_brings_no_right_java_is_not_the_last_try(tmp_path: Path) -> None:
    mark = tmp_path / "installed"
    stubs = f"""find_java() {{ [ -e {mark} ] && echo /jdk; }}
java_from_packages() {{ return 0; }}
java_from_install_jdk() {{ touch {mark}; }}"""
    home, said = setup_java(stubs)
    assert home == "/jdk"
    assert "without Spark" not in said


@pytest.mark.parametrize(
    ("version", "right"),
    [
        ("17.0.15", True),
        ("21.0.4", True),
        ("1.8.0_402", False),
        ("11.0.2", False),
        ("25.0.1", False),
        ("170.1", False),
    ],
)
def test_only_java_17_and_21_are_right(version: str, right: bool, tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"""#!/bin/sh\necho 'openjdk version "{version}" 2025-04-15' >&2\n""")
    java.chmod(0o755)
    home, _ = setup_java(
        f"find_java() {{ is_right_java {tmp_path} && echo {tmp_path}; }}\n"
        "java_from_packages() { return 1; }\njava_from_install_jdk() { return 1; }"
    )
    assert home == (str(tmp_path) if right else "none")
