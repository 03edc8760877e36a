"""Learned portfolios: a schedule of verifiers from recorded benchmark runs, and what any portfolio does."""
