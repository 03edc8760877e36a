"""The vocabulary of all commands: what runs, around which inputs, what is written.

Each word is a field of one frozen dataclass here, with its type, default and help text. A command takes bundles,
which it composes from these classes; `verifolio.cli.expand` turns their fields into options. Python code makes the
same bundles with the same names.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import typer

from verifolio.plugin.options import REQUIRED, described

if TYPE_CHECKING:
    from verifolio.plugin.data_source import Dataset
    from verifolio.plugin.property import Property

# The headings in `--help`.
RUNS, INPUTS, ASKED = "What runs", "Around which inputs", "What is asked"
WRITTEN, SEARCH = "What is written", "How it searches"
FIRST = "0:20"  # the inputs of a data set unless others are asked for

NetworkFiles = Annotated[list[str], typer.Argument(metavar="NETWORK...", help="ONNX files.")]
NetworkFile = Annotated[str, typer.Argument(metavar="NETWORK", help="An ONNX file.")]
PropertyFile = Annotated[str, typer.Argument(metavar="PROPERTY", help="A VNN-LIB file, gzipped or not.")]


@dataclass(frozen=True, kw_only=True)
class Bundle:
    """Base of all bundles; `panel` is the heading that the options stand under in `--help`."""

    panel: ClassVar[str] = "Options"


class RunBundle(Bundle):
    """Of what runs."""

    panel: ClassVar[str] = RUNS


class InputBundle(Bundle):
    """Of the inputs that are asked about."""

    panel: ClassVar[str] = INPUTS


class OutputBundle(Bundle):
    """Of what is written."""

    panel: ClassVar[str] = WRITTEN


@dataclass(frozen=True, kw_only=True)
class Choice(RunBundle):
    """Who answers queries."""

    verifier: str = described("", "Use this verifier alone.", metavar="NAME")
    portfolio: str = described("", "Use the portfolio of this file (YAML).", metavar="FILE")
    option: tuple[str, ...] = described((), "An option of --verifier; repeatable.", metavar="KEY=VALUE")


@dataclass(frozen=True, kw_only=True)
class Timeout(RunBundle):
    """How long one query may take."""

    timeout: float = described(60.0, "Seconds per query, 0 for no limit.", metavar="SECONDS", min=0.0)


@dataclass(frozen=True, kw_only=True)
class Cores(RunBundle):
    """How many cores one query may use."""

    cores: int = described(0, "Cores per query, shared by its verifiers; 0: as many as they can use.", min=0)


@dataclass(frozen=True, kw_only=True)
class Seed(RunBundle):
    """What makes a run repeatable."""

    seed: int = described(0, "Seed of everything random.")


@dataclass(frozen=True, kw_only=True)
class Place(RunBundle):
    """Where verifiers run."""

    executor: str = described("process", "Where verifiers run: process, inline or ray.", metavar="NAME")
    address: str = described(
        "", "The cluster, for an --executor that runs on one; its own default otherwise.", metavar="HOST:PORT"
    )

    @property
    def place(self) -> str:
        """In the form that `make_executor` takes."""
        return f"{self.executor}@{self.address}" if self.address else self.executor


@dataclass(frozen=True, kw_only=True)
class Running(Place, Seed, Cores, Timeout, Choice):
    """What runs: everything that the answer to one query depends on."""

    memory: float = described(
        0.0, "Gigabytes per verifier; 0: half of the machine's memory.", metavar="GB", min=0.0
    )
    device: str = described("cpu", "Where tensors live: cpu or cuda.")
    store: str = described("", "Look answers up in this SQLite file first, and keep them.", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class RunningMany(Running):
    """What runs, for commands that ask many queries."""

    jobs: int = described(1, "Queries, inputs or instances at the same time.", min=1)


@dataclass(frozen=True, kw_only=True)
class TotalBudget(RunBundle):
    """How long a command may take."""

    total_budget: float = described(
        0.0, "Seconds for everything, 0 for no limit.", metavar="SECONDS", min=0.0
    )


@dataclass(frozen=True, kw_only=True)
class Attack(RunBundle):
    """The attack that a command runs besides verification."""

    attack: str = described(
        "", "The attack: a verifier that falsifies; by default --verifier, or else pgd.", metavar="NAME"
    )
    attack_option: tuple[str, ...] = described((), "An option of --attack; repeatable.", metavar="KEY=VALUE")
    attack_timeout: float = described(1.0, "Seconds per attacked input.", metavar="SECONDS", min=0.0)


@dataclass(frozen=True, kw_only=True)
class Expect(RunBundle):
    """The verdict that is wanted."""

    expect: Literal["sat", "unsat"] | None = described(
        None, "The verdict that is wanted: another one exits with 5, an undecided one with 3."
    )


@dataclass(frozen=True, kw_only=True)
class Data(InputBundle):
    """The data, and how to read it."""

    data: tuple[str, ...] = described(
        REQUIRED,
        "A data set's name or a file; repeatable where a command takes several.",
        metavar="NAME[:SPLIT]|FILE",
    )
    range: str = described(
        "0,1", "The legal values of inputs, as the data has them; -inf,inf for any.", metavar="LOW,HIGH"
    )
    layout: Literal["hwc", "chw"] | None = described(
        None, "The data's axes, where the network wants the other order."
    )

    @property
    def limits(self) -> tuple[float, float]:
        """The two ends of --range."""
        from verifolio.data import parse_range

        return parse_range(self.range)

    def datasets(self) -> list[Dataset]:
        """All of --data, in the network's layout."""
        return [self._read(spec) for spec in self.data]

    def _read(self, spec: str) -> Dataset:
        from verifolio.data import in_layout, load_data

        return in_layout(load_data(spec), self.layout or "")

    @property
    def only_data(self) -> str:
        """The one --data of commands that take one."""
        from verifolio.errors import InputError

        if len(self.data) != 1:
            raise InputError("--data", "one data set", str(len(self.data)), "run the command once for each")
        return self.data[0]

    def dataset(self) -> Dataset:
        """The one data set of commands that take one."""
        return self._read(self.only_data)


