"""Writing certificates: what searches left behind becomes a file that `verifolio check` accepts."""
