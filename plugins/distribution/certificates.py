"""Certificates of proved radii: a folder that `verifolio check` holds against the table."""

from __future__ import annotations

import json
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np

from verifolio.files.names import safe_name
from verifolio.solve.certifying import Certifying, text_of
from verifolio.solve.oracle import Oracle

from .family import Family
from .run import Distribution, Item
from .table import Row

SHOWN = 5  # reasons that are listed; the others are counted


def certify_all(task: Distribution, folder: Path, oracle: Oracle) -> list[str]:
    """A certificate per proved radius, those of earlier sessions included; says how many, and what is missing."""
    places = {item.place: item for item in task.items}
    proved = [row for row in task.rows() if row.lower]

    def one(row: Row) -> str:
        item = places[row.network, row.split, row.image_id]
        (family,) = task._families([item])
        return certify_radius(item, family, row.lower or 0.0, folder, oracle, task.setting.budget)

    with ThreadPoolExecutor(task.jobs, "certificates") as threads:
        said = list(threads.map(one, proved))
    missing = [
        f"{row.network} {row.split} {row.image_id}: {text}"
        for row, text in zip(proved, said, strict=True)
        if text.startswith("not written")
    ]
    more = [f"and {len(missing) - SHOWN} more"] if len(missing) > SHOWN else []
    return [
        f"certificates: {len(proved) - len(missing)} of {len(proved)} radii in {folder}",
        *missing[:SHOWN],
        *more,
    ]


def certify_radius(
    item: Item, family: Family, radius: float, folder: Path, oracle: Oracle, seconds: float
) -> str:
    """The certificate of one radius, or why there is none; one that is there already is kept."""
    if not radius:
        return "not written: no radius was proved"
    name = safe_name("_".join(map(str, item.place)))
    stated, query = statement(item, family, radius), family.query(radius)
    told, target = folder / f"{name}.json", folder / f"{name}.gz"
    if target.exists() and told.exists() and json.loads(told.read_text()) == stated:
        return str(target)
    made = Certifying(oracle).make(query, seconds)
    if made.data:
        folder.mkdir(parents=True, exist_ok=True)
        (folder / f"{name}.vnnlib").write_bytes(text_of(query))
        told.write_text(json.dumps(stated) + "\n")
    return made.save(target)


def statement(item: Item, family: Family, radius: float) -> dict[str, Any]:
    """What the checker needs besides the query: the ball that it has to cover, and the label."""
    name, split, index = item.place

    def numbers(values: Any) -> list[float] | None:
        return None if values is None else np.asarray(values, np.float64).ravel().tolist()

    return {
        "network": name,
        "split": split,
        "image_id": index,
        "label": family.label,
        "radius": radius,
        "low": family.low,
        "high": family.high,
        "mean": numbers(family.mean),
        "std": numbers(family.std),
        "x": numbers(family.x),
    }
