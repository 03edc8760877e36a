"""The pytest plugin: tests that fail where a network is not robust, and show the counterexample.

It is loaded by every run of pytest where verifolio is installed, so it imports nothing but pytest until a test asks.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Literal

import pytest

if TYPE_CHECKING:
    from pathlib import Path

    from verifolio.testing.robust import Checker

MARK = "robust"
INDEX = "robust_index"  # the argument by which a marked test is told its input
HELP = (
    "robust(model, data=..., epsilon=..., indices='0:10', norm='linf', range='0,1', property='classification', "
    "reference='label', timeout=60.0, undecided='fail', scale=1.0, mean=None, std=None, channels='rgb', layout=''): "
    "one test per input of the data; the model is an ONNX file, a model such as a torch module, or a function that "
    "makes one; it fails with the "
    "counterexample where the network has one within epsilon, and where nothing is decided in time."
)
CHECKERS: pytest.StashKey[dict[tuple[object, ...], Checker]] = pytest.StashKey()
Undecided = Literal["fail", "skip"]


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("verifolio")
    text = (
        "Keep answers in this file: what has not changed is not asked again, and `verifolio report` reads it."
    )
    group.addoption("--verifolio-store", default="", metavar="FILE", help=text)


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", HELP)
    config.stash[CHECKERS] = {}


def pytest_unconfigure(config: pytest.Config) -> None:
    for checker in config.stash.get(CHECKERS, {}).values():
        checker.close()


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test per input."""
    marker = metafunc.definition.get_closest_marker(MARK)
    if marker is None:
        return
    from verifolio.testing.robust import read_request

    request = read_request(marker.args, marker.kwargs, metafunc.definition.path)
    if INDEX not in metafunc.fixturenames:
        metafunc.fixturenames.append(INDEX)
    metafunc.parametrize(INDEX, request.indices)


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> None:
    """The network is verified first; then comes what the test itself says."""
    marker = pyfuncitem.get_closest_marker(MARK)
    if marker is None:
        return
    from verifolio.testing.robust import read_request

    request = read_request(marker.args, marker.kwargs, pyfuncitem.path)
    index = int(str(pyfuncitem.callspec.params[INDEX]))
    found = checker_for(pyfuncitem.config, request.timeout).around(request, index)
    conclude(found.status, found.text, request.undecided)


def checker_for(config: pytest.Config, timeout: float) -> Checker:
    """One oracle for all tests with the same limits."""
    from verifolio.testing.robust import Checker

    checkers = config.stash[CHECKERS]
    key = (timeout,)
    if key not in checkers:
        checkers[key] = Checker(timeout, config.getoption("--verifolio-store"), config.invocation_params.args)
    return checkers[key]


def conclude(status: str, text: str, undecided: Undecided) -> None:
    """Pass, fail or skip; the text is all that a reader needs, so there is no traceback."""
    __tracebackhide__ = True
    if status == "refuted" or (status == "open" and undecided == "fail"):
        pytest.fail(text, pytrace=False)
    if status == "open":
        pytest.skip(text.splitlines()[0])


class Robust:
    """What the fixture gives: call it with a network, an input and its label; it fails the test where it must."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    def __call__(
        self,
        model: str | Path | Any,
        x: Sequence[float] | Any,
        label: int,
        *,
        epsilon: float,
        norm: str = "linf",
        range: str = "0,1",
        timeout: float = 60.0,
        undecided: Undecided = "fail",
        names: Sequence[str] = (),
    ) -> None:
        """Fail unless no input within `epsilon` of `x` (in `norm`, inside `range`) gets another label."""
        __tracebackhide__ = True
        from verifolio.testing.robust import one_input

        request = one_input(model, x, label, names, epsilon=epsilon, norm=norm, range=range, timeout=timeout)
        found = checker_for(self._config, timeout).around(request, 0)
        conclude(found.status, found.text, undecided)


@pytest.fixture
def robust(request: pytest.FixtureRequest) -> Iterator[Robust]:
    """Assert that a network is robust around one input: `robust("model.onnx", x, label, epsilon=0.01)`."""
    yield Robust(request.config)
