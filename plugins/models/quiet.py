"""Without what libraries print and log while they export."""

from __future__ import annotations

import io
import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout


@contextmanager
def quiet() -> Iterator[list[warnings.WarningMessage]]:
    """Nothing reaches the terminal; gives the warnings."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with (
            redirect_stdout(io.StringIO()),
            redirect_stderr(io.StringIO()),
            warnings.catch_warnings(record=True) as said,
        ):
            warnings.simplefilter("always")
            yield said
    finally:
        logging.disable(before)
