"""Files, classes and functions stay small enough to read in one go."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "features",
    "foundation",
    "kernels",
    "loadtests",
    "precompute",
    "ranking",
    "services",
    "tests",
)
MAX_FILE_LINES = 500
MAX_CLASS_LINES = 250
MAX_FUNCTION_LINES = 50
MAX_README_LINES = 200
FORBIDDEN_NAMES = {"utils", "util", "common", "helpers", "helper", "base", "misc"}


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def code_lines(node: ast.AST) -> int:
    """Lines of a definition without its docstring and decorators."""
    assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
    end = node.end_lineno or node.lineno
    doc = node.body[0] if ast.get_docstring(node, clean=False) else None
    return end - node.lineno + 1 - ((doc.end_lineno or 0) - doc.lineno + 1 if doc else 0)


@pytest.mark.parametrize("path", list(sources()), ids=lambda p: str(p.relative_to(ROOT)))
def test_a_source_file_stays_within_the_size_limits(path: Path) -> None:
    text = path.read_text(encoding="utf-8")
    too_long = []
    if text.count("\n") > MAX_FILE_LINES:
        too_long.append(f"{path}: {text.count(chr(10))} lines, limit {MAX_FILE_LINES}")
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.ClassDef):
            limit = MAX_CLASS_LINES
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            limit = MAX_FUNCTION_LINES
        else:
            continue
        if code_lines(node) > limit:
            too_long.append(f"{path}:{node.lineno} {node.name}: {code_lines(node)} > {limit}")
    assert not too_long, "\n".join(too_long)


def test_no_folder_or_file_is_named_for_nothing_in_particular() -> None:
    names = {part for path in sources() for part in path.relative_to(ROOT).with_suffix("").parts}
    assert not names & FORBIDDEN_NAMES


def test_the_readme_stays_short() -> None:
    assert len((ROOT / "README.md").read_text().splitlines()) <= MAX_README_LINES
