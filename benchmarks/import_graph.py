"""Who imports whom in core, drawn in docs/explanation/imports.md: `python benchmarks/import_graph.py` writes it.

The packages of core are nodes, and so are the modules that lie directly in it; every import counts, those inside
functions and those for type checkers too. An edge that follows from others is left out of the drawing.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
CORE, PAGE = ROOT / "core", ROOT / "docs/explanation/imports.md"
PUBLIC = ("__init__", "__main__")  # the front doors, which may import anything
# Edges that make a cycle and are being removed: the oracle in the signature of an estimator. May only shrink.
LEAVING: set[tuple[str, str]] = set()
Graph = Mapping[str, set[str]]
TEXT = """# Who imports whom

The packages of `core/` and the modules directly in it. An arrow leads from who imports to who is imported; imports
inside functions and for type checkers count, and arrows that follow from others are left out. There is no cycle
(`tests/test_layering.py`). `verifolio.vnnlib` stands alone, plugins import core and no sibling, core no plugin.
This page is written by `python benchmarks/import_graph.py`.

```mermaid
graph TD
{edges}
```
"""


def imported(path: Path) -> Iterator[str]:
    """Absolute names of everything of ours that a file imports, anywhere in it."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.level > 1:
            raise SyntaxError(f"{path}:{node.lineno}: core imports other packages by their whole names")


def packages() -> list[str]:
    """The nodes: packages of core, and modules that lie directly in it."""
    found = [p.name for p in CORE.iterdir() if (p / "__init__.py").is_file()]
    return sorted([*found, *(p.stem for p in CORE.glob("*.py") if p.stem not in PUBLIC)])


def import_graph() -> dict[str, set[str]]:
    """For every package of core the others that it imports."""
    names = packages()
    graph: dict[str, set[str]] = {name: set() for name in names}
    for path in CORE.rglob("*.py"):
        parts = path.relative_to(CORE).with_suffix("").parts
        if parts[0] in PUBLIC:
            continue
        for name in imported(path):
            words = name.split(".")
            if words[0] == "verifolio" and len(words) > 1 and words[1] in names and words[1] != parts[0]:
                graph[parts[0]].add(words[1])
    return graph


def reachable(graph: Graph, start: str) -> set[str]:
    """What can be reached by at least one edge."""
    found: set[str] = set()
    waiting = list(graph[start])
    while waiting:
        name = waiting.pop()
        if name not in found:
            found.add(name)
            waiting += graph[name]
    return found


def cycles(graph: Graph) -> list[set[str]]:
    """The sets of packages that reach each other."""
    reach = {name: reachable(graph, name) for name in graph}
    found: list[set[str]] = []
    for name in graph:
        together = {other for other in reach[name] if name in reach[other]}
        if together and together not in found:
            found.append(together)
    return found


def without_implied(graph: Graph) -> dict[str, set[str]]:
    """The same without edges that follow from others; only for graphs without a cycle."""
    return {
        name: {n for n in near if not any(n in reachable(graph, m) for m in near - {n})}
        for name, near in graph.items()
    }


def drawing(graph: Graph) -> str:
    """The page."""
    edges = [f"  {a} --> {b}" for a, near in sorted(graph.items()) for b in sorted(near)]
    return TEXT.format(edges="\n".join(edges))


def settled(graph: Graph) -> dict[str, set[str]]:
    """The graph without the edges that are being removed."""
    return {a: {b for b in near if (a, b) not in LEAVING} for a, near in graph.items()}


def page() -> str:
    """What docs/explanation/imports.md should be."""
    return drawing(without_implied(settled(import_graph())))


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
