"""The types of the public API: exported, documented, accepted by type checkers, short to look at."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from pkgutil import iter_modules
from typing import Any

import pytest

import sidecar
from sidecar.embedding.embed import EmbeddingOptions
from sidecar.errors import Problem, SidecarError
from sidecar.results.base import LONGEST_TEXT, Result, Summarized
from tests.guide_examples import PAGES, ROOT, examples
from tests.syntax import tree_of

PRELUDE = {
    "spark": "from typing import Any\nspark: Any = None\n",
    "encryption": (
        "from pyarrow.parquet.encryption import KmsClient as Client, KmsConnectionConfig\n"
        "KmsClient: type[Client] = Client\nkms_connection_config = KmsConnectionConfig()\n"
    ),
}
"""Names that examples use and that the text around them explains."""

OPAQUE = {"BlockFilter", "FileScan", "KeptRowGroups", "Plan", "SidecarFile", "Source"}
"""Exported classes whose attributes may have types of the rooms: nobody makes or takes these apart."""

BEHIND = ("sqlalchemy", "pyspark", "numba", "polars", "hypothesis", "rich", "typer", "duckdb")
"""Packages that no type of an example comes from: mypy would read them for half of its time."""

PYRIGHT = shutil.which("basedpyright", path=str(Path(sys.executable).parent)) or shutil.which("basedpyright")


def public() -> dict[str, Any]:
    """All public names: those of the package, of its results and of its errors."""
    errors = {name: found for name, found in vars(sidecar.errors).items() if is_error(found)}
    results = {name: getattr(sidecar.results, name) for name in sidecar.results.__all__}
    return {name: getattr(sidecar, name) for name in sidecar.__all__} | results | errors


def is_error(found: object) -> bool:
    return isinstance(found, type) and issubclass(found, SidecarError | Problem)


FUNCTIONS = {name: value for name, value in public().items() if inspect.isfunction(value)}
CLASSES = {name: value for name, value in public().items() if inspect.isclass(value)}


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the Python examples of each page as one module, and pyarrow without types.

    The stubs of pyarrow refuse calls that pyarrow takes, and not everybody has them.
    """
    folder = tmp_path_factory.mktemp("types")
    for page in PAGES:
        blocks = [one for one in examples(page) if one.language == "python" and one.needs != "quoted"]
        if blocks:
            text = "\n".join(f"# {block.name}\n{block.text}" for block in blocks)
            name = page.stem.replace("-", "_").lower()
            (folder / f"page_{name}.py").write_text(PRELUDE.get(page.stem, "") + text)
    for module in (
        "__init__",
        "parquet/__init__",
        "parquet/encryption",
        "orc",
        "compute",
        "types",
        "dataset",
    ):
        stub = folder / "stubs" / "pyarrow" / f"{module}.pyi"
        stub.parent.mkdir(parents=True, exist_ok=True)
        stub.write_text("from typing import Any\n\ndef __getattr__(name: str) -> Any: ...\n")
    return folder


@pytest.fixture(scope="module")
def settings(pages: Path) -> Path:
    """What mypy is told."""
    settings = pages / "mypy.ini"
    settings.write_text(
        f"[mypy]\nstrict = True\nmypy_path = {pages / 'stubs'}:{ROOT}\n"
        f"cache_dir = {ROOT / '.mypy_cache' / 'examples'}\n"
        "[mypy-sidecar.*]\nfollow_imports = silent\n"
        f"[mypy-{','.join(f'{package}.*' for package in BEHIND)}]\nfollow_imports = skip\n"
    )
    return settings


def test_mypy_accepts_the_examples(pages: Path, settings: Path) -> None:
    found = checked([sys.executable, "-m", "mypy", "--config-file", str(settings), *files_of(pages)])
    assert found.returncode == 0, found.stdout + found.stderr


WRONG_CALLS = {
    'sidecar.build(table, columns="id")': '"build" has incompatible type "Literal[\'id\']"; expected "list[str] | ',
    'sidecar.build(table, colums=["id"])': 'Unexpected keyword argument "colums" for "build"; did you mean "columns"?',
    'sidecar.build(table, engine="sprak")': "expected \"Literal['auto', 'spark', 'local'] | None\"",
    'sidecar.build(table, kinds=["blom"])': "expected \"Literal['bloom', 'theta', 'page-index']\"",
    'sidecar.scan(table, "id = 1", columns="id")': '"scan" has incompatible type "str"; expected "list[str] | ',
    'sidecar.care(["db.t"], onyl=["gc"])': 'Unexpected keyword argument "onyl" for "care"',
    'sidecar.embed(table, blom=["id"])': 'Unexpected keyword argument "blom" for overloaded function "embed"; did you ',
    'sidecar.embed("f", into="g", placement="start")': 'No overload variant of "embed" matches argument types "str", ',
}
"""Calls that mypy refuses, each with lines of less than 200 characters, and what it says first."""


