"""Who may import whom: vnnlib only our base error, core no plugin, plugins no sibling; heavy modules are lazy."""

from __future__ import annotations

import ast
import importlib
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {"core": "verifolio", "plugins": "verifolio.plugins", "vnnlib": "verifolio.vnnlib"}
HEAVY = {"torch", "onnx", "onnxruntime", "scipy", "sklearn", "highspy", "z3", "matplotlib", "ray"}


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> Any:
    """The script that draws the graph."""
    monkeypatch.syspath_prepend(str(ROOT))
    return importlib.import_module("benchmarks.import_graph")


def sources(folder: str) -> list[Path]:
    return sorted((ROOT / folder).rglob("*.py"))


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join([FOLDERS[parts[0]], *(p for p in parts[1:] if p != "__init__")])


def imports(path: Path) -> Iterator[tuple[int, str]]:
    """Line and absolute name of everything a file imports, anywhere in it."""
    package = module_name(path).split(".")
    package = package if path.name == "__init__.py" else package[:-1]
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            name = ".".join([*base, *([node.module] if node.module else [])])
            yield node.lineno, name
            yield from ((node.lineno, f"{name}.{alias.name}") for alias in node.names)


def ours(name: str) -> bool:
    return name == "verifolio" or name.startswith("verifolio.")


def within(name: str, package: str) -> bool:
    return name == package or name.startswith(package + ".")


def test_vnnlib_stands_alone() -> None:
    """The standard library, numpy, itself, and the base of all our errors, which imports nothing."""
    allowed = set(sys.stdlib_module_names) | {"numpy"}
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources("vnnlib")
        for line, name in imports(path)
        if not within(name, "verifolio.vnnlib")
        and not within(name, "verifolio.errors")
        and name.split(".")[0] not in allowed
        and name != "verifolio"
    ]
    assert not found


def test_core_knows_no_plugin() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line}: {name}"
        for path in sources("core")
        for line, name in imports(path)
        if within(name, "verifolio.plugins")
    ]
    assert not found


MOST_MODULES = 14  # that lie directly in core; a reader should find his way by the packages
FORMER_EDGES = {("plugin", "solve")}  # the only one of a cycle that was ever allowed


def test_core_has_no_cycle(graphs: Any) -> None:
    """Between the packages of core, lazy imports and those for type checkers counted."""
    found = graphs.import_graph()
    assert len(found) > 10
    assert not graphs.cycles(graphs.settled(found))
    assert found.keys() == set(graphs.packages())


def test_edges_that_are_allowed_become_fewer(graphs: Any) -> None:
    """An edge that is gone leaves the list, and none is added to it."""
    there = {(a, b) for a, near in graphs.import_graph().items() for b in near}
    assert graphs.LEAVING <= FORMER_EDGES
    assert there >= graphs.LEAVING, "take it out of LEAVING in benchmarks/import_graph.py"


def test_a_cycle_would_be_found(graphs: Any) -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a"}, "d": {"a"}, "e": set()}
    assert graphs.cycles(graph) == [{"a", "b", "c"}]
    assert graphs.cycles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []
    assert graphs.without_implied({"a": {"b", "c"}, "b": {"c"}, "c": set()})["a"] == {"b"}


def test_the_drawing_is_up_to_date(graphs: Any) -> None:
    drawn = (ROOT / "docs/explanation/imports.md").read_text(encoding="utf-8")
    assert drawn == graphs.page(), "run `python benchmarks/import_graph.py`"


def test_few_modules_lie_directly_in_core() -> None:
    assert len(list((ROOT / "core").glob("*.py"))) <= MOST_MODULES


def test_core_imports_no_public_names() -> None:
    """They would hide an edge: what core imports from the root are packages."""
    packages = {p.stem for p in (ROOT / "core").iterdir()} | {"vnnlib"}
    found = [
        f"{path.relative_to(ROOT)}:{node.lineno}: {alias.name}"
        for path in sources("core")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and node.module == "verifolio"
        for alias in node.names
        if alias.name not in packages
    ]
    assert not found


def test_plugins_know_no_sibling() -> None:
    found = []
    for path in sources("plugins"):
        own = ".".join(module_name(path).split(".")[:3])
        for line, name in imports(path):
            if within(name, "verifolio.plugins") and name != "verifolio.plugins" and not within(name, own):
                found.append(f"{path.relative_to(ROOT)}:{line}: {name}")
    assert not found


