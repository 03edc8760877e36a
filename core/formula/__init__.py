"""Formulas over inputs and outputs, with one text, one loss, one truth value and one set of rows each."""
