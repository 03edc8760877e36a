"""The proved checker says what the checker in Python says, of certificates, of changed ones and of false claims."""

from __future__ import annotations

import gzip
import random
import shutil
import subprocess
import sys
from functools import lru_cache
from pathlib import Path
from tempfile import mkdtemp

import pytest

from verifolio.testing.damage import damaged
from verifolio_check.main import INVALID, VALID, run

ROOT = Path(__file__).resolve().parents[2]
KEPT = ROOT / "tests" / "checker" / "certificates"
NAMES = sorted(p.stem for p in KEPT.glob("*.gz"))
MISSING = [tool for tool in ("coqc", "ocamlfind", "make") if shutil.which(tool) is None]
CHANGES = 12  # of each certificate; benchmarks/proof.py makes as many as asked for


@lru_cache(maxsize=1)
def program() -> Path:
    """Built once; a skip says what is missing."""
    if MISSING:
        pytest.skip(
            f"the proved checker needs {', '.join(MISSING)}: apt-get install coq ocaml-findlib libzarith-ocaml-dev"
        )
    folder = Path(mkdtemp())
    made = subprocess.run(
        ["make", "-C", str(ROOT / "proof"), f"BUILD={folder}"], capture_output=True, text=True, check=False
    )
    assert made.returncode == 0, made.stderr[-2000:]
    said = made.stdout
    assert "Axioms:" in said
    found = [
        line.split(" :")[0].strip()
        for line in said.split("Axioms:")[1].splitlines()
        if not line.startswith(" ")
    ]
    allowed = {
        "ClassicalDedekindReals.sig_forall_dec",
        "ClassicalDedekindReals.sig_not_dec",
        "FunctionalExtensionality.functional_extensionality_dep",
    }
    assert {name for name in found if "." in name and " " not in name} <= allowed
    return folder / "verifolio-proof-check"


def terms_of(net: Path, prop: Path, target: Path) -> int:
    command = [sys.executable, str(ROOT / "proof" / "terms.py"), str(net), str(prop)]
    with target.open("w") as file:
        return subprocess.run(command, stdout=file, stderr=subprocess.DEVNULL, check=False).returncode


def proved(terms: Path, certificate: bytes) -> int:
    done = subprocess.run(
        [str(program()), str(terms)], input=certificate, capture_output=True, check=False, timeout=60
    )
    return done.returncode


def files_of(name: str) -> tuple[Path, Path, bytes]:
    text = gzip.decompress((KEPT / f"{name}.gz").read_bytes())
    return KEPT / f"{name}.onnx", KEPT / f"{name}.vnnlib", text


def test_no_proof_is_left_out() -> None:
    for path in (ROOT / "proof").glob("*.v"):
        text = path.read_text()
        assert not any(word in text for word in ("Admitted", "admit.", "Axiom", "Parameter", "Abort")), (
            path.name
        )


@pytest.mark.parametrize("name", NAMES)
def test_both_checkers_agree(name: str, tmp_path: Path) -> None:
    net, prop, text = files_of(name)
    program()
    terms = tmp_path / "terms"
    if terms_of(net, prop, terms):
        assert name == "sigmoid"  # the proved checker knows ReLU networks only
        return
    assert proved(terms, text) == VALID == run(net, prop, KEPT / f"{name}.gz")[0]
    rng, other = random.Random(name), tmp_path / "c.gz"
    for _ in range(CHANGES):
        mutant = damaged(text, rng)
        other.write_bytes(gzip.compress(mutant))
        ours, theirs = run(net, prop, other), proved(terms, mutant)
        assert (ours[0] == VALID) == (theirs == VALID), (mutant, ours, theirs)


def test_a_false_claim_is_not_accepted(tmp_path: Path) -> None:
    """The same tree about a threshold that a point attains."""
    net, prop, text = files_of("boxes")
    program()
    false = tmp_path / "p.vnnlib"
    false.write_text(prop.read_text().replace("(<= Y_0 -", "(>= Y_0 -"))
    assert false.read_text() != prop.read_text()
    terms = tmp_path / "terms"
    assert terms_of(net, false, terms) == 0
    hashes = terms.read_text().split()[1:3]
    lines = text.split(b"\n")
    lines[1:3] = [f"network {hashes[0]}".encode(), f"property {hashes[1]}".encode()]
    assert proved(terms, b"\n".join(lines)) == INVALID
