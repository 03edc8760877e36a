"""How random networks use operators of newer sets and those that pick entries by patterns."""

from __future__ import annotations

import numpy as np

from verifolio.testing.draft import Draft


def triangle(d: Draft, x: str) -> str:
    """One triangle of every matrix."""
    diagonal = d.constant(int(d.rng.integers(-2, 3)), np.int64)
    return d.add("Trilu", d.image(x), diagonal, upper=int(d.rng.integers(2)))


def cumulative_sum(d: Draft, x: str) -> str:
    """Running sums along an axis, in either direction."""
    chosen = {"exclusive": int(d.rng.integers(2)), "reverse": int(d.rng.integers(2))}
    return d.add("CumSum", d.image(x, 1, 3, 4), d.constant(int(d.rng.integers(-2, 0)), np.int64), **chosen)


def gather_nd(d: Draft, x: str) -> str:
    """Nine entries by their positions."""
    x = d.flat(x)
    columns = d.rng.integers(-d.size(x), d.size(x), 9)
    picked = d.add("GatherND", x, d.constant([[0, int(c)] for c in columns], np.int64))
    return d.add("Unsqueeze", picked, d.integers(0))


def gather_elements(d: Draft, x: str) -> str:
    """Nine entries along an axis."""
    x = d.flat(x)
    return d.add("GatherElements", x, d.constant(d.rng.integers(0, d.size(x), (1, 9)), np.int64), axis=1)


def einsum(d: Draft, x: str) -> str:
    """A contraction with a constant, or of a tensor with itself."""
    image = d.image(x, 2, 3, 4)
    if d.rng.random() < 0.3:
        return d.add("Einsum", image, image, equation="bcij,bckj->bik")
    return d.add("Einsum", image, d.draw(4, 2), equation=str(d.rng.choice(["bcij,jk->bkci", "bcij,jk->bk"])))


def rms_norm(d: Draft, x: str) -> str:
    """Divided by the root of the mean square."""
    x = d.flat(x)
    return d.add("RMSNormalization", x, d.draw(d.size(x)))


def group_norm(d: Draft, x: str) -> str:
    """Four channels in two groups."""
    image = d.image(d.dense(x, 16), 4, 2, 2)
    made = d.add("GroupNormalization", image, d.draw(4), d.draw(4), num_groups=2)
    d.shapes[made], d.kinds[made] = d.shapes[image], d.kinds[image]  # onnx infers neither
    return made


def attention(d: Draft, x: str) -> str:
    """Three tokens attend to three, in two heads."""
    parts = [d.image(d.dense(x, 12, 0.5), 2, 3, 2) for _ in range(3)]
    return d.add("Attention", *parts, is_causal=int(d.rng.integers(2)))