def part_of_crown(name: str) -> str | None:
    """The package of the crown plugin that a module belongs to, or the module itself where it is in none."""
    parts = name.split(".")[3:]
    if not within(name, "verifolio.plugins.crown") or not parts:
        return None
    depth = 2 if (ROOT / "plugins" / "crown").joinpath(*parts[:2], "__init__.py").is_file() else 1
    return ".".join(parts[: min(depth, len(parts))])


def crown_imports() -> dict[str, set[str]]:
    """Which part of crown imports which others, imports for types and inside functions included."""
    found: dict[str, set[str]] = {}
    for path in sources("plugins/crown"):
        part = part_of_crown(module_name(path))
        if part is not None:
            found.setdefault(part, set()).update(
                other for _, name in imports(path) if (other := part_of_crown(name)) not in (None, part)
            )
    return found


def test_packages_of_crown_form_no_cycle() -> None:
    left = {part: set(others) for part, others in crown_imports().items()}
    while left:
        free = {part for part, others in left.items() if not others & left.keys()}
        assert free, f"these import each other: {sorted(left)}"
        left = {part: others for part, others in left.items() if part not in free}


def test_crown_has_few_modules_beside_its_packages() -> None:
    assert len(list((ROOT / "plugins" / "crown").glob("*.py"))) <= 14


def is_number(value: ast.expr) -> bool:
    """A literal number, or one computed from literals."""
    if isinstance(value, ast.Constant):
        return isinstance(value.value, int | float) and not isinstance(value.value, bool)
    if isinstance(value, ast.UnaryOp):
        return is_number(value.operand)
    if isinstance(value, ast.BinOp):
        return is_number(value.left) and is_number(value.right)
    return isinstance(value, ast.Tuple) and any(map(is_number, value.elts))


NEUTRAL = (
    "0",
    "0.0",
    "1",
    "1.0",
    "-1",
    "(1, 1)",
    "(0, 0)",
    "(0, 0, 0, 0)",
)  # nothing, one, unchanged: no choice
ALGORITHMS = (
    *(f"core/{name}/" for name in ("attacks", "certificates", "graph", "reductions", "solve", "trust")),
    *(f"plugins/{name}/" for name in ("attack", "crown", "milp", "pointwise_lp", "smt", "training/regimes")),
)  # where defaults of classes and numbers of settings are parameters of methods


def is_setting(value: ast.expr) -> bool:
    """Numbers with a name: Round(8, 60), Effort(steps=8)."""
    parts = [*value.args, *(k.value for k in value.keywords)] if isinstance(value, ast.Call) else []
    return any(map(is_number, parts)) and ast.unparse(parts[0]) not in NEUTRAL


def constants(path: Path, body: list[ast.stmt]) -> Iterator[ast.Assign | ast.AnnAssign]:
    """Numbers of a module; where algorithms are, also settings and what the classes have that is not neutral."""
    algorithms = str(path.relative_to(ROOT)).startswith(ALGORITHMS)
    for node in body:
        if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None:
            if is_number(node.value) or (algorithms and is_setting(node.value)):
                yield node
        elif isinstance(node, ast.ClassDef) and algorithms:
            inside = constants(path, node.body)
            yield from (n for n in inside if n.value is not None and ast.unparse(n.value) not in NEUTRAL)


def silent_constants(path: Path) -> list[int]:
    """Lines of numbers with a comment neither beside nor above them; options say in their help what they are."""
    text = path.read_text(encoding="utf-8")
    lines, found = text.splitlines(), []
    for node in constants(path, ast.parse(text).body):
        if "described(" not in ast.unparse(node):
            beside = "\n".join(lines[node.lineno - 1 : node.end_lineno])
            above = lines[node.lineno - 2].lstrip() if node.lineno > 1 else ""
            if "#" not in beside and not above.startswith("#"):
                found.append(node.lineno)
    return found


def test_every_constant_has_a_reason() -> None:
    """A comment beside it or above it."""
    found = [
        f"{path.relative_to(ROOT)}:{line}"
        for path in [*sources("core"), *sources("plugins")]
        for line in silent_constants(path)
    ]
    assert not found


