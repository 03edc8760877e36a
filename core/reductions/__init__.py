"""Reductions: rewrite a problem for a member that refuses its native form, and lift the points back."""

from verifolio.reductions.chain import Reduced, reduce_for
from verifolio.reductions.reduction import ALL, Reduction

__all__ = ["ALL", "Reduced", "Reduction", "reduce_for"]
