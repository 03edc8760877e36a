"""From nothing to a proof, a counterexample and a robustness distribution, with pictures in out/."""

from __future__ import annotations

import csv
import json
import shlex
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import pyplot as plt

from verifolio.data import load_data

ROOT = Path(__file__).resolve().parents[2]
NETWORKS = Path("examples/networks")
OUT = Path("out")
IMAGE, RADIUS = 45, "0.2"
IMAGES = "0:20"
NAMES = {"digits_dense.onnx": "standard training", "digits_robust.onnx": "certified training"}
COLOURS = {"digits_dense.onnx": "#c0392b", "digits_robust.onnx": "#2471a3"}


def run(*arguments: object, quiet: bool = False) -> str:
    """Show and run one command; gives what it printed."""
    words = [str(a) for a in arguments]
    print(f"\n$ {shlex.join(['verifolio', *words])}", flush=True)
    command = [sys.executable, "-P", "-c", "from verifolio.cli.main import main; main()", *words]
    done = subprocess.run(command, cwd=ROOT, stdout=subprocess.PIPE, text=True, check=False)
    if done.returncode not in (0, 3):
        raise SystemExit(f"the command failed with exit code {done.returncode}")
    if not quiet:
        print(done.stdout.rstrip(), flush=True)
    return done.stdout


def find_counterexample() -> dict[str, Any]:
    """A replayed counterexample of the dense network, as the command's JSON object."""
    network = NETWORKS / "digits_dense.onnx"
    property_file = NETWORKS / f"properties/digits_dense_{IMAGE}_{RADIUS}.vnnlib"
    answer: dict[str, Any] = json.loads(run("verify", network, property_file, "--json", quiet=True))
    if answer["verdict"] != "sat":
        raise SystemExit(f"expected a counterexample, got {answer['verdict']}: {answer['reason']}")
    print(f"sat: found by {answer['verifier']} in {answer['seconds']:.2f} s and replayed in ONNX Runtime")
    return answer


def measure() -> list[dict[str, str]]:
    """Critical radii of both networks on the first test images, as the rows of the table."""
    table, store = OUT / "distribution.csv", OUT / "answers.db"
    networks = [NETWORKS / name for name in NAMES]
    limits = ["--indices", IMAGES, "--epsilon", "0.01:0.4:0.01", "--timeout", 4, "--budget", 12, "--jobs", 2]
    text = run(
        "distribution",
        *networks,
        "--data",
        "digits:test",
        *limits,
        "--csv",
        table,
        "--store",
        store,
        quiet=True,
    )
    print("\n".join(line for line in text.splitlines() if "mean lower" in line))
    run("report", store, "--output", OUT / "report", quiet=True)
    with (ROOT / table).open(newline="") as stream:
        return list(csv.DictReader(stream))


def draw_counterexample(axes: list[Any], answer: dict[str, Any]) -> None:
    """The image, its adversarial version, the difference."""
    data = load_data("digits:test")
    image, found = data.image(IMAGE), np.array(answer["witness"]["x"])
    winner = int(np.argmax(answer["witness"]["y"]))
    titles = (
        f"a {data.labels[IMAGE]}",
        f"the network says {winner}",
        f"difference, at most {np.abs(found - image).max():.2f}",
    )
    pictures = ((image, "gray_r", 0, 1), (found, "gray_r", 0, 1), (found - image, "coolwarm", -0.2, 0.2))
    for axis, title, (picture, colours, low, high) in zip(axes, titles, pictures, strict=True):
        axis.imshow(picture.reshape(8, 8), cmap=colours, vmin=low, vmax=high)
        axis.set_title(title, fontsize=9)
        axis.set_axis_off()


def draw_distribution(axis: Any, rows: list[dict[str, str]]) -> None:
    """Which part of the correctly classified images is broken at a radius; the band is what is undecided."""
    for name, label in NAMES.items():
        kept = [r for r in rows if Path(r["network"]).name == name and r["status"] != "misclassified"]
        proved = np.sort([float(r["lower"] or 0) for r in kept])
        broken = np.sort([float(r["upper"] or "inf") for r in kept])
        radii = np.linspace(0, 0.4, 400)
        share = [np.searchsorted(edge, radii, side="right") / len(kept) for edge in (broken, proved)]
        axis.fill_between(radii, share[0], share[1], alpha=0.3, color=COLOURS[name], linewidth=0)
        axis.plot(radii, share[0], color=COLOURS[name], label=f"{label} ({len(kept)} images)")
    axis.set_xlabel("radius (maximum norm)", fontsize=9)
    axis.set_ylabel("images with a counterexample", fontsize=9)
    axis.set_ylim(0, 1.02)
    axis.set_xlim(0, 0.4)
    axis.tick_params(labelsize=8)
    axis.legend(fontsize=8, loc="lower right", frameon=False)
    axis.spines[["top", "right"]].set_visible(False)


def draw(answer: dict[str, Any], rows: list[dict[str, str]]) -> None:
    """Both pictures, alone and together."""
    figure, axes = plt.subplots(1, 3, figsize=(6, 2.3), layout="constrained")
    draw_counterexample(list(axes), answer)
    figure.savefig(ROOT / OUT / "counterexample.png", dpi=110)
    figure, axis = plt.subplots(figsize=(5, 3), layout="constrained")
    draw_distribution(axis, rows)
    figure.savefig(ROOT / OUT / "distribution.png", dpi=110)
    figure, named = plt.subplot_mosaic(
        "abcd", figsize=(10, 2.9), width_ratios=[1, 1, 1, 2.2], layout="constrained"
    )
    draw_counterexample([named[k] for k in "abc"], answer)
    draw_distribution(named["d"], rows)
    figure.savefig(ROOT / OUT / "demo.png", dpi=80)


def main() -> None:
    """Run everything."""
    started = time.monotonic()
    mpl.use("Agg")
    (ROOT / OUT).mkdir(exist_ok=True)
    print("A proof: no image within 0.05 of this one is taken for another digit.")
    run("verify", NETWORKS / "digits_robust.onnx", NETWORKS / "properties/digits_robust_45_0.05.vnnlib")
    print("\nA counterexample: the other network can be fooled within 0.2.")
    answer = find_counterexample()
    print("\nRobustness distributions: critical radii, each between a proof and a counterexample.")
    rows = measure()
    draw(answer, rows)
    print(
        f"\nDone in {time.monotonic() - started:.0f} s. Look at {OUT}/demo.png and {OUT}/report/index.html."
    )


if __name__ == "__main__":
    main()
