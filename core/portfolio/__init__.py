"""Which verifiers run, in which order and for how long."""
