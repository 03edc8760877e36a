"""Mutants: small changes of a source file, each at one place."""

from __future__ import annotations

import ast
import hashlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise

COMPARISONS = {
    "<": (">=", "<="),
    "<=": (">", "<"),
    ">": ("<=", ">="),
    ">=": ("<", ">"),
    "==": ("!=",),
    "!=": ("==",),
}
SWAPS = {
    "min": "max",
    "minimum": "maximum",
    "fmin": "fmax",
    "amin": "amax",
    "floor": "ceil",
    "argmin": "argmax",
}
SWAPS |= {b: a for a, b in SWAPS.items()} | {"all": "any", "any": "all"}
REMOVED = ("abs", "clamp", "clamp_min", "clip", "fabs", "nextafter")
# in C, by text: comments and declarations are left alone
IN_C = (
    (r"(?<=[\w)\]]) \+ (?=[\w(-])", " - ", "plus"),
    (r"(?<=[\w)\]]) - (?=[\w(])", " + ", "minus"),
    (r" \+= ", " -= ", "plus"),
    (r" > ", " <= ", "comparison"),
    (r" < (?!n;|k;)", " >= ", "comparison"),
    (r" <= ", " < ", "comparison"),
    (r" >= ", " > ", "comparison"),
    (r"\bfabs\(", "(", "call removed"),
    (r"\blo\b", "hi", "index"),
    (r"\b(\d+) \* UNIT", "0 * UNIT", "constant"),
    (r"\b1\.0\b", "-1.0", "constant"),
)


@dataclass(frozen=True)
class Mutant:
    """`start` to `end` of a file's bytes become `after`."""

    file: str
    line: int
    operator: str
    before: str
    after: str
    start: int
    end: int
    key: str

    def text(self, source: str) -> str:
        data = source.encode()
        return (data[: self.start] + self.after.encode() + data[self.end :]).decode()


def mutants(file: str, source: str) -> list[Mutant]:
    """Every mutant of a file, in the order of the file."""
    data = source.encode()
    starts = [0, *(m.end() for m in re.finditer(rb"\n", data))]
    found: dict[str, Mutant] = {}
    edits = _edits_of_c(source) if file.endswith((".c", ".h")) else _edits_of_python(source, starts)
    seen: dict[str, int] = {}
    for start, end, after, operator in sorted(edits):
        before = data[start:end].decode()
        line = data[:start].count(b"\n") + 1
        whole = data[starts[line - 1] :].split(b"\n", 1)[0].decode()
        place = f"{file}|{whole}|{start - starts[line - 1]}|{operator}|{after}"
        seen[place] = seen.get(place, 0) + 1
        # the key stays when other lines change
        key = hashlib.sha256(f"{place}|{seen[place]}".encode()).hexdigest()[:12]
        mutant = Mutant(file, line, operator, before, after, start, end, key)
        if before != after:
            found[key] = mutant
    return list(found.values())


Edit = tuple[int, int, str, str]


def _edits_of_c(source: str) -> Iterator[Edit]:
    comments = [m.span() for m in re.finditer(r"/\*.*?\*/|^#.*?$", source, re.DOTALL | re.MULTILINE)]
    for pattern, after, operator in IN_C:
        for match in re.finditer(pattern, source):
            if not any(a <= match.start() < b for a, b in comments):
                start, end = (len(source[:k].encode()) for k in match.span())
                yield start, end, after, operator


def _edits_of_python(source: str, starts: list[int]) -> Iterator[Edit]:
    tree = ast.parse(source)
    skipped = {id(n) for node in ast.walk(tree) for n in _without_meaning(node)}
    for node in ast.walk(tree):
        if id(node) not in skipped and hasattr(node, "lineno"):
            yield from _edits(node, source, starts)


def _without_meaning(node: ast.AST) -> Iterator[ast.AST]:
    """What is no behaviour: annotations, imports, what is raised, documentation."""
    parts: list[ast.AST | None] = []
    if isinstance(node, ast.FunctionDef):
        arguments = [*node.args.args, *node.args.kwonlyargs, *node.args.posonlyargs]
        parts = [node.returns, *(a.annotation for a in arguments)]
    elif isinstance(node, ast.AnnAssign):
        parts = [node.annotation]
    elif isinstance(node, (ast.Raise, ast.Import, ast.ImportFrom, ast.JoinedStr)) or _is_text(node):
        parts = [node]
    for part in parts:
        if part is not None:
            yield from ast.walk(part)


