"""Promises of the architecture that can be read off the code: one door, one word per thing, no special names."""

from __future__ import annotations

import ast
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from verifolio.plugin.manager import current_plugins

ROOT = Path(__file__).resolve().parent.parent
ESTIMATING = (
    "distribution",
    "ensemble",
    "measure",
    "training",
    "bench",
    "report",
    "studies",
)  # plugins that ask the oracle
JUDGING = {"judge_counterexample", "replay", "confirm", "run_networks", "refuting_candidates"}
ONE_MEANING = (
    "Form",
    "Step",
    "Result",
    "Status",
    "Ledger",
    "Answer",
    "Claim",
    "Closest",
    "Limits",
    "Member",
    "NoOptions",
    "Oracle",
    "Query",
    "Settings",
)
# where the literature has words: box tree, root, frontier, worker threads, attack, candidates
METAPHORS = re.compile(r"\b(plant|trunk|uproot|crew|pile|assault|suspects?|accusation)\b", re.IGNORECASE)
MOST_PARAMETERS = 11  # of any function; the oracle's settings are the public exception
MOST_IN_A_TUPLE = 5  # values without names


def files(*folders: str) -> list[Path]:
    return sorted(p for folder in folders for p in (ROOT / folder).rglob("*.py"))


@cache
def parsed(path: Path) -> list[ast.AST]:
    """Every node of a file."""
    return list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))


def nodes(*folders: str) -> Iterator[tuple[str, ast.AST]]:
    """Every node of the code, with its place."""
    for path in files(*folders):
        name = str(path.relative_to(ROOT))
        yield from ((f"{name}:{getattr(node, 'lineno', 0)}", node) for node in parsed(path))


def test_plugins_use_no_private_part_of_the_oracle() -> None:
    found = [
        f"{where}: {node.attr}"
        for where, node in nodes("plugins")
        if isinstance(node, ast.Attribute)
        and (node.attr[0] == "_" or node.attr in ("executor", "knowledge", "settings"))
        and ast.unparse(node.value).split(".")[-1] == "oracle"
    ]
    assert not found


def test_who_asks_the_oracle_judges_and_runs_nothing_itself() -> None:
    """No referee and no job of their own; `ensemble` has a verifier, whose attacks are a worker's."""
    found = []
    for name in ESTIMATING:
        for where, node in nodes(f"plugins/{name}"):
            if isinstance(node, ast.ImportFrom):
                names = {alias.name for alias in node.names}
                job = node.module == "verifolio.run" and "Job" in names
                if names & JUDGING or job or node.module == "verifolio.plugin.executor":
                    found.append(f"{where}: {ast.unparse(node)}")
    assert not found


def test_there_is_one_plugin_manager() -> None:
    made = [w for w, n in nodes("core", "plugins") if isinstance(n, ast.Call) and _named(n, "PluginManager")]
    assert len(made) == 1


def _named(call: ast.Call, name: str) -> bool:
    return ast.unparse(call.func).split(".")[-1] == name


def test_no_search_is_known_by_its_name() -> None:
    """A search of another package is as good as ours; a default may be named."""
    ours = {"bracket", "binary", "k-binary", "closest"}
    assert ours <= {c.name for c in current_plugins().estimators}
    found = [
        f"{where}: {ast.unparse(node)}"
        for where, node in nodes("core", "plugins")
        if isinstance(node, ast.Compare | ast.MatchValue)
        and ours & {c.value for c in ast.walk(node) if isinstance(c, ast.Constant)}
    ]
    assert not found


def test_a_refusal_is_no_prefix_of_a_text() -> None:
    found = [
        f"{where}: {ast.unparse(node)}"
        for where, node in nodes("core", "plugins")
        if isinstance(node, ast.Call) and _named(node, "startswith") and "refus" in ast.unparse(node)
    ]
    assert not found


def test_a_word_names_one_class() -> None:
    """Of core and the plugins; the checker and `vnnlib` stand alone."""
    made = Counter(n.name for _, n in nodes("core", "plugins") if isinstance(n, ast.ClassDef))
    assert {word: made[word] for word in ONE_MEANING if made[word] > 1} == {}


def test_functions_take_few_values_and_tuples_hold_few() -> None:
    found = []
    for where, node in nodes("core", "plugins", "vnnlib"):
        if isinstance(node, ast.FunctionDef) and where.split(":")[0] != "core/solve/oracle.py":
            count = len(node.args.args) + len(node.args.kwonlyargs)
            found += [f"{where}: {node.name} takes {count}"] if count > MOST_PARAMETERS else []
        if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Tuple):
            long = ast.unparse(node.value) == "tuple" and len(node.slice.elts) > MOST_IN_A_TUPLE
            found += [f"{where}: {ast.unparse(node)}"] if long else []
    assert not found


def test_no_metaphor_where_the_literature_has_a_word() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in files("core", "plugins", "vnnlib", "checker")
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1)
        if METAPHORS.search(line)
    ]
    assert not found


def test_the_readme_claims_no_more_than_the_contract() -> None:
    """Proofs of verifiers are trusted, attacked by a second look, and checked only as certificates."""
    assert "no answer is believed" not in (ROOT / "README.md").read_text(encoding="utf-8").lower()
