"""What is published: one version, the right files, links that lead somewhere, workflows that call scripts of here."""

from __future__ import annotations

import re
import sys
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
from setuptools.config.pyprojecttoml import read_configuration

from scripts.releasing.building import with_absolute_links
from scripts.releasing.contents import metadata_problems, sdist_problems, version_in_changelog, wheel_problems
from scripts.releasing.trying import first_python_block
from scripts.torturing.__main__ import RUNS
from sidecar.bundle.envelopes.encryption import ENCRYPTED_VERSION
from sidecar.bundle.envelopes.envelope import FIELD_VERSION, UNITS_VERSION, VERSION

ROOT = Path(__file__).resolve().parents[1]
WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))
USES = re.compile(r"uses: *([\w.-]+/[\w./-]+)@(\S+) *(?:# *(v[\d.]+))?$", re.MULTILINE)


@pytest.fixture(scope="module")
def configuration() -> dict[str, Any]:
    found: dict[str, Any] = read_configuration(ROOT / "pyproject.toml")
    return found


def text_files() -> list[Path]:
    """Pages, code and settings that are published or that a visitor sees."""
    folders = ("sidecar", "scripts", ".github", ".ci", "spec_vectors")
    suffixes = {"", ".md", ".py", ".pyi", ".cff", ".yml", ".toml"}
    below = [path for folder in folders for path in (ROOT / folder).rglob("*") if path.suffix in suffixes]
    return [path for path in [*ROOT.glob("*.md"), *below] if path.is_file() and "bench-results" not in path.parts]


def test_the_version_and_the_address_are_in_one_place(configuration: dict[str, Any]) -> None:
    project = configuration["project"]
    version, owner = project["version"], project["urls"]["Source"].split("/")[3]
    ours = re.compile(rf"(?<![\w.=]){re.escape(version)}(?![\w.])|\b{owner}/|\b{owner}\.github", re.ASCII)
    found = {str(path.relative_to(ROOT)): ours.findall(path.read_text("utf-8")) for path in text_files()}
    assert {name: texts for name, texts in found.items() if texts} == {"CHANGELOG.md": [version]}
    assert version_in_changelog(version)


def packaged(configuration: dict[str, Any]) -> list[str]:
    """Files that setuptools puts into the wheel by this configuration."""
    settings = configuration["tool"]["setuptools"]
    names: list[Path] = []
    for package in settings["packages"]:
        folder = ROOT / package.replace(".", "/")
        names += folder.glob("*.py")
        for pattern in settings["package-data"].get(package, ()):
            names += folder.glob(pattern)
    return [path.relative_to(ROOT).as_posix() for path in names]


def test_the_wheel_has_the_package_and_its_guides_alone(configuration: dict[str, Any]) -> None:
    names = packaged(configuration)
    assert list(wheel_problems(names)) == []
    assert list(wheel_problems([*names, "tests/test_release.py", "sidecar/guide/decisions.md"])) == [
        "the wheel has sidecar/guide/decisions.md, which is no module, stub or guide of the package",
        "the wheel has tests/test_release.py, which is no module, stub or guide of the package",
        "the wheel has sidecar/guide/decisions.md, a page for developers",
    ]
    assert list(wheel_problems(name for name in names if name != "sidecar/py.typed")) == [
        "the wheel lacks sidecar/py.typed"
    ]


def test_the_sdist_has_the_tests_and_nothing_that_a_run_left() -> None:
    assert list(sdist_problems(["tests/conftest.py", "scripts/release", "tests/__pycache__/a.pyc"])) == [
        "the sdist lacks spec_vectors/SPEC.md",
        "the sdist lacks CHANGELOG.md",
        "the sdist has tests/__pycache__/a.pyc, which a run left",
    ]
    grafted = re.findall(r"^graft (\S+)$", (ROOT / "MANIFEST.in").read_text("utf-8"), re.MULTILINE)
    assert {"tests", "spec_vectors", "scripts"} <= set(grafted)


