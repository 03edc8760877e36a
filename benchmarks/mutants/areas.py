"""The trust base, and the tests that cover each part of it; patterns, so that modules may come and go."""

from __future__ import annotations

from fnmatch import fnmatch
from pathlib import Path

# what a wrong line in can make `unsat` wrong, or a witness
TRUSTED = (
    "plugins/crown/propagate/*.py",
    "plugins/crown/propagate/relax/*.py",
    "plugins/crown/reduce/*.py",
    "plugins/crown/optimise/intermediate.py",
    "plugins/crown/kernel/boxes.py",
    "plugins/crown/kernel/blocks.py",
    "plugins/crown/kernel/quadratics.py",
    "plugins/crown/kernel/*.[ch]",
    "plugins/crown/search/inputs/tensor_engine.py",
    "core/trust/referee.py",
    "core/reductions/*.py",
    "core/plugin/evidence.py",
    "core/trust/knowledge.py",
    "core/trust/conflict.py",
    "core/graph/exact.py",
    "core/graph/enclosure.py",
    "core/graph/single.py",
    "vnnlib/check.py",
    "vnnlib/exact.py",
)
# the first pattern that fits a source decides; tests that are most likely to fail come first
CROWN, CORE = "tests/plugins/crown/", "tests/core/"
CHAIN, ROUNDING = f"{CROWN}propagate/test_chain.py", f"{CROWN}propagate/test_rounding.py"
EVIDENCE = f"{CROWN}search/test_evidence.py"
EVERY = (f"{CROWN}test_*.py", f"{CROWN}**/test_*.py")
TESTS = (
    ("plugins/crown/propagate/chain.py", (CHAIN, ROUNDING, *EVERY)),
    ("plugins/crown/propagate/tables.py", (CHAIN, ROUNDING, *EVERY)),
    ("plugins/crown/propagate/zonotopes.py", (f"{CROWN}propagate/test_zonotopes.py", ROUNDING, *EVERY)),
    ("plugins/crown/propagate/patches.py", (f"{CROWN}propagate/test_patches.py", ROUNDING, *EVERY)),
    ("plugins/crown/propagate/images.py", (f"{CROWN}propagate/test_patches.py", ROUNDING, *EVERY)),
    ("plugins/crown/propagate/relax/*.py", (f"{CROWN}propagate/test_relax.py", ROUNDING, *EVERY)),
    ("plugins/crown/kernel/*", (f"{CROWN}kernel/test_*.py", EVIDENCE, ROUNDING, *EVERY)),
    ("plugins/crown/search/root.py", (EVIDENCE, ROUNDING, *EVERY)),
    ("plugins/crown/search/inputs/regions.py", (f"{CROWN}test_many.py", *EVERY)),
    ("plugins/crown/search/cells.py", (f"{CROWN}search/test_steps.py", f"{CROWN}test_int8.py", *EVERY)),
    ("plugins/crown/reduce/envelope.py", (f"{CROWN}reduce/test_envelope.py", *EVERY)),
    ("plugins/crown/search/inputs/*.py", (f"{CROWN}kernel/test_*.py", ROUNDING, *EVERY)),
    ("plugins/crown/reduce/*.py", (f"{CROWN}reduce/test_*.py", ROUNDING, *EVERY)),
    ("plugins/crown/*.py", (ROUNDING, f"{CROWN}test_bounds.py", *EVERY)),
    (
        "core/trust/referee.py",
        (f"{CORE}**/test_referee*.py", f"{CORE}**/test_oracle*.py", f"{CORE}testing/*.py"),
    ),
    (
        "core/reductions/*.py",
        (f"{CORE}**/test_reductions*.py", f"{CORE}encode/test_*.py", f"{CORE}testing/*.py"),
    ),
    (
        "core/plugin/evidence.py",
        (f"{CORE}**/test_evidence*.py", f"{CORE}**/test_oracle*.py", f"{CROWN}test_bounds.py"),
    ),
    (
        "core/trust/knowledge.py",
        (f"{CORE}**/test_oracle*.py", f"{CORE}**/test_merge*.py", f"{CORE}**/test_evidence*.py"),
    ),
    (
        "core/trust/conflict.py",
        (f"{CORE}trust/test_*.py", f"{CORE}**/test_oracle*.py"),
    ),
    ("core/graph/single.py", (f"{CORE}graph/test_steps.py", f"{CORE}graph/test_*.py")),
    ("core/graph/exact.py", (f"{CORE}graph/test_*.py", f"{CORE}**/test_referee*.py", f"{CORE}testing/*.py")),
    ("core/graph/*.py", (f"{CORE}graph/test_*.py", f"{CORE}**/test_referee*.py", f"{CORE}testing/*.py")),
    (
        "core/encode/*.py",
        (f"{CORE}encode/test_*.py", "tests/plugins/milp/test_*.py", "tests/plugins/smt/test_*.py"),
    ),
    (
        "core/onnx_import/*.py",
        (f"{CORE}onnx_import/test_operators.py", f"{CORE}onnx_import/test_exactness.py"),
    ),
    ("checker/*.py", ("tests/checker/test_*.py",)),
    ("plugins/milp/*.py", ("tests/plugins/milp/test_*.py",)),
    ("plugins/smt/*.py", ("tests/plugins/smt/test_*.py",)),
    ("vnnlib/*.py", ("tests/vnnlib/test_check*.py", "tests/vnnlib/test_*.py", f"{CORE}**/test_referee*.py")),
)


def trusted_files(root: Path) -> list[str]:
    """The files of the trust base that exist."""
    found = {p.relative_to(root).as_posix() for pattern in TRUSTED for p in root.glob(pattern)}
    return sorted(f for f in found if not f.endswith("__init__.py"))


def tests_of(root: Path, source: str) -> list[str]:
    """The test files that cover a source file, in the order they should run."""
    patterns = next((tests for pattern, tests in TESTS if fnmatch(source, pattern)), ())
    found = [p.relative_to(root).as_posix() for pattern in patterns for p in sorted(root.glob(pattern))]
    return list(dict.fromkeys(f for f in found if Path(f).name.startswith("test_")))
