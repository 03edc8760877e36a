"""`verifolio plugins new NAME`: the files of a working plugin package, to be changed by its author."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, ClassVar

import typer

from verifolio.cli.bundles import WRITTEN, Bundle
from verifolio.plugin.options import described


@dataclass(frozen=True, kw_only=True)
class Where(Bundle):
    """Where the package goes."""

    panel: ClassVar[str] = WRITTEN
    directory: str = described(".", "Put the package's folder into this one.", metavar="FOLDER")


def new(
    name: Annotated[
        str, typer.Argument(metavar="NAME", help="The verifier's name: lower-case words joined by hyphens.")
    ],
    where: Where,
) -> None:
    """Write a package for a verifier of your own.

    The package has one verifier that works, its tests and its README.

    Example:
        verifolio plugins new my-verifier
    """
    from verifolio.cli.output import say

    folder = write_package(name, Path(where.directory))
    say(f"wrote {folder}")
    say(f"next: pip install -e {folder} && pytest {folder}")


def write_package(name: str, directory: Path) -> Path:
    """The files of a new package; nothing that exists is touched."""
    from verifolio.errors import InputError

    if not re.fullmatch(r"[a-z][a-z0-9]*(-[a-z0-9]+)*", name):
        raise InputError("plugins new", "lower-case words joined by hyphens", repr(name), "try my-verifier")
    folder = directory / f"verifolio-{name}"
    if folder.exists():
        raise InputError(str(folder), "no such folder yet", "one that exists", "choose another name")
    module = f"verifolio_{name.replace('-', '_')}"
    words = {"NAME": name, "MODULE": module, "CLASS": "".join(w.capitalize() for w in name.split("-"))}
    files = {
        "pyproject.toml": PYPROJECT,
        "README.md": README,
        f"{module}.py": MODULE,
        f"tests/test_{module}.py": TEST,
    }
    for path, text in files.items():
        target = folder / path
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(re.sub(r"<(NAME|MODULE|CLASS)>", lambda found: words[found[1]], text))
    return folder


PYPROJECT = """\
[build-system]
requires = ["setuptools>=77"]
build-backend = "setuptools.build_meta"

[project]
name = "verifolio-<NAME>"
version = "0.1.0"
description = "The verifier <NAME> for verifolio."
requires-python = ">=3.11"
dependencies = ["verifolio"]

[project.optional-dependencies]
test = ["pytest"]

[project.entry-points.verifolio]
<NAME> = "<MODULE>"

[tool.setuptools]
py-modules = ["<MODULE>"]
"""

README = """\
# verifolio-<NAME>

The verifier `<NAME>` for [verifolio](https://pypi.org/project/verifolio): it tries random points.

    pip install -e .
    verifolio plugins
    verifolio verify network.onnx property.vnnlib --verifier <NAME> --option points=10000
    pytest

All of it is in `<MODULE>.py`; the tests are verifolio's conformance kit.
"""

MODULE = '''\
"""The verifier `<NAME>`: tries random points of the input box."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from verifolio import Context, Outcome, Problem, Verifier, hookimpl
from verifolio.plugin.options import described

if TYPE_CHECKING:
    from verifolio import Registry


@dataclass(frozen=True)
class <CLASS>Options:
    """Options of `<NAME>`."""

    points: int = described(1000, "How many points to try.")


class <CLASS>(Verifier):
    """Looks for counterexamples; proves nothing."""

    name = "<NAME>"
    can_falsify = True
    Options = <CLASS>Options

    def refuses(self, problem: Problem) -> str | None:
        box = np.isfinite(problem.domain.lower).all() and np.isfinite(problem.domain.upper).all()
        return None if box else "an input has no finite bounds"

    def run(self, problem: Problem, context: Context) -> Outcome:
        rng = np.random.default_rng(context.seed)
        for _ in range(self.options.points):
            if context.budget.expired() or problem.domain.empty:
                break
            x = rng.uniform(problem.domain.lower, problem.domain.upper)
            if context.check(x):  # ONNX Runtime has replayed it on the original files
                return Outcome.found(x)
        return Outcome.unknown("no counterexample among the points tried")


@hookimpl
def register_verifiers(registry: Registry[Verifier]) -> None:
    registry.add(<CLASS>)
'''

TEST = '''\
"""The conformance kit on the verifier `<NAME>`."""

from <MODULE> import <CLASS>

from verifolio.testing import VerifierConformance


class Test<CLASS>(VerifierConformance):
    make = <CLASS>
'''