def test_what_the_metadata_lacks_is_named(configuration: dict[str, Any]) -> None:
    project = configuration["project"]
    metadata = Message()
    metadata["Version"] = project["version"]
    metadata["Requires-Python"] = project["requires-python"]
    metadata["License-Expression"], metadata["License-File"] = project["license"], "LICENSE"
    for classifier in project["classifiers"]:
        metadata["Classifier"] = classifier
    for label, url in project["urls"].items():
        metadata["Project-URL"] = f"{label}, {url}"
    readme = with_absolute_links((ROOT / "README.md").read_text("utf-8"), project["urls"]["Source"], "1.2")
    metadata.set_payload(readme)
    assert list(metadata_problems(metadata, project["version"])) == []
    metadata.replace_header("Requires-Python", ">=3.9")
    del metadata["Project-URL"]
    metadata.set_payload("[a guide](sidecar/guide/orc.md)")
    assert len(list(metadata_problems(metadata, project["version"]))) == 6
    page = "![a](b.svg) [c](d.md#e), [f](#g), [h](https://i)"
    assert with_absolute_links(page, "https://host/o/r", "1.2") == (
        "![a](https://host/o/r/raw/v1.2/b.svg) [c](https://host/o/r/blob/v1.2/d.md#e), [f](#g), [h](https://i)"
    )


def test_the_first_lines_of_the_readme_can_be_taken() -> None:
    compile(first_python_block((ROOT / "README.md").read_text("utf-8")), "README.md", "exec")


@pytest.mark.parametrize("workflow", WORKFLOWS, ids=lambda path: path.stem)
def test_workflows_call_scripts_that_are_there_and_pin_actions(workflow: Path) -> None:
    text = workflow.read_text("utf-8")
    assert "\npermissions: {}\n" in text, "permissions are given to each job alone"
    named = set(re.findall(r"(?<![\w/])((?:scripts|\.ci)/[\w-]+)", text))
    named |= {f"{folder}/action.yml" for folder in re.findall(r"uses: \./(\S+)", text)}
    assert {name for name in named if not (ROOT / name).is_file()} == set()
    for action, commit, version in USES.findall(text):
        assert re.fullmatch(r"[0-9a-f]{40}", commit), f"{action} is not pinned by its commit"
        assert version, f"{action} does not name its version beside the commit"
    assert len(USES.findall(text)) == len(re.findall(r"uses: *[\w-][\w.-]*/", text))


def test_each_night_runs_what_needs_nothing_but_the_checkout() -> None:
    nightly = (ROOT / ".github" / "workflows" / "nightly.yml").read_text("utf-8")
    named = set(re.findall(r"^ +- (\w+)(?: --[\w -]+)?$", nightly, re.MULTILINE)) | {"corpus"}
    assert named == RUNS.keys() - {"mutants", "tables", "differential"}


def test_all_workflows_use_one_commit_of_an_action() -> None:
    assert WORKFLOWS
    files = [*WORKFLOWS, *(ROOT / ".github" / "actions").glob("*/action.yml")]
    found = {pin for file in files for pin in USES.findall(file.read_text("utf-8"))}
    assert len(found) == len({action for action, *_ in found})


def test_the_matrix_has_each_python_of_the_classifiers(configuration: dict[str, Any]) -> None:
    prefix = "Programming Language :: Python :: 3."
    classified = [line.removeprefix(prefix) for line in configuration["project"]["classifiers"] if prefix in line]
    text = (ROOT / ".github" / "workflows" / "matrix.yml").read_text("utf-8")
    listed = re.search(r"python: \[(.*)\]", text)
    assert listed
    assert re.findall(r"3\.(\d+)", listed[1]) == classified
    assert sys.version_info >= (3, int(classified[0]))


def test_the_layouts_of_the_guide_are_those_of_the_code() -> None:
    guide = (ROOT / "sidecar" / "guide" / "trust.md").read_text("utf-8")
    rows = re.findall(r"^\| (units|filters|directory)\b.* \| (.*) \|$", guide, re.MULTILINE)
    assert rows == [
        ("units", str(UNITS_VERSION)),
        ("filters", f"{FIELD_VERSION}; {ENCRYPTED_VERSION} where they are encrypted"),
        ("directory", str(VERSION)),
    ]
