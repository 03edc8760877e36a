"""verifolio: a portfolio of neural network verifiers."""
