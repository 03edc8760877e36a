"""Progress with a forecast: a bar on a terminal, plain lines in a pipe."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from types import TracebackType

from verifolio.cli.progress import ProgressLines

from .instances import Instance
from .results import InstanceResult


def clock(seconds: float) -> str:
    """Seconds for people."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    if hours:
        return f"{hours} h {minutes:02} min"
    return f"{minutes} min {rest:02} s" if minutes else f"{rest} s"


class Forecast:
    """How long the rest will take: each instance what its category took so far, or a part of its limit."""

    def __init__(self, instances: Sequence[Instance], jobs: int) -> None:
        self._left = list(instances)
        self._jobs = jobs
        self._spent: dict[str, list[tuple[float, float]]] = defaultdict(list)

    def finish(self, instance: Instance, seconds: float) -> None:
        """An instance took this long."""
        self._left.remove(instance)
        self._spent[instance.category].append((seconds, instance.timeout))

    def seconds(self) -> float:
        """The forecast; half of every limit as long as nothing is known."""
        every = [pair for pairs in self._spent.values() for pair in pairs]
        total = sum(min(i.timeout, self._expected(i, self._spent[i.category] or every)) for i in self._left)
        return total / self._jobs

    @staticmethod
    def _expected(instance: Instance, known: Sequence[tuple[float, float]]) -> float:
        if not known:
            return instance.timeout / 2
        share = sum(s for s, _ in known) / max(sum(t for _, t in known), 1e-9)
        return share * instance.timeout


class Reporter(ProgressLines):
    """Tells standard error what finished and when the rest will be; silent if asked to be."""

    def __init__(self, instances: Sequence[Instance], jobs: int, quiet: bool = False) -> None:
        super().__init__("instances", len(instances), quiet)
        self.count, self.done, self.resumed = len(instances), 0, 0
        self._forecast = Forecast(instances, jobs)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._tell_resumed()
        super().__exit__(kind, error, trace)

    def _tell_resumed(self) -> None:
        if self.resumed:
            self.show(f"{self.resumed} of {self.count} instances known from before", self.done, self.count)
            self.resumed = 0

    def __call__(self, instance: Instance, result: InstanceResult, resumed: bool) -> None:
        self.done += 1
        self._forecast.finish(instance, result.seconds)
        if resumed:
            self.resumed += 1
            return
        self._tell_resumed()
        rest = f"; about {clock(self._forecast.seconds())} left" if self.done < self.count else ""
        by = f" by {result.verifier}" if result.verdict.decided else ""
        text = (
            f"{self.done}/{self.count} {instance.label}: {result.verdict.value}{by} in {result.seconds:.2f} s"
        )
        self.show(text + _warning(instance, result) + rest, self.done, self.count)


def _warning(instance: Instance, result: InstanceResult) -> str:
    known = instance.expected in ("sat", "unsat")
    wrong = result.verdict.decided and known and result.verdict.value != instance.expected
    return f" (WRONG: expected {instance.expected})" if wrong else ""
