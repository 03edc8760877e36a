"""The conformance kit on both verifiers."""

from verifolio_fractions import Dice, Fractions

from verifolio.testing import VerifierConformance


class TestDice(VerifierConformance):
    make = Dice


class TestFractions(VerifierConformance):
    make = Fractions
