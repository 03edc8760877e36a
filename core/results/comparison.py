"""Several networks on the same inputs: counts side by side, and what is decided between each two."""

from __future__ import annotations

import html
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path
from typing import Any

from verifolio.results.robustness import STATUSES, Robustness


@dataclass(frozen=True, eq=False)
class Comparison:
    """Results by the names of the networks, all about the same inputs."""

    results: Mapping[str, Robustness]

    def __getitem__(self, name: str) -> Robustness:
        return self.results[name]

    def __repr__(self) -> str:
        return self.text()

    def text(self) -> str:
        """Who has how many, and what follows between each two."""
        width = max(map(len, self.results), default=0)
        lines = [f"{name:{width}}  {found.headline}" for name, found in self.results.items()]
        return "\n".join(lines + [self.between(a, b) for a, b in combinations(self.results, 2)])

    def between(self, one: str, other: str) -> str:
        """Which of two is robust around more inputs, as far as that is decided: open ones count either way."""
        a, b = self.results[one].counts, self.results[other].counts
        least = {one: a["proved"], other: b["proved"]}
        most = {one: a["proved"] + a["open"], other: b["proved"] + b["open"]}
        for better, worse in ((one, other), (other, one)):
            if least[better] > most[worse]:
                return f"{better} is robust around more inputs than {worse}"
        if least == most and least[one] == least[other]:
            return f"{one} and {other} are robust around as many inputs"
        return f"between {one} and {other} it is not decided: too many inputs are open"

    def to_pandas(self) -> Any:
        """One row per network (pandas.DataFrame)."""
        import pandas

        rows = [
            {"network": name, **found.counts, "accuracy": found.accuracy}
            for name, found in self.results.items()
        ]
        return pandas.DataFrame(rows, columns=["network", *STATUSES, "accuracy"])

    def save(self, folder: str | Path) -> Path:
        """Write every network's result into a folder of its name."""
        for name, found in self.results.items():
            found.save(Path(folder) / name)
        return Path(folder)

    def _repr_html_(self) -> str:
        return f"<pre>{html.escape(self.text())}</pre>"
