"""Where a property meets networks: which file each declared network is, and which tensor each declared one is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING

from verifolio.errors import InputError
from verifolio.onnx_import.network import Network, TensorSignature
from verifolio.vnnlib import NetworkDeclaration, Specification, Tensor, arrange

if TYPE_CHECKING:
    from verifolio.model.query import Query

Networks = tuple[Network, ...]
Declarations = tuple[NetworkDeclaration, ...]


def bind(networks: Networks, specification: Specification, where: str) -> tuple[Networks, Specification]:
    """One network per declaration, and the specification with its columns in the order of their tensors.

    A declared tensor is the network's tensor of its ONNX name, or, without names, the one at its place. A
    specification that declares no networks (VNN-LIB 1.0) is about the concatenation of all tensors in order.
    """
    declared = specification.networks
    if not all(d.name for d in declared):
        return networks, specification
    matched = match_networks(declared, networks, where)
    starts = {"input": 0, "output": 0}
    placed, shown = [], []
    for declaration, network in zip(declared, matched, strict=True):
        sides = {}
        for kind, tensors in (("input", declaration.inputs), ("output", declaration.outputs)):
            sides[kind] = _place(kind, tensors, network.exposing(()), starts[kind])
            starts[kind] += sum(t.size for t in tensors)
        hidden = _in_order(declaration.hidden, starts["output"])
        starts["output"] += sum(t.size for t in hidden)
        shown.append(network.exposing(_exposed(declaration, network)))
        placed.append(replace(declaration, inputs=sides["input"], outputs=sides["output"], hidden=hidden))
    return tuple(shown), arrange(specification, tuple(placed))


def _exposed(declaration: NetworkDeclaration, network: Network) -> tuple[str, ...]:
    """The network's tensors for which the declared hidden ones stand."""
    names: list[str] = []
    for tensor in declaration.hidden:
        name = network.inner_name(str(tensor.node))
        if name is None or name in names:
            expected = f"a tensor or a node between inputs and outputs of {network.path.name}, each once"
            remedy = f"name the tensor that {tensor.name} stands for"
            raise InputError(tensor.where, expected, f'"{tensor.node}"', remedy)
        names.append(name)
    return tuple(names)


def _in_order(tensors: Sequence[Tensor], start: int) -> tuple[Tensor, ...]:
    starts = accumulate((t.size for t in tensors[:-1]), initial=start)
    return tuple(replace(t, offset=k) for t, k in zip(tensors, starts, strict=False))


def match_networks(declared: Declarations, given: Networks, where: str) -> Networks:
    """One network per declaration; one declared `equal-to` another need not be given again."""
    roots = _roots(declared)
    own = [d.name for d in declared if d.equal_to is None]
    if len(given) not in (len(declared), len(own)):
        expected = f"{len(own)} network file(s), as the property declares"
        raise InputError(where, expected, str(len(given)), "give them in the order of the declarations")
    names = own if len(given) == len(own) else [d.name for d in declared]
    by_name = dict(zip(names, given, strict=True))
    for name, network in by_name.items():
        equal = by_name[roots[name]]
        if network.sha256 != equal.sha256:
            expected = f"for network {name} the file of {roots[name]}, to which it is declared equal"
            raise InputError(where, expected, f"{network.path} and {equal.path}", "give the same file twice")
    return tuple(by_name[roots[d.name]] for d in declared)


def files_by_name(specification: Specification, files: Mapping[str, Path], where: str) -> list[Path]:
    """A file for each declared network, from files by the networks' names."""
    roots, chosen = _roots(specification.networks), []
    for declared in specification.networks:
        path = files.get(declared.name) or files.get(roots[declared.name])
        if path is None:
            raise InputError(where, f"a file for network {declared.name}", ", ".join(files), "name one")
        chosen.append(path)
    return chosen


def _roots(declared: Declarations) -> dict[str, str]:
    """For each network the one at the end of its chain of `equal-to`; these only point backwards."""
    roots: dict[str, str] = {}
    for d in declared:
        roots[d.name] = d.name if d.equal_to is None else roots[d.equal_to]
    return roots


