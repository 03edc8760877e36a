"""Run importable Python callables in isolated, limited and supervised worker processes."""

from verifolio.run.job import End, Job, JobError, Limits, Link, Result, SendError
from verifolio.run.pool import Pool, PoolError, Ticket

__all__ = ["End", "Job", "JobError", "Limits", "Link", "Pool", "PoolError", "Result", "SendError", "Ticket"]
