"""Exit codes: what each command leaves with, and the one table that says what they mean."""

from __future__ import annotations

# 130 is what shells report for an interrupt; the others are a choice that scripts rely on
DONE, BUG, BAD_INPUT, UNDECIDED, ALARM, UNEXPECTED, INTERRUPTED = 0, 1, 2, 3, 4, 5, 130
CLOSED = 141  # nobody reads our output any more: 128 + SIGPIPE, what shells show for a program ended by it

# Code, the word for it, and the sentence of the documentation.
TABLE = (
    (DONE, "done", "Decided, or done."),
    (BUG, "bug", "A bug: a short message and a log file (`VERIFOLIO_DEBUG=1` also prints the traceback)."),
    (BAD_INPUT, "bad input", "Bad input: `place: expected, got; remedy` on standard error."),
    (UNDECIDED, "undecided", "Something stayed undecided, or `doctor` found a problem."),
    (ALARM, "alarm", "A soundness alarm: two answers contradict each other, or one the expected one."),
    (UNEXPECTED, "unexpected", "Decided, but not as `--expect` says; or a certificate that is not valid."),
    (INTERRUPTED, "interrupted", "Interrupted (Ctrl-C); standard error says what is kept and how to go on."),
    (CLOSED, "output closed", "Whoever read the output closed it, as `head -1` does."),
)
EPILOG = "Exit codes: " + ", ".join(f"{code} {word}" for code, word, _ in TABLE) + "."
