"""000, Gross et al. 2020: randomized attacks on ensembles of classifiers."""

from __future__ import annotations

from functools import partial

from ..study import Part, Study
from . import example, tables
from .example import Examples
from .games import EXACT, SINGLE, Games

ABOUT = """
The paper asks how well an attacker does who must commit to a mix of perturbations before a classifier is drawn from
an ensemble, and finds such mixes with SMT and mixed-integer programs. Here every game of its tables is solved exactly
by decomposition (`verifolio ensemble attack`): which sets of networks one point can fool, decided query by query, and
a linear program over them. The published programs are run beside it (60 s each; two games with the paper's two hours
when the whole study is asked for). Its networks are not public. Ours are trained on the same pairs of MNIST's digits
and on the same traffic signs (give way, priority road), at the same sizes, by Adam and by stochastic gradient
descent.
"""
SMT_MILP = Games((*EXACT, "milp", "smt"))
MILP_MAX = Games((*EXACT, "milp", "maxmilp"))
ATTACKERS = Games((*EXACT, *SINGLE))
PARTS = (
    Part("table", 1, "SMT and MILP (excerpt of table 4)", partial(tables.programs, number=1), (SMT_MILP,)),
    Part(
        "table", 2, "MILP and MaxMILP (excerpt of table 5)", partial(tables.programs, number=2), (MILP_MAX,)
    ),
    Part("table", 3, "attackers (excerpt of table 6)", partial(tables.single, number=3), (ATTACKERS,)),
    Part("table", 4, "SMT and MILP", partial(tables.programs, number=4), (SMT_MILP,)),
    Part("table", 5, "MILP and MaxMILP", partial(tables.programs, number=5), (MILP_MAX,)),
    Part("table", 6, "attackers", partial(tables.single, number=6), (ATTACKERS,)),
    Part(
        "figure", 1, "two classifiers around a point", absent="A drawing; its game is played under figure 4."
    ),
    Part("figure", 2, "what goes into the verifier", absent="A diagram; there is nothing to measure."),
    Part("figure", 3, "attacks within a radius of 2", absent="A drawing; its game is played under figure 4."),
    Part("figure", 4, "the expected loss of a mix of two attacks", example.shown, (Examples(),)),
)
STUDY = Study(
    "000",
    "Robustness verification for classifier ensembles",
    "Gross, Jansen, Pérez, Raaijmakers, 2020 (ATVA).",
    ABOUT,
    PARTS,
)
