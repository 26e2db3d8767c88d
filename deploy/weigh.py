"""Count the code of the product by room, and check it and its files against ceilings.

A line of code is one with something on it besides comments and docstrings. Modules that
``unasync.py`` writes are not counted. Growth beyond the ceiling is a decision: raise it in the
change that needs it, and say there what the lines are for.
"""

from __future__ import annotations

import ast
import io
import runpy
import statistics
import sys
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
LINES, FILES = 84_584, 646
"""The ceiling."""
LONGEST = 450
"""Lines of a file, of any kind."""
_NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT),
    *(tokenize.ENCODING, tokenize.ENDMARKER),
}


def modules() -> Iterator[Path]:
    """Yield the modules that people write."""
    unasync = runpy.run_path(str(ROOT / "deploy" / "unasync.py"))
    generated = {unasync["CLIENT"] / target for target in unasync["MODULES"].values()}
    for package in ("app", "core"):
        paths = (ROOT / package).rglob("*.py")
        yield from (path for path in sorted(paths) if path not in generated)


def code_lines(source: bytes, tree: ast.Module) -> set[int]:
    """Return the numbers of the lines that hold code."""
    lines: set[int] = set()
    for token in tokenize.tokenize(io.BytesIO(source).readline):
        if token.type not in _NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            lines.difference_update(range(node.lineno, (node.end_lineno or 0) + 1))
    return lines


def main() -> int:
    """Print the counts; with ``--check`` only what is above the ceiling."""
    lines: Counter[str] = Counter()
    files: Counter[str] = Counter()
    functions: list[int] = []
    too_long: list[Path] = []
    for path in modules():
        source = path.read_bytes()
        tree = ast.parse(source)
        code = code_lines(source, tree)
        room = "/".join(path.relative_to(ROOT).parts[:-1][:2])
        lines[room] += len(code)
        files[room] += 1
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
                own = code.intersection(range(node.lineno, (node.end_lineno or 0) + 1))
                functions += [len(own)]
        if source.count(b"\n") > LONGEST:
            too_long.append(path)
    total = (lines.total(), files.total())
    if sys.argv[1:] != ["--check"]:
        for room, count in sorted(lines.items()):
            print(f"{room:20} {count:7,} lines {files[room]:4} files")
        parts = statistics.quantiles(functions, n=20)
        print(f"functions: median {statistics.median(functions):.0f} lines, 95 % {parts[-1]:.0f}")
    print(f"{total[0]:,} lines of code in {total[1]} files; at most {LINES:,} in {FILES}")
    for path in too_long:
        print(f"{path.relative_to(ROOT)} has more than {LONGEST} lines")
    return int(total[0] > LINES or total[1] > FILES or bool(too_long))


if __name__ == "__main__":
    sys.exit(main())