def test_mypy_refuses_wrong_options_in_a_line(pages: Path, settings: Path) -> None:
    calls = "\n    ".join(["def f(table: Table) -> None:", *WRONG_CALLS])
    (pages / "wrong.py").write_text(f"import sidecar\nfrom pyiceberg.table import Table\n\n{calls}\n")
    found = checked([sys.executable, "-m", "mypy", "--config-file", str(settings), str(pages / "wrong.py")])
    errors = [line.partition("wrong.py:")[2] for line in found.stdout.splitlines() if " error: " in line]
    first = {line.partition(":")[0]: line for line in reversed(errors)}  # of overloads, mypy has two
    assert len(first) == len(WRONG_CALLS), found.stdout
    for line, (call, said) in zip(reversed(first.values()), WRONG_CALLS.items(), strict=True):
        assert said in line, call
    assert max(map(len, errors)) < 200, errors


@pytest.mark.skipif(PYRIGHT is None, reason="basedpyright is not installed; the extra dev has it")
def test_pyright_accepts_the_examples(pages: Path) -> None:
    settings = {
        "include": ["."],
        "exclude": ["stubs", "wrong.py"],
        "stubPath": "stubs",
        "extraPaths": [str(ROOT)],
        "typeCheckingMode": "standard",
        "reportUnusedExpression": False,
    }
    (pages / "pyrightconfig.json").write_text(json.dumps(settings))
    found = checked([str(PYRIGHT), "--project", str(pages), "--pythonpath", sys.executable])
    assert found.returncode == 0, found.stdout + found.stderr


def files_of(pages: Path) -> list[str]:
    return sorted(map(str, pages.glob("page_*.py")))


def checked(command: list[str]) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_help_of_a_function_names_each_parameter(name: str) -> None:
    text = inspect.getdoc(FUNCTIONS[name]) or ""
    parameters = inspect.signature(FUNCTIONS[name]).parameters
    assert [one for one in parameters if f"``{one}" not in text] == []


def test_the_options_behind_overloads_are_those_of_the_function() -> None:
    assert ["source", *EmbeddingOptions.__annotations__] == [*inspect.signature(sidecar.embed).parameters]


def test_the_help_of_a_build_has_an_example_and_a_line_for_each_parameter() -> None:
    lines = (inspect.getdoc(sidecar.build) or "").splitlines()
    assert any("sidecar.build(table, [" in line for line in lines)
    for parameter in inspect.signature(sidecar.build).parameters:
        assert any(line.startswith(f"``{parameter}``") for line in lines), parameter


def test_no_public_name_is_that_of_a_module() -> None:
    """The module would take the place of the name once it is loaded."""
    for package, names in (
        (sidecar, {*sidecar.__all__} - {"errors", "results"}),
        (sidecar.results, sidecar.results.__all__),
    ):
        modules = {found.name for found in iter_modules(package.__path__)}
        assert modules & {*names} == set(), package


def test_results_and_errors_are_in_modules_of_their_own() -> None:
    results = {name for name, found in CLASSES.items() if issubclass(found, Summarized | SidecarError | Problem)}
    assert results & {*sidecar.__all__} <= {"Plan"}


def test_the_help_of_the_package_has_each_function_and_fits_a_screen() -> None:
    lines = (sidecar.__doc__ or "").splitlines()
    assert len(lines) <= 40
    assert max(map(len, lines)) <= 120
    assert [name for name in FUNCTIONS if not re.search(rf"\b{name}\b", sidecar.__doc__ or "")] == []


@pytest.mark.parametrize("name", FUNCTIONS)
def test_the_docstring_of_a_public_function_has_its_arguments_and_a_call(name: str) -> None:
    text, signature = inspect.getdoc(FUNCTIONS[name]) or "", inspect.signature(FUNCTIONS[name])
    named = {word for quoted in re.findall(r"``(.+?)``", text, re.DOTALL) for word in re.findall(r"\w+", quoted)}
    assert signature.parameters.keys() - named == set()
    written = re.search(rf"sidecar\.{name}\([^`\n]*?\)(?=[`.:]|\n|$| as )", text)
    assert written, "it has no example"
    call = next(node for node in ast.walk(ast.parse(written[0])) if isinstance(node, ast.Call))
    signature.bind(*call.args, **{str(word.arg): word.value for word in call.keywords})


@pytest.mark.parametrize("name", CLASSES)
def test_the_attributes_of_a_public_class_are_explained(name: str) -> None:
    assert CLASSES[name].__doc__
    assert list(unexplained(name)) == []


def unexplained(name: str) -> Iterator[str]:
    """Public attributes of a class without a docstring of their own and without a word in that of the class."""
    body = definition(CLASSES[name]).body
    known = " ".join(re.findall(r"``[^`]+``", CLASSES[name].__doc__ or ""))
    for at, statement in enumerate(body):
        if isinstance(statement, ast.AnnAssign) and isinstance(statement.target, ast.Name):
            attribute, after = statement.target.id, body[at + 1 : at + 2]
            own = after and isinstance(after[0], ast.Expr) and isinstance(after[0].value, ast.Constant)
            if not (own or attribute.startswith("_") or re.search(rf"\b{attribute}\b", known)):
                yield attribute


