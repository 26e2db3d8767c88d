"""Single changes to a module that one of its tests should notice.

A change replaces a few bytes of the source, so that everything around it stays as it is
written. Nothing is changed in docstrings, annotations, decorators, protocols, logging,
rehearsals, and the texts and hints of errors: they are not data.
"""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from itertools import pairwise
from pathlib import Path

_COMPARE: dict[type[ast.cmpop], tuple[str, str]] = {
    ast.Lt: (r"<", "<="),
    ast.LtE: (r"<=", "<"),
    ast.Gt: (r">", ">="),
    ast.GtE: (r">=", ">"),
    ast.Eq: (r"==", "!="),
    ast.NotEq: (r"!=", "=="),
    ast.Is: (r"\bis\b", "is not"),
    ast.IsNot: (r"\bis\s+not\b", "is"),
    ast.In: (r"\bin\b", "not in"),
    ast.NotIn: (r"\bnot\s+in\b", "in"),
}
_ARITHMETIC: dict[type[ast.operator], tuple[str, str]] = {
    ast.Add: (r"\+", "-"),
    ast.Sub: (r"-", "+"),
    ast.Mult: (r"\*", "//"),
    ast.FloorDiv: (r"//", "*"),
    ast.Mod: (r"%", "//"),
    ast.LShift: (r"<<", ">>"),
    ast.RShift: (r">>", "<<"),
    ast.BitAnd: (r"&", "|"),
    ast.BitOr: (r"\|", "&"),
    ast.BitXor: (r"\^", "|"),
}
_OPPOSITE = {"min": "max", "max": "min", "any": "all", "all": "any"}
_EXACT_OPPOSITE = (ast.Eq, ast.NotEq, ast.Is, ast.IsNot, ast.In, ast.NotIn)
_TEXTS = {"detail", "hint", "message", "text", "title", "what", "words", "wrong"}
"""Names of what people read, as variables and as arguments of errors."""
_FOR_PEOPLE = {"__repr__", "__str__"}
_REHEARSALS = {"preload", "_read_sample"}
"""Functions that have libraries load and start threads: nobody reads the data they make up."""
_LOGS = {"debug", "info", "warning", "exception"}
_KEPT_ORDER = {"isinstance", "issubclass", "getattr", "hasattr", "setattr", "cast", "TypeVar"}
_EITHER_ORDER = {"min", "max", "gcd", "minimum", "maximum"}
_EXCHANGED = (ast.Name, ast.Attribute, ast.Subscript, ast.BinOp)
_LONGEST = 90
"""Characters of source that a change is shown in."""


@dataclass(frozen=True, slots=True)
class Change:
    """A change, and where it is."""

    module: str
    place: str
    """Qualified name of the function or class it is in; empty for the module itself."""
    line: int
    before: str
    after: str
    nth: int
    """Which of the changes in this place that read the same, from 1."""
    start: int
    stop: int
    new: bytes
    """What bytes start to stop of the file become."""

    def apply(self, source: bytes) -> bytes:
        """The changed module."""
        return source[: self.start] + self.new + source[self.stop :]

    def rank(self, seed: int) -> bytes:
        """A number drawn for it, which edits elsewhere and a move of the file leave alone."""
        parts = (str(seed), Path(self.module).stem, self.place, self.before, self.after)
        return blake2b("\0".join((*parts, str(self.nth))).encode()).digest()

    def __str__(self) -> str:
        where = f"{self.module}:{self.line}"
        return f"{where} ({self.place or 'module'})\n    {self.before}\n    {self.after}"


def changes_of(
    module: str, source: bytes, only: Container[tuple[str, str, str]] | None = None
) -> list[Change]:
    """Every change of a module that still compiles, in the order of its lines.

    Args:
        module: its path.
        source: its text.
        only: place, code before and code after of the changes to find; None: all.
    """
    finder = _Finder(source)
    finder.visit(ast.parse(source))
    counts: Counter[tuple[str, str, str]] = Counter()
    found = []
    for node, start, stop, new in sorted(finder.found, key=lambda each: each[1:]):
        place, low, high = finder.shown[node]
        before = _one_line(source[low:high])
        after = _one_line(source[low:start] + new + source[stop:high])
        if only is not None and (place, before, after) not in only:
            continue
        try:
            compile(source[:start] + new + source[stop:], module, "exec")
        except SyntaxError:
            continue
        counts[place, before, after] += 1
        nth = counts[place, before, after]
        line = source.count(b"\n", 0, start) + 1
        found.append(Change(module, place, line, before, after, nth, start, stop, new))
    return found


def _one_line(source: bytes) -> str:
    return " ".join(source.decode().split())


