"""VNN-LIB 1.0 and 2.0: text, syntax tree, normal form."""
