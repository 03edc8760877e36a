"""Evidence that leaves the worker as it grows, so that it survives whatever happens to its finder."""

from __future__ import annotations

import threading
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from verifolio.model.problem import Domain, Problem
from verifolio.plugin.evidence import Bounds, Evidence
from verifolio.run import Link

Array = NDArray[np.float64]
FLUSH_SECONDS = 0.2  # bounds come by the thousand; sending costs about a millisecond each


@dataclass(frozen=True)
class Learned:
    """Message: evidence gathered since the last one."""

    evidence: Evidence


class SharedEvidence(Evidence):
    """Evidence that also goes to the driver, at most every `FLUSH_SECONDS`.

    `proves`: whether its writer declares that it can prove. One that cannot may leave candidates, which are replayed,
    but neither bounds nor refuted sets, on which others would rest proofs. `only`: the one problem that an attempt is
    about; that it is refuted is what the attempt's report will say, after a second look, and is not sent before.
    """

    def __init__(self, known: Evidence, link: Link) -> None:
        super().__init__(list(known.bounds), list(known.candidates), list(known.refuted), known.attacked)
        self._link = link
        self.proves = True
        self.only: Problem | None = None
        self._fresh = Evidence()
        self._lock = threading.Lock()
        self._closed = threading.Event()
        self._thread: threading.Thread | None = None

    def add_bounds(self, bounds: Bounds) -> None:
        if not self.proves:
            return
        super().add_bounds(bounds)
        with self._lock:
            self._fresh.add_bounds(bounds)
        self._start()

    def add_candidate(self, x: Array) -> None:
        super().add_candidate(x)
        with self._lock:
            self._fresh.add_candidate(x)
        self._start()

    def add_refuted(self, problem: Problem, domain: Domain) -> None:
        if not self.proves:
            return
        super().add_refuted(problem, domain)
        if problem is self.only and domain is problem.domain:
            return
        with self._lock:
            self._fresh.add_refuted(problem, domain)
        self._start()

    def _start(self) -> None:
        """The sender thread exists only once there is something to send."""
        if self._thread is None and not self._closed.is_set():
            self._thread = threading.Thread(target=self._serve, name="evidence", daemon=True)
            self._thread.start()

    def _serve(self) -> None:
        while not self._closed.wait(FLUSH_SECONDS):
            self.flush()

    def flush(self) -> None:
        with self._lock:
            fresh, self._fresh = self._fresh, Evidence()
        if fresh.bounds or fresh.candidates or fresh.refuted:
            self._link.send(Learned(fresh))

    def close(self) -> None:
        """Send the rest and end the sender."""
        self._closed.set()
        if self._thread is not None:
            self._thread.join()
        self.flush()
