"""Bound propagation: affine layers, linear relaxations, the backward and the forward pass, rounding included."""