def _place(kind: str, tensors: Sequence[Tensor], network: Network, start: int) -> tuple[Tensor, ...]:
    """The tensors with their places among those of the network, which begin at `start`."""
    order = _order(kind, tensors, network)
    sizes = [tensors[k].size for k in order]
    starts = accumulate(sizes[:-1], initial=start)
    offsets = dict(zip(order, starts, strict=True))
    return tuple(replace(t, offset=offsets[k]) for k, t in enumerate(tensors))


def _order(kind: str, tensors: Sequence[Tensor], network: Network) -> list[int]:
    """Positions of the declared tensors, in the order in which the network has them."""
    named = [t for t in tensors if t.node is not None]
    if not named and len(tensors) == 1:
        return [0]  # it stands for all tensors of the network, in order
    actual = network.names[kind == "output"]
    if len(named) not in (0, len(tensors)):
        nameless = next(t for t in tensors if t.node is None)
        expected = f"an ONNX name for every {kind} of the network, or for none"
        raise InputError(nameless.where, expected, f"none for {nameless.name}", "name it as the others")
    for k, tensor in enumerate(tensors):
        if tensor.node is not None and tensor.node not in actual:
            expected = f"one of {_quoted(actual)}, the {kind}s of {network.path.name}"
            remedy = f"name the {kind} that {tensor.name} stands for"
            raise InputError(tensor.where, expected, f'"{tensor.node}"', remedy)
        if tensor.node is not None and tensor.node in [t.node for t in tensors[:k]]:
            raise InputError(tensor.where, f"each {kind} once", f'"{tensor.node}" again', "name another")
    if len(tensors) != len(actual):
        expected = f"{len(actual)} {kind}s, as {network.path.name} has: {_quoted(actual)}"
        raise InputError(tensors[0].where, expected, str(len(tensors)), "declare all of them")
    if not named:
        return list(range(len(tensors)))
    return sorted(range(len(tensors)), key=lambda k: actual.index(str(tensors[k].node)))


def _quoted(names: Sequence[str]) -> str:
    return ", ".join(f'"{n}"' for n in names)


def check_sizes(query: Query) -> None:
    """Refuse a property whose sizes are not the networks'; reads the files, runs nothing."""
    specification = query.specification
    if all(d.name for d in specification.networks):
        for declared, network in zip(specification.networks, query.networks, strict=True):
            _check_tensors("input", declared.inputs, network.inputs)
            plain = len(network.outputs) - len(network.exposed)
            _check_tensors("output", declared.outputs, network.outputs[:plain])
            _check_tensors("hidden tensor", declared.hidden, network.outputs[plain:])
    got = (specification.input_size, specification.output_size)
    inputs = [n.input_size for n in query.networks]
    want = (inputs[0] if query.shared_input else sum(inputs), sum(n.output_size for n in query.networks))
    if got != want:
        raise InputError(
            query.name or "specification",
            f"{want[0]} inputs and {want[1]} outputs, as the network has",
            f"{got[0]} and {got[1]}",
            "check that the property belongs to this network",
        )


def _check_tensors(kind: str, declared: Sequence[Tensor], actual: Sequence[TensorSignature]) -> None:
    if len(declared) != len(actual):
        return  # one that stands for all of them: the sum of the sizes is compared
    for tensor, signature in zip(sorted(declared, key=lambda t: t.offset), actual, strict=True):
        if tensor.size != signature.size:
            expected = f"{signature.size} elements, as {kind} {signature.name!r} of the network has"
            got = f"{tensor.size} in {tensor.name}"
            raise InputError(tensor.where, expected, got, "check that the property belongs to this network")
        if not _same_order(tensor.shape, signature.shape):
            expected = f"shape {list(signature.shape)}, as {kind} {signature.name!r} of the network has"
            got = f"{list(tensor.shape)} for {tensor.name}, whose indices mean other elements"
            raise InputError(
                tensor.where, expected, got, "declare that shape, or one dimension for all elements"
            )


def _same_order(declared: tuple[int, ...], actual: tuple[int, ...]) -> bool:
    """Whether the same indices, ones left out, mean the same elements; a flat shape means them in order."""
    ours, theirs = ([n for n in shape if n != 1] for shape in (declared, actual))
    return ours == theirs or len(ours) <= 1 or len(theirs) <= 1
