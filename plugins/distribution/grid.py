"""The scheduler of k-binary search: which radii of a grid to ask next, and which running ones to cancel."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from verifolio.errors import SoundnessAlarm
from verifolio.model.answer import Verdict


@dataclass
class Scheduler:
    """k-binary search for the boundary between UNSAT (small indices) and SAT on 0 .. size - 1.

    `lo` is the largest index that was proved (-1: none), `hi` the smallest with a counterexample (or size).
    `unanswered` are indices that came back undecided: they are not asked again, and they narrow nothing.
    """

    size: int
    k: int = 1
    lo: int = -1
    hi: int = -1
    unanswered: set[int] = field(default_factory=set)
    running: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.hi = self.size if self.hi < 0 else self.hi

    def candidates(self) -> list[int]:
        """Indices that are still worth asking."""
        skip = self.unanswered | self.running
        return [i for i in range(self.lo + 1, self.hi) if i not in skip]

    @property
    def done(self) -> bool:
        return not self.running and not self.candidates()

    @property
    def closed(self) -> bool:
        """Whether nothing undecided is left between the two sides."""
        return self.hi - self.lo == 1

    def launch(self) -> list[int]:
        """The indices to start now; they count as running from here on."""
        open_ = self.candidates()
        if not self.running:
            chosen = splits(open_, self.k)
            self.running.update(chosen)
            return chosen
        chosen = []
        while len(self.running) < self.k and open_:
            middle = (open_[0] + open_[-1]) / 2
            best = min(open_, key=lambda i: (abs(i - middle), i))
            open_.remove(best)
            self.running.add(best)
            chosen.append(best)
        return chosen

    def answer(self, index: int, verdict: Verdict) -> list[int]:
        """Take in an answer; gives the running indices it makes pointless, which are to be cancelled."""
        late = index not in self.running
        self.running.discard(index)
        if verdict is Verdict.UNSAT:
            self._agree(index < self.hi, index, self.hi)
            self.lo = max(self.lo, index)
        elif verdict is Verdict.SAT:
            self._agree(index > self.lo, self.lo, index)
            self.hi = min(self.hi, index)
        elif not late:
            self.unanswered.add(index)
        pointless = sorted(i for i in self.running if i <= self.lo or i >= self.hi)
        self.running.difference_update(pointless)
        return pointless

    def recall(self, answers: Iterable[tuple[int, Verdict]]) -> None:
        """Take over the answers of an earlier run."""
        for index, verdict in answers:
            if verdict is not Verdict.CANCELLED:
                self.running.add(index)
                self.answer(index, verdict)

    def _agree(self, consistent: bool, proved: int, refuted: int) -> None:
        if not consistent:
            raise SoundnessAlarm(
                f"radius {proved} of the grid was proved, but the smaller or equal radius {refuted} has a "
                "counterexample; the verifiers contradict each other"
            )


def splits(candidates: list[int], k: int) -> list[int]:
    """k candidates that cut the list into k + 1 equal parts; all of them where there are fewer."""
    count = len(candidates)
    if count <= k:
        return list(candidates)
    return [candidates[(j * count) // (k + 1)] for j in range(1, k + 1)]
