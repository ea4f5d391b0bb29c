"""Counts how large and how wide the package is: what each figure of the table in ``test_house.py`` counts."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterable
from importlib import import_module
from pathlib import Path

from tests.syntax import tree_of

NO_CODE = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
LONG = 60
"""Lines of a function from which on it is long."""
MANY = 7
"""Parameters that a function has at most, unless it is public or of the command line."""
WORDS, WORDS_EACH = 60, 12
"""Words that a docstring has at most, and as many more for each parameter or attribute."""
ALIAS = re.compile(r"_?[A-Z]\w*[a-z]\w*")


def is_text(node: ast.AST) -> bool:
    """Whether a statement is a docstring, or the string below an attribute."""
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)


def code_lines(path: Path) -> int:
    """Lines with a token of code: no blank lines, no comments, no docstrings."""
    texts = {
        line for node in ast.walk(tree_of(path)) if is_text(node) for line in range(node.lineno, node.end_lineno + 1)
    }
    found: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(path.read_text("utf-8")).readline):
        if token.type not in NO_CODE:
            found.update(range(token.start[0], token.end[0] + 1))
    return len(found - texts)


def parameters(function: ast.FunctionDef | ast.AsyncFunctionDef) -> list[ast.arg]:
    """All parameters but ``self``, ``cls``, ``*args`` and ``**kwargs``."""
    every = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    return every[1:] if every and every[0].arg in ("self", "cls") else every


def attributes(found: ast.ClassDef) -> list[str]:
    """Names of the public attributes that a class declares in its body."""
    targets = [ast.unparse(one.target) for one in found.body if isinstance(one, ast.AnnAssign)]
    return [name for name in targets if not name.startswith("_")]


def wordy_docstrings(tree: ast.Module) -> list[tuple[str, int, int]]:
    """Functions and classes whose docstring is too long: name, words, and the words that they may have."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            described = len(parameters(node)) + (node.args.vararg is not None) + (node.args.kwarg is not None)
        elif isinstance(node, ast.ClassDef):
            made = [one for one in node.body if isinstance(one, ast.FunctionDef) and one.name == "__init__"]
            described = max(len(attributes(node)), *(len(parameters(one)) for one in made), 0)
        else:
            continue
        words, most = len((ast.get_docstring(node) or "").split()), WORDS + WORDS_EACH * described
        found += [(node.name, words, most)] if words > most else []
    return found


def first_words(trees: Iterable[ast.Module]) -> set[str]:
    """The words with which the docstrings of modules begin."""
    return {text.split()[0] for tree in trees if (text := ast.get_docstring(tree))}


def in_another_form(words: set[str]) -> set[str]:
    """Words that begin a question, and verbs that other docstrings have in the third person."""
    questions = words & {"How", "What", "When", "Where", "Whether", "Which", "Why"}
    return questions | {word for word in words if words & {f"{word}s", f"{word}es", f"{word[:-1]}ies"}}


def public_names(package: Path) -> dict[str, str]:
    """The module of each public name, as the stub of the package has them."""
    stub = (package / "__init__.pyi").read_text("utf-8")
    return {name: module for module, name in re.findall(r"^from (\S+) import (\w+) as", stub, re.MULTILINE)}


def function_in(package: Path, module: str, name: str) -> ast.FunctionDef | None:
    """The last definition of a function at the top of a module: the one behind its overloads."""
    place = package.parent.joinpath(*module.split("."))
    body = tree_of(place / "__init__.py" if place.is_dir() else place.with_suffix(".py")).body
    return next((one for one in reversed(body) if isinstance(one, ast.FunctionDef) and one.name == name), None)


def commands() -> dict[str, str]:
    """The module of each command."""
    groups: dict[str, tuple[str, ...]] = import_module("sidecar.cli.app").COMMANDS
    return {module.rpartition(".")[2]: f"sidecar.cli.{module}" for group in groups.values() for module in group}


def asks_for_the_format(node: ast.AST) -> bool:
    """Whether an expression asks if a data file is Parquet or ORC."""
    if isinstance(node, ast.Call) and ast.unparse(node.func) in ("isinstance", "is_orc"):
        return ast.unparse(node.func) == "is_orc" or ast.unparse(node.args[1]) in ("OpenOrc", "OpenParquet")
    operands = [node.left, *node.comparators] if isinstance(node, ast.Compare) else []
    return any(re.search(r"(^|[ (.])(PARQUET|ORC|INDEXABLE)\b|'(parquet|orc)'$", ast.unparse(one)) for one in operands)


def counted(package: Path) -> dict[str, int]:
    """Each figure by its name."""
    count: Counter[str] = Counter()
    bases: dict[str, list[str]] = {}
    public = public_names(package)
    for path in sorted(package.rglob("*.py")):
        room = path.relative_to(package).parts[0]
        in_cli, in_formats = room == "cli", room in ("data_files", "parquet", "orc")
        count["code lines"] += code_lines(path)
        for node in ast.walk(tree_of(path)):
            count["statements"] += isinstance(node, ast.stmt) and not is_text(node)
            count["questions for the format"] += not in_formats and asks_for_the_format(node)
            if isinstance(node, ast.ClassDef):
                count["classes"] += 1
                bases[node.name] = [ast.unparse(base).split("[")[0] for base in node.bases]
            elif isinstance(node, ast.keyword):
                own = getattr(node.value, "id", None), getattr(node.value, "attr", None)
                count["arguments passed on"] += node.arg is not None and node.arg in own
            elif isinstance(node, ast.Subscript):
                is_key = isinstance(node.slice, ast.Constant) and isinstance(node.slice.value, str)
                count["keys read in cli"] += in_cli and is_key and isinstance(node.value, ast.Name)
            elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                taken = parameters(node)
                types = [ast.unparse(one.annotation) for one in taken if one.annotation is not None]
                count["long functions"] += (node.end_lineno or 0) - node.lineno + 1 > LONG
                count["functions of many parameters"] += len(taken) > MANY and not in_cli and node.name not in public
                count["parameters that are Any in cli"] += types.count("Any") if in_cli else 0
                count["parameters that are Callable"] += sum("Callable" in text for text in types)
    functions = [function_in(package, module, name) for name, module in public.items() if name[0].islower()]
    verbs = [function_in(package, module, name) for name, module in commands().items()]
    count["result types"] = sum(is_result(name, bases) for name in bases)
    count["public names"] = len(public)
    count["public functions"] = sum(one is not None for one in functions)
    count["parameters of public functions"] = sum(len(parameters(one)) for one in functions if one is not None)
    count["commands"] = len(verbs)
    count["parameters of commands"] = sum(len(parameters(one)) for one in verbs if one is not None)
    return dict(count)


def is_result(name: str, bases: dict[str, list[str]], seen: frozenset[str] = frozenset()) -> bool:
    """Whether a class is ``Result`` or inherits from it."""
    others = (base for base in bases.get(name, ()) if base not in seen)
    return name == "Result" or any(is_result(base, bases, seen | {name}) for base in others)


def type_names(tree: ast.Module) -> list[str]:
    """The names of classes, and of the aliases of types at the top of a module."""
    found = [node.name for node in ast.walk(tree) if isinstance(node, ast.ClassDef)]
    for statement in tree.body:
        if isinstance(statement, ast.AnnAssign) and "TypeAlias" in ast.unparse(statement.annotation):
            found.append(ast.unparse(statement.target))
        elif isinstance(statement, ast.Assign) and isinstance(statement.value, ast.Subscript | ast.BinOp):
            found += [name for name in map(ast.unparse, statement.targets) if ALIAS.fullmatch(name)]
    return found
