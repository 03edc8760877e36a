"""`verifolio network show`: what is in a network, and who can work with it."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import typer

from verifolio.cli.bundles import Json, NetworkFile
from verifolio.cli.expand import add_command, make_group

if TYPE_CHECKING:
    from verifolio.onnx_import.network import Network


def add_commands(app: typer.Typer) -> None:
    """Register the group and its command."""
    group = make_group("Look at networks.")
    add_command(group, "show", show)
    app.add_typer(group, name="network")


def show(network: NetworkFile, written: Json) -> None:
    """Show what a network consists of, and who refuses it.

    Signature, layers, neurons and operators are shown, and for every verifier that refuses the network the
    reason.

    Example:
        verifolio network show examples/networks/digits_dense.onnx
    """
    from verifolio.cli.output import say, say_json, table
    from verifolio.onnx_import.network import Network

    facts = describe(Network.load(network))
    if written.json:
        say_json(facts)
        return
    for name in ("path", "sha256", "inputs", "outputs", "neurons", "operators", "graph_sha256"):
        say(f"{name}: {facts[name]}")
    say()
    table(("node", "operator", "size", "reads", "name"), [tuple(n.values()) for n in facts["nodes"]])
    say()
    table(("kind", "name", "verdict"), [tuple(w.values()) for w in facts["members"]])


def describe(network: Network) -> dict[str, Any]:
    """Everything `show` prints."""
    graph = network.graph
    kinds = Counter(getattr(n.op, "function", type(n.op).__name__) for n in graph.nodes)
    return {
        "path": str(network.path),
        "sha256": network.sha256,
        "inputs": "; ".join(f"{t.name} {list(t.shape)} {t.dtype}" for t in network.inputs),
        "outputs": "; ".join(f"{t.name} {list(t.shape)} {t.dtype}" for t in network.outputs),
        "neurons": graph.neurons,
        "operators": ", ".join(f"{k} x{n}" for k, n in sorted(kinds.items())),
        "graph_sha256": graph.sha256,
        "nodes": [
            {
                "node": i,
                "operator": getattr(n.op, "function", type(n.op).__name__),
                "size": n.op.size,
                "reads": ",".join(map(str, n.parents)),
                "name": n.name,
            }
            for i, n in enumerate(graph.nodes)
        ],
        "members": opinions(network),
    }


def opinions(network: Network) -> list[dict[str, str]]:
    """What every verifier and bounder says about a plain box query on this network."""
    import numpy as np

    from verifolio.model.problem import Domain, Problem
    from verifolio.plugin.manager import current_plugins
    from verifolio.vnnlib import make_rows

    graph = network.graph
    box = Domain(np.zeros(graph.input_size), np.ones(graph.input_size))
    problem = Problem(graph, box, (make_rows([({graph.input_size: 1.0}, 0.0)]),))
    found = []
    for registry in (current_plugins().verifiers, current_plugins().bounders):
        for cls in registry:
            reason = registry.unavailable(cls.name)
            said = f"unavailable: {reason}" if reason else cls().refuses(problem)
            found.append({"kind": registry.kind, "name": cls.name, "verdict": said or "accepts"})
    return found
