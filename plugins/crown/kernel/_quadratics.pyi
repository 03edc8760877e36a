from typing import Any

from numpy.typing import NDArray

INTERFACE: int

def bound(
    size: NDArray[Any],
    first: NDArray[Any],
    last: NDArray[Any],
    offset: NDArray[Any],
    weight: NDArray[Any],
    bias: NDArray[Any],
    noise: NDArray[Any],
    kind: NDArray[Any],
    start: NDArray[Any],
    member: NDArray[Any],
    uses: NDArray[Any],
    strict: NDArray[Any],
    phase: NDArray[Any],
    lower: NDArray[Any],
    upper: NDArray[Any],
    score: NDArray[Any],
    corner: NDArray[Any],
    margin: NDArray[Any],
    closed: NDArray[Any],
    /,
) -> None: ...