def test_core_names_no_verifier() -> None:
    """Generic code has no case for a backend; the default portfolio is data, and where names belong."""
    from verifolio.plugin.manager import current_plugins

    names = {
        cls.name for cls in current_plugins().verifiers if cls.__module__.startswith("verifolio.plugins")
    }
    found = []
    for path in sources("core"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Compare):
                literals = {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
                if literals & names:
                    found.append(f"{path.relative_to(ROOT)}:{node.lineno}: {literals & names}")
    assert not found


@pytest.mark.parametrize("folder", ["vnnlib", "core", "plugins"])
def test_no_forbidden_constructs(folder: str) -> None:
    """What a reader of this code should never have to look for."""
    found = []
    for path in sources(folder):
        if path.name == "python_file.py":
            continue  # runs files of the user's own, which may import their neighbours
        for number, text in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            if any(word in text for word in ("TODO", "FIXME", "sys.path.insert", "sys.path.append", "XXX")):
                found.append(f"{path.relative_to(ROOT)}:{number}: {text.strip()}")
    assert not found


PRODUCT = ["vnnlib", "core", "plugins", "checker"]
MOST_LINES, MOST_OF_OTHERS = 400, 450  # of a file of the product, and of one that measures or shows it
LONGEST, USUAL = 60, 25  # lines of any function, and of 95 in 100


def functions(folder: str) -> list[tuple[int, str]]:
    """Lines of every function, and where it is."""
    return [
        ((node.end_lineno or 0) - node.lineno + 1, f"{path.relative_to(ROOT)}:{node.lineno}: {node.name}")
        for path in sources(folder)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]


@pytest.mark.parametrize("folder", [*PRODUCT, "examples", "benchmarks"])
def test_files_and_functions_stay_small(folder: str) -> None:
    most = MOST_LINES if folder in PRODUCT else MOST_OF_OTHERS
    sizes = {p: len(p.read_text(encoding="utf-8").splitlines()) for p in sources(folder)}
    assert not [f"{path.relative_to(ROOT)}: {size} lines" for path, size in sizes.items() if size > most]
    assert not [f"{where} has {lines} lines" for lines, where in functions(folder) if lines > LONGEST]


@pytest.mark.parametrize("folder", PRODUCT)
def test_nearly_all_functions_are_short(folder: str) -> None:
    lines = sorted(length for length, _ in functions(folder))
    assert lines[int(0.95 * len(lines))] <= USUAL


@pytest.mark.parametrize("folder", ["vnnlib", "core", "plugins"])
def test_every_module_says_what_it_is(folder: str) -> None:
    silent = [p for p in sources(folder) if not ast.get_docstring(ast.parse(p.read_text(encoding="utf-8")))]
    assert not silent


@pytest.mark.parametrize(
    "statement", ["import verifolio", "import verifolio.cli.main", "import verifolio.vnnlib"]
)
def test_imports_are_light(statement: str) -> None:
    """A command that only prints help does not load torch; `verifolio.vnnlib` needs no part of core."""
    code = f"import sys; {statement}; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    modules = {name.split(".")[0] for name in loaded.stdout.split()}
    assert not modules & HEAVY


def test_available_is_light() -> None:
    """Asking every plugin whether it can be used imports no backend."""
    code = (
        "import sys; from verifolio.plugin.manager import current_plugins; p = current_plugins()\n"
        "for r in (p.verifiers, p.bounders, p.properties, p.estimators, p.executors, p.datasets):\n"
        "    for c in r: r.unavailable(c.name)\n"
        "print(*sys.modules)"
    )
    loaded = subprocess.run([sys.executable, "-P", "-c", code], capture_output=True, text=True, check=True)
    modules = {name.split(".")[0] for name in loaded.stdout.split()}
    assert not modules & {"highspy", "z3", "gurobipy", "ray", "maraboupy", "sklearn"}


def packages_imported() -> dict[str, set[str]]:
    """By package of core the other packages of core that it imports anywhere, also lazily and for types only."""
    names = {p.name for p in (ROOT / "core").iterdir() if (p / "__init__.py").is_file()} - {"testing", "cli"}
    found: dict[str, set[str]] = {name: set() for name in names}
    for path in sources("core"):
        own = module_name(path).split(".")[1:2]
        if not own or own[0] not in names:
            continue
        for _, name in imports(path):
            parts = name.split(".")
            if parts[0] == "verifolio" and len(parts) > 1 and parts[1] in names - set(own):
                found[own[0]].add(parts[1])
    return found


def test_imports_between_packages_of_core_go_one_way() -> None:
    """No package reaches itself; above all, estimators do not know the oracle that decides their queries."""
    imported = packages_imported()
    for start in imported:
        reached, todo = set[str](), [start]
        while todo:
            new = imported[todo.pop()] - reached
            reached |= new
            todo += new
        assert start not in reached
    assert "solve" not in imported["plugin"] | imported["properties"]