class _Finder(ast.NodeVisitor):
    """Collects (node, first byte, byte after the last, what they become)."""

    def __init__(self, source: bytes) -> None:
        self._source = source
        self._lines = [0]
        for line in source.splitlines(keepends=True):
            self._lines.append(self._lines[-1] + len(line))
        self._places: list[str] = []
        self._above: list[ast.AST] = []
        self.found: list[tuple[ast.AST, int, int, bytes]] = []
        self.shown: dict[ast.AST, tuple[str, int, int]] = {}
        """Where a changed node is, and the bytes to show it with."""

    # -- places in the source --------------------------------------------------------

    def _span(self, node: ast.AST) -> tuple[int, int]:
        assert isinstance(node, ast.expr | ast.stmt)
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        start = self._lines[node.lineno - 1] + node.col_offset
        return start, self._lines[node.end_lineno - 1] + node.end_col_offset

    def _text(self, node: ast.AST) -> str:
        start, stop = self._span(node)
        return self._source[start:stop].decode()

    def _add(self, node: ast.AST, new: str, span: tuple[int, int] | None = None) -> None:
        start, stop = span or self._span(node)
        if self._source[start:stop].decode() == new:
            return
        self.found.append((node, start, stop, new.encode()))
        if node not in self.shown:
            self.shown[node] = (".".join(self._places), *self._wide(node))

    def _wide(self, node: ast.AST) -> tuple[int, int]:
        """The longest expression or simple statement around a node that fits on a line."""
        widest = self._span(node)
        for above in reversed(self._above):
            if not isinstance(above, ast.expr | ast.stmt) or hasattr(above, "body"):
                if isinstance(above, ast.IfExp | ast.Lambda):
                    continue
                if isinstance(above, ast.stmt):
                    break
                continue
            start, stop = self._span(above)
            if len(_one_line(self._source[start:stop])) > _LONGEST:
                break
            widest = start, stop
        return widest

    def _between(self, left: ast.AST, right: ast.AST, pattern: str, new: str) -> None:
        """Replace the operator between two operands."""
        parent = self._above[-1]
        begin, end = self._span(left)[1], self._span(right)[0]
        match = re.search(pattern, self._source[begin:end].decode())
        if match:
            span = (begin + match.start(), begin + match.end())
            self._add(parent, new, span)

    # -- what is left alone ----------------------------------------------------------

    def visit(self, node: ast.AST) -> None:
        if isinstance(node, ast.JoinedStr | ast.Assert | ast.Import | ast.ImportFrom):
            return
        if isinstance(node, ast.pattern):
            return
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            return
        named = isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef)
        if named:
            self._places.append(node.name)  # type: ignore[attr-defined]
        super().visit(node)
        if named:
            self._places.pop()

    def generic_visit(self, node: ast.AST) -> None:
        self._all(node, ast.iter_child_nodes(node))

    def _all(self, parent: ast.AST, nodes: Iterable[ast.AST | None]) -> None:
        self._above.append(parent)
        for node in nodes:
            if node is not None:
                self.visit(node)
        self._above.pop()

    def visit_ClassDef(self, node: ast.ClassDef) -> None:
        if any("Protocol" in ast.dump(base) for base in node.bases):
            return
        self._all(node, node.body)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name not in _FOR_PEOPLE | _REHEARSALS:
            self._all(node, [*node.args.defaults, *node.args.kw_defaults, *node.body])

    def visit_AsyncFunctionDef(self, node: ast.AsyncFunctionDef) -> None:
        self._all(node, [*node.args.defaults, *node.args.kw_defaults, *node.body])

    # -- statements ------------------------------------------------------------------

    def visit_Expr(self, node: ast.Expr) -> None:
        call = node.value
        if isinstance(call, ast.Constant) or _logs(call):
            return
        self._add(node, "pass")
        self.generic_visit(node)

    def visit_Raise(self, node: ast.Raise) -> None:
        self._add(node, "pass")
        if isinstance(node.exc, ast.Call):
            self._error(node.exc)

    def _error(self, call: ast.Call) -> None:
        """Where an error is, not what it is called or says."""
        places = [k.value for k in call.keywords if k.arg in {"offset", "event", "file"}]
        self._all(call, places)

    def visit_Return(self, node: ast.Return) -> None:
        value = node.value
        if value is None:
            return
        if isinstance(value, ast.Call) and _makes_error(value):
            self._error(value)
            return
        if not isinstance(value, ast.Constant):
            self._add(node, "return None")
        self.generic_visit(node)

    def visit_Assign(self, node: ast.Assign) -> None:
        names = {target.id for target in node.targets if isinstance(target, ast.Name)}
        if names & (_TEXTS | {"__all__"}):
            return
        if any(isinstance(target, ast.Attribute | ast.Subscript) for target in node.targets):
            self._add(node, "pass")
        self._all(node, [node.value])

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        # A declared attribute is always read later: that it goes is noticed at once.
        if not (isinstance(node.target, ast.Name) and node.target.id in _TEXTS):
            self._all(node, [node.value])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        self._add(node, "pass")
        pattern, new = _ARITHMETIC.get(type(node.op), ("", ""))
        if pattern and not _is_text(node.value):
            begin, end = self._span(node.target)[1], self._span(node.value)[0]
            match = re.search(f"({pattern})=", self._source[begin:end].decode())
            if match:
                span = (begin + match.start(1), begin + match.end(1))
                self._add(node, new, span)
        self._all(node, [node.value])

    def visit_Delete(self, node: ast.Delete) -> None:
        self._add(node, "pass")

    def visit_Break(self, node: ast.Break) -> None:
        self._add(node, "continue")

    def visit_Continue(self, node: ast.Continue) -> None:
        self._add(node, "break")

    # -- conditions ------------------------------------------------------------------

    def visit_If(self, node: ast.If) -> None:
        self._condition(node, node.test)

    def visit_While(self, node: ast.While) -> None:
        self._condition(node, node.test)

    def visit_IfExp(self, node: ast.IfExp) -> None:
        self._condition(node, node.test)

    def visit_comprehension(self, node: ast.comprehension) -> None:
        self._above.append(node)
        for test in node.ifs:
            self._negate(test)
        self._above.pop()
        self.generic_visit(node)

    def _condition(self, node: ast.AST, test: ast.expr) -> None:
        self._above.append(node)
        self._negate(test)
        self._above.pop()
        self.generic_visit(node)

    def _negate(self, test: ast.expr) -> None:
        if isinstance(test, ast.Constant | ast.UnaryOp):
            return
        if isinstance(test, ast.Compare) and isinstance(test.ops[0], _EXACT_OPPOSITE):
            return
        self._add(test, f"not ({self._text(test)})")

    # -- expressions -----------------------------------------------------------------

    def visit_Compare(self, node: ast.Compare) -> None:
        operands = [node.left, *node.comparators]
        self._above.append(node)
        for op, (left, right) in zip(node.ops, pairwise(operands), strict=True):
            self._between(left, right, *_COMPARE[type(op)])
        self._above.pop()
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        old, new = ("and", "or") if isinstance(node.op, ast.And) else ("or", "and")
        self._above.append(node)
        for left, right in pairwise(node.values):
            self._between(left, right, rf"\b{old}\b", new)
        self._above.pop()
        for left_out in node.values:
            rest = [self._text(value) for value in node.values if value is not left_out]
            self._add(node, f"({f' {old} '.join(f'({text})' for text in rest)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not | ast.USub | ast.Invert):
            self._add(node, f"({self._text(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (_is_text(node.left) or _is_text(node.right)) and type(node.op) in _ARITHMETIC:
            self._above.append(node)
            self._between(node.left, node.right, *_ARITHMETIC[type(node.op)])
            self._above.pop()
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, "0" if node.value == 1 else str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        if _logs(node):
            return
        if _makes_error(node):
            self._error(node)
            return
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in _OPPOSITE:
            self._add(node.func, _OPPOSITE[name])
        self._swap(node)
        # Whether lengths are compared is a guard against ourselves.
        named = [k.value for k in node.keywords if k.arg not in {"strict", *_TEXTS}]
        self._all(node, [node.func, *node.args, *named])

    def _swap(self, node: ast.Call) -> None:
        """Exchange the first two arguments, if they may be of one kind."""
        name = ast.unparse(node.func)
        if name.rpartition(".")[2] in _KEPT_ORDER | _EITHER_ORDER or len(node.args) < 2:
            return
        one, two = node.args[:2]
        alike = all(isinstance(arg, _EXCHANGED) for arg in (one, two))
        if not alike or ast.dump(one) == ast.dump(two) or "np.dtype" in ast.unparse(node):
            return
        (start, stop), (low, high) = self._span(one), self._span(two)
        middle = self._source[stop:low].decode()
        self._above.append(node)
        self._add(node, f"{self._text(two)}{middle}{self._text(one)}", (start, high))
        self._above.pop()


def _is_text(node: ast.expr) -> bool:
    return isinstance(node, ast.JoinedStr) or (
        isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    )


def _logs(node: ast.expr) -> bool:
    return (
        isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in _LOGS
        and "log" in ast.unparse(node.func.value).lower()
    )


def _makes_error(node: ast.Call) -> bool:
    return ast.unparse(node.func).endswith("Error")


def sample(changes: Iterable[Change], count: int, seed: int) -> list[Change]:
    """So many changes, at least one of each module; an edit replaces only those it touches."""
    ranked = sorted(changes, key=lambda change: change.rank(seed))
    firsts: dict[str, Change] = {}
    for change in ranked:
        firsts.setdefault(change.module, change)
    chosen = list(firsts.values())[:count]
    rest = _without(ranked, set(chosen))
    chosen += [change for change, _ in zip(rest, range(count - len(chosen)), strict=False)]
    return sorted(chosen, key=lambda change: (change.module, change.line, change.start))


def _without(changes: Iterable[Change], some: set[Change]) -> Iterator[Change]:
    return (change for change in changes if change not in some)
