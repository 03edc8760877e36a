"""The estimator `distribution`: the run of the command for programs, with results of core's own types."""

from __future__ import annotations

from collections.abc import Sequence

from verifolio.plugin.account import Example, InputResult
from verifolio.plugin.estimator import OracleLike, Progress, silent
from verifolio.plugin.radii import RadiiEstimator, RadiiFound, RadiiRequest

from .account import deciders, example_of, input_result
from .command import Inputs, Search, check_first, identified, make_setting
from .ledger import DistributionLedger
from .run import Distribution, Item, Setting, make_items
from .table import Row


class Many(RadiiEstimator):
    """Critical radii of many inputs on one or several networks; killed at any moment, it can go on."""

    name = "distribution"

    def lanes(self, request: RadiiRequest) -> int:
        return request.jobs * setting_of(request).estimator.lanes

    def run(self, request: RadiiRequest, oracle: OracleLike, progress: Progress = silent) -> RadiiFound:
        from verifolio.solve.oracle import Oracle

        if not isinstance(oracle, Oracle):
            raise TypeError("a run is identified by the oracle's portfolio")
        setting = identified(setting_of(request), oracle)
        names, networks = list(request.networks), list(request.networks.values())
        items = make_items(networks, [(request.data, request.indices)], setting.prop.networks, names)
        check_first(setting, items, oracle)

        def listen(row: Row, done: int, total: int) -> None:
            oracle.plugins.manager.hook.progress(done=done, total=total, message="inputs")
            progress(done, total, row.status.value)

        with DistributionLedger(request.store) as ledger:
            task = Distribution(setting, items, oracle, ledger, request.jobs, listen=listen)
            interrupted = False
            try:
                task.run()
            except KeyboardInterrupt:
                interrupted = True
            results, examples = read_back(ledger, setting, items)
        called = {item.name: item.networks for item in items}
        return RadiiFound(setting.run, called, tuple(results), tuple(examples), interrupted)


def setting_of(request: RadiiRequest) -> Setting:
    """The request in the options of the command, which checks them."""
    inputs = Inputs(
        data=(request.data.name,),
        epsilon=request.epsilon,
        norm=request.norm,  # type: ignore[arg-type]
        range=request.range,
        reference=request.reference,  # type: ignore[arg-type]
        property=request.property,
        property_option=request.property_option,
    )
    return make_setting(inputs, Search(**request.search), request.timeout)


def read_back(
    ledger: DistributionLedger, setting: Setting, items: Sequence[Item]
) -> tuple[list[InputResult], list[Example]]:
    """What the ledger has of these inputs, in their order."""
    found = {r["item"]: r for r in ledger.shown(setting.run)}
    settings = dict(ledger.runs())[setting.run]
    who = deciders(ledger.events(setting.run))
    results, examples = [], []
    for item in items:
        if (row := found.get(item.key)) is not None:
            place = (item.name, item.split, str(item.index))
            by = who.get(row["question"], "")
            results.append(input_result(place, row, by))
            if row["witness"] is not None:
                examples.append(example_of(place, row, settings, by))
    return results, examples