def _is_text(node: ast.AST) -> bool:
    return isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)


def _span(node: ast.AST, starts: list[int]) -> tuple[int, int]:
    line, column = getattr(node, "lineno", 1), getattr(node, "col_offset", 0)
    return starts[line - 1] + column, starts[getattr(node, "end_lineno", 1) - 1] + getattr(
        node, "end_col_offset", 0
    )


def _edits(node: ast.AST, source: str, starts: list[int]) -> Iterator[Edit]:
    start, end = _span(node, starts)
    if isinstance(node, ast.Compare):
        yield from _compared(node, source, starts)
    elif isinstance(node, ast.BinOp):
        yield from _signs(node, source, starts)
    elif isinstance(node, ast.Constant) and isinstance(node.value, int | float):
        yield from _numbers(start, end, node.value)
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.Not, ast.Invert)):
        yield start, end, _text(node.operand, source, starts), "negation removed"
    elif isinstance(node, (ast.If, ast.While, ast.IfExp)):
        test = _span(node.test, starts)
        yield *test, f"(not ({_text(node.test, source, starts)}))", "condition negated"
    elif isinstance(node, ast.Call):
        yield from _calls(node, source, starts)
    elif isinstance(node, (ast.AugAssign, ast.Expr)) or _updates(node):
        yield start, end, "pass", "statement dropped"


def _text(node: ast.AST, source: str, starts: list[int]) -> str:
    start, end = _span(node, starts)
    return source.encode()[start:end].decode()


def _compared(node: ast.Compare, source: str, starts: list[int]) -> Iterator[Edit]:
    for left, right in pairwise([node.left, *node.comparators]):
        first, last = _span(left, starts)[1], _span(right, starts)[0]
        between = source.encode()[first:last].decode()
        for after in COMPARISONS.get(between.strip(), ()):
            yield first, last, between.replace(between.strip(), after), "comparison"


def _signs(node: ast.BinOp, source: str, starts: list[int]) -> Iterator[Edit]:
    first, last = _span(node.left, starts)[1], _span(node.right, starts)[0]
    between = source.encode()[first:last].decode()
    for a, b in (("+", "-"), ("-", "+"), ("*", "/"), ("&", "|"), ("|", "&")):
        if between.strip() == a:
            yield first, last, between.replace(a, b), "arithmetic"


def _numbers(start: int, end: int, value: float) -> Iterator[Edit]:
    if isinstance(value, bool):
        yield start, end, repr(not value), "constant"
        return
    others = (value + 1, value * 2, 0) if isinstance(value, int) else (value * 2, 0.0)
    for other in dict.fromkeys(others):
        if other != value:
            yield start, end, repr(other), "constant"


def _calls(node: ast.Call, source: str, starts: list[int]) -> Iterator[Edit]:
    name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
    start, end = _span(node, starts)
    if name in SWAPS:
        stop = _span(node.func, starts)[1]
        yield stop - len(name), stop, SWAPS[name], "min and max swapped"
    if name in REMOVED and isinstance(node.func, ast.Attribute):
        module = isinstance(node.func.value, ast.Name) and node.func.value.id in ("np", "torch", "math")
        kept = node.args[0] if module and node.args else node.func.value
        yield start, end, f"({_text(kept, source, starts)})", "call removed"
    elif name in REMOVED and node.args:
        yield start, end, f"({_text(node.args[0], source, starts)})", "call removed"
    if name == "where" and len(node.args) == 3:
        a, b = (_text(n, source, starts) for n in node.args[1:])
        yield _span(node.args[1], starts)[0], _span(node.args[2], starts)[1], f"{b}, {a}", "branches swapped"


def _updates(node: ast.AST) -> bool:
    """An assignment of something that is there already: x = f(x), or an attribute."""
    if not isinstance(node, ast.Assign) or len(node.targets) != 1:
        return False
    target = ast.dump(node.targets[0]).replace("Store()", "Load()")
    return any(ast.dump(n) == target for n in ast.walk(node.value) if isinstance(n, ast.expr))
