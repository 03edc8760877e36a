"""Deciding a query: the oracle, the walk through a portfolio, attempts in workers."""