@dataclass(frozen=True, kw_only=True)
class TestData(InputBundle):
    """Data to test on."""

    test_data: str = described(
        "", "Test on this data, instead of what --data has for it.", metavar="NAME[:SPLIT]|FILE"
    )


@dataclass(frozen=True, kw_only=True)
class Indices(InputBundle):
    """Which inputs of the data."""

    indices: str = described(FIRST, "Which inputs of the data, such as 0:100,105.", metavar="LIST")

    def positions(self, count: int) -> list[int]:
        """The chosen ones of so many inputs; of fewer than the default chooses, all."""
        from verifolio.data import parse_indices

        few = self.indices == FIRST and 0 < count < int(FIRST.partition(":")[2])
        return parse_indices(f"0:{count}" if few else self.indices, count)


@dataclass(frozen=True, kw_only=True)
class Epsilon(InputBundle):
    """How far around an input."""

    epsilon: str = described(
        REQUIRED,
        "The radius; where a command takes several: 0.1,0.2 or a grid START:STOP:STEP.",
        metavar="RADIUS",
    )

    @property
    def radius(self) -> float:
        """The one radius of commands that take one."""
        from verifolio.cli.parse import parse_epsilon

        return parse_epsilon(self.epsilon)

    @property
    def radii(self) -> tuple[float, ...]:
        """The radii of commands that take several; none where none is given."""
        from verifolio.cli.parse import parse_epsilons

        return parse_epsilons(self.epsilon) if self.epsilon else ()


@dataclass(frozen=True, kw_only=True)
class Norm(InputBundle):
    """How distances are measured."""

    norm: Literal["l1", "l2", "linf"] = described("linf", "The norm of the radius.")

    @property
    def order(self) -> float:
        """1, 2 or infinity."""
        from verifolio.cli.parse import NORMS

        return NORMS[self.norm]


@dataclass(frozen=True, kw_only=True)
class Reference(InputBundle):
    """What must not change around an input."""

    reference: Literal["label", "predicted"] = described(
        "label", "What must not change: the data's label, or what the network predicts."
    )


@dataclass(frozen=True, kw_only=True)
class About(InputBundle):
    """The property that is asked around every input."""

    property: str = described(
        "classification", "What must hold: a property's name, FILE.yaml or FILE.py.", metavar="NAME|FILE"
    )
    property_option: tuple[str, ...] = described(
        (), "An option of --property; repeatable.", metavar="KEY=VALUE"
    )

    def chosen_property(self) -> Property:
        """The property, with its options."""
        from verifolio.plugin.options import split_pairs
        from verifolio.properties.file import choose_property

        return choose_property(self.property, split_pairs(self.property_option, "--property-option"))


@dataclass(frozen=True, kw_only=True)
class Normalisation(InputBundle):
    """What happens to the data before a network reads it."""

    mean: str = described("", "What the network expects subtracted, per channel.", metavar="NUMBERS")
    std: str = described("", "What the network expects divided by, per channel.", metavar="NUMBERS")


@dataclass(frozen=True, kw_only=True)
class Preprocessing(Normalisation):
    """The same with what comes before it: (x / scale - mean) / std."""

    scale: float = described(
        1.0, "What the network expects the data divided by before that.", metavar="NUMBER"
    )
    channels: Literal["rgb", "bgr"] = described("rgb", "The order of the channels that the network expects.")


@dataclass(frozen=True, kw_only=True)
class Json(OutputBundle):
    """For programs."""

    json: bool = described(False, "Print one JSON object.")


@dataclass(frozen=True, kw_only=True)
class Csv(OutputBundle):
    """A table in a file."""

    csv: str = described("", "Write the table into this file (CSV).", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class Picture(OutputBundle):
    """A picture in a file."""

    picture: str = described("", "Draw the result into this file (png, svg, pdf).", metavar="FILE")


@dataclass(frozen=True, kw_only=True)
class KeepQueries(OutputBundle):
    """The queries as files."""

    keep_queries: str = described(
        "", "Write every query that a verifier gets into this folder (VNN-LIB).", metavar="FOLDER"
    )


@dataclass(frozen=True, kw_only=True)
class Certificate(OutputBundle):
    """Proofs as files."""

    certificate: str = described(
        "",
        "Write what proves the answer into this file, or into a folder where there are several proofs, "
        "for `verifolio check`.",
        metavar="PATH",
    )


@dataclass(frozen=True, kw_only=True)
class Output(OutputBundle):
    """The file or folder that a command is there to write."""

    output: str = described("", "Write the result into this file or folder.", metavar="PATH", short="-o")


def with_default(cls: type[Bundle], name: str, default: Any) -> Any:
    """A word of another bundle with another default; each such place is listed, with its reason, in the tests."""
    from dataclasses import field, fields

    old = next(f for f in fields(cls) if f.name == name)
    return field(default=default, metadata=old.metadata)