def home_of(found: Any) -> ast.Module:
    """The module of a class, or of a function below its decorators."""
    return tree_of(Path(inspect.getsourcefile(inspect.unwrap(found)) or ""))


def definition(found: Any) -> Any:
    """The definition of a class or function in its module."""
    tree = home_of(found)
    return next(node for node in ast.walk(tree) if getattr(node, "name", None) == found.__name__)


@pytest.mark.parametrize("name", sorted({*FUNCTIONS, *CLASSES} - OPAQUE))
def test_the_types_that_a_caller_touches_are_exported(name: str) -> None:
    found = public()[name]
    if isinstance(found, type) and issubclass(found, SidecarError):
        return
    home = home_of(found)
    own = {node.name for node in home.body if isinstance(node, ast.ClassDef)}
    ours = own | {
        alias.asname or alias.name
        for node in ast.walk(home)
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("sidecar.")
        for alias in node.names
    }
    named = {word for text in annotations(definition(found)) for word in re.findall(r"\w+", text)}
    assert named & ours - {*public()} == set()


def annotations(node: Any) -> Iterator[str]:
    """The annotations of a function, or of a class's attributes."""
    if isinstance(node, ast.ClassDef):
        for statement in node.body:
            if isinstance(statement, ast.AnnAssign):
                yield ast.unparse(statement.annotation)
        return
    arguments = node.args
    for argument in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
        if argument.annotation is not None:
            yield ast.unparse(argument.annotation)
    if node.returns is not None:
        yield ast.unparse(node.returns)


def test_no_public_function_returns_a_bare_dict() -> None:
    for name, function in FUNCTIONS.items():
        assert "dict" not in ast.unparse(definition(function).returns), name


HOSTILE = "<script>alert('x')</script>\x1b[31m"


def test_results_are_short_and_escaped() -> None:
    many = [sidecar.errors.Problem(f"/data/{n}.parquet", n, "c", HOSTILE) for n in range(600)]
    found = sidecar.results.Verification((), {}, checked=600, problems=many, scope=HOSTILE * 10)
    assert "problems=<600 items>" in repr(found)
    assert len(repr(found)) < 5 * LONGEST_TEXT
    assert "\x1b" not in repr(found)
    shown = found._repr_html_()
    assert "<script>" not in shown
    assert "\x1b" not in shown
    assert "&lt;script&gt;" in shown
    assert len(found.to_dict()["problems"]) == 600


def test_plans_and_reports_are_short() -> None:
    from pyiceberg.expressions import AlwaysTrue

    funnel = sidecar.results.Funnel(total=600, kept=600, row_groups=1200)
    plan = sidecar.Plan(None, 1, AlwaysTrue(), funnel=funnel, warnings=("x",))  # type: ignore[arg-type]
    assert repr(plan) == (
        "Plan(snapshot_id=1, files_total=600, dropped_by_metadata=0, dropped_by_filter=0, "
        "dropped_by_page_index=0, files_kept=0, row_groups_kept=1200, notes=[], warnings=<1 item>)"
    )
    assert "<th" in plan._repr_html_()
    assert '<th style="text-align:left">row_groups</th><td style="text-align:left">1,200</td>' in funnel._repr_html_()
    for name in ("BuildReport", "EmbedReport", "EmbedTableReport", "ExtractReport"):
        assert issubclass(CLASSES[name], Summarized)
        assert CLASSES[name].__repr__ is Summarized.__repr__


def test_a_build_is_a_table_of_its_columns() -> None:
    ndv = sidecar.results.DistinctValues(7.0, 7.0, 7.0)
    column = sidecar.results.ColumnReport("<k>", 1, "long", ["bloom"], filters={"scanned": 4}, ndv=ndv)
    report = sidecar.results.BuildReport(snapshot_id=1, engine="local", engine_reason="", fpp=0.01, columns=[column])
    frame = report.to_pandas()
    assert list(frame["name"]) == ["<k>"]
    assert (frame["filters.scanned"][0], frame["ndv.estimate"][0]) == (4, 7.0)
    shown = report._repr_html_()
    for cell in ("&lt;k&gt;", "bloom", "scanned: 4", "estimate: 7, lower: 7, upper: 7", "1"):
        assert f'<td style="text-align:left">{cell}</td>' in shown
    assert list(ndv.to_pandas()["estimate"]) == [7.0]


def test_plain_data_leaves_out_what_is_not_there() -> None:
    verified = sidecar.results.VerifiedFile("f", [sidecar.errors.Problem("f", None, None, "bad")])
    problem = {"file": "f", "unit": None, "column": None, "problem": "bad"}
    assert verified.to_dict() == {"file": "f", "problems": [problem]}
    unit = sidecar.results.ProbedRowGroup(row_group=0, might_contain=None, reason="no filter")
    assert unit.to_dict() == {"row_group": 0, "might_contain": None, "reason": "no filter"}
    assert isinstance(unit, Result)
    assert sidecar.results.KindCoverage(ndv=7).to_dict() == {"ndv": 7}
