"""`verifolio train` and `verifolio cycle`: small, honest training for robustness."""
