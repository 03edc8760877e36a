"""Batched attacks on any linear condition, for falsifiers, branch and bound, and estimators alike."""

from verifolio.attacks.search import Attacked, AttackSettings, attack_many, unattackable

__all__ = ["AttackSettings", "Attacked", "attack_many", "unattackable"]
