"""Encodings of a graph that several plugins need: graph heads, rows for solvers, SMT-LIB text."""
