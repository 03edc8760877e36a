"""VNN-LIB 1.0 and 2.0: text, syntax tree, normal form."""

from verifolio.vnnlib.arrange import arrange
from verifolio.vnnlib.case import Case, box_case, inward_float32
from verifolio.vnnlib.check import Check
from verifolio.vnnlib.errors import VnnlibError
from verifolio.vnnlib.normal_form import load, loads, normalise
from verifolio.vnnlib.parse import parse, parse_text
from verifolio.vnnlib.rows import Rows, make_rows
from verifolio.vnnlib.specification import Specification
from verifolio.vnnlib.symbols import NetworkDeclaration, Tensor
from verifolio.vnnlib.tree import Document
from verifolio.vnnlib.write import specification_from_cases, write

__all__ = [
    "Case",
    "Check",
    "Document",
    "NetworkDeclaration",
    "Rows",
    "Specification",
    "Tensor",
    "VnnlibError",
    "arrange",
    "box_case",
    "inward_float32",
    "load",
    "loads",
    "make_rows",
    "normalise",
    "parse",
    "parse_text",
    "specification_from_cases",
    "write",
]
