"""The package is what the tree is: nothing missing from pyproject.toml, nothing missing from the wheel."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
FOLDERS = {
    "checker/verifolio_check": "verifolio_check",
    "core": "verifolio",
    "plugins": "verifolio/plugins",
    "vnnlib": "verifolio/vnnlib",
}
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def shipped(suffixes: tuple[str, ...]) -> set[str]:
    """Files of the tree with these endings, by the path they have when installed."""
    found = set()
    for folder, target in FOLDERS.items():
        for path in (ROOT / folder).rglob("*"):
            if path.is_file() and path.name.endswith(suffixes) and "__pycache__" not in path.parts:
                found.add(f"{target}/{path.relative_to(ROOT / folder)}")
    return found


def test_every_package_is_listed() -> None:
    folders = {str(Path(p).parent).replace("/", ".") for p in shipped((".py",))}
    assert folders == set(PROJECT["tool"]["setuptools"]["packages"])


def test_every_plugin_has_an_entry_point() -> None:
    """A folder under plugins that implements hooks is named in the entry-point group."""
    named = set(PROJECT["project"]["entry-points"]["verifolio"].values())
    hooked = {
        f"verifolio.plugins.{p.parent.name}"
        for p in (ROOT / "plugins").glob("*/__init__.py")
        if "@hookimpl" in p.read_text(encoding="utf-8")
    }
    assert hooked == named


def test_pins_satisfy_the_ranges() -> None:
    """constraints.txt pins everything that pyproject.toml asks for, to a version it allows."""
    from packaging.requirements import Requirement
    from packaging.utils import canonicalize_name

    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    pairs = (line.split("==") for line in lines if line and not line.startswith("#"))
    pins = {canonicalize_name(name): version for name, version in pairs}
    extras = PROJECT["project"]["optional-dependencies"]
    for text in (*PROJECT["project"]["dependencies"], *extras["dev"], *extras["docs"]):
        requirement = Requirement(text)
        pinned = pins.get(canonicalize_name(requirement.name))
        assert pinned is not None, f"{text} has no pin"
        assert requirement.specifier.contains(pinned), f"{text} does not allow {pinned}"


def build_wheel(source: Path, target: Path) -> Path:
    """A wheel, built offline with the installed setuptools."""
    command = [sys.executable, "-P", "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation"]
    run = subprocess.run(
        [*command, "--wheel-dir", str(target), str(source)], capture_output=True, text=True, check=False
    )
    assert run.returncode == 0, run.stderr
    return next(target.glob("*.whl"))


def copy_tracked(target: Path) -> None:
    """The tree without what was built in it, so that nothing stale can slip into a wheel."""
    for folder in (*FOLDERS, "LICENSE", "README.md", "pyproject.toml"):
        source = ROOT / folder
        for path in [source] if source.is_file() else source.rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".so":
                copy = target / path.relative_to(ROOT)
                copy.parent.mkdir(parents=True, exist_ok=True)
                copy.write_bytes(path.read_bytes())


def test_wheel_equals_tree(tmp_path: Path) -> None:
    copy_tracked(tmp_path / "tree")
    with zipfile.ZipFile(build_wheel(tmp_path / "tree", tmp_path)) as wheel:
        names = {n for n in wheel.namelist() if ".dist-info/" not in n and not n.endswith((".so", ".pyd"))}
    assert names == shipped((".py", ".pyi", ".yaml", ".js", ".css", ".csv", "py.typed"))


def test_a_strangers_package_installs_and_passes_its_tests(tmp_path: Path) -> None:
    """examples/third_party, installed beside verifolio by nothing but pip, is found and conforms."""
    copy = tmp_path / "third_party"
    for path in (ROOT / "examples/third_party").rglob("*"):
        if path.is_file() and path.suffix in (".py", ".toml", ".md"):
            target = copy / path.relative_to(ROOT / "examples/third_party")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes(path.read_bytes())
    site = install(copy, tmp_path)
    listed = run_command(site, "plugins")
    assert "verifier\tdice\tfalsify\tready" in listed.splitlines()
    assert "verifier\tfractions\tprove\tready" in listed.splitlines()
    network = ROOT / "examples/networks/digits_dense.onnx"
    proved = ROOT / "examples/networks/properties/digits_dense_45_0.01.vnnlib"
    verdict = run_command(site, "verify", str(network), str(proved), "--verifier", "fractions")
    assert verdict.splitlines()[0] == "unsat"
    counted = run_command(site, "count", str(network), str(proved))
    assert counted == "0 sat, 1 unsat, 0 undecided\n"
    rows = "network,split,image_id,label,predicted,lower,upper,gap,status,seconds,queries,cancelled\n"
    rows += "".join(f"n.onnx,test,{k},{k % 2},{k % 2},0.{k + 1},0.9,0.1,open,1.0,3,0\n" for k in range(4))
    (tmp_path / "run.csv").write_text(rows)
    run_command(site, "report", "run.csv", "--section", "by-label", "--output", "page")
    assert (tmp_path / "page/by_label.csv").read_text() == "label,inputs,mean\n0,2,0.2\n1,2,0.3\n"
    assert "Proved radii by class" in (tmp_path / "page/index.html").read_text()
    where = ["critical", str(network), "--data", "digits:test", "--index", "1", "--json"]
    found = json.loads(run_command(site, *where, "--search", "doubling", "--search-option", "first=0.02"))
    assert (found["status"], found["upper"] - found["lower"] <= 1e-3) == ("closed", True)
    run_python(site, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(copy), str(copy / "tests"))


def test_a_new_package_works_as_written(tmp_path: Path) -> None:
    """What `verifolio plugins new` writes installs, is listed, and passes its own tests."""
    run_command(tmp_path, "plugins", "new", "my-dice", "--directory", str(tmp_path))
    folder = tmp_path / "verifolio-my-dice"
    site = install(folder, tmp_path)
    assert "verifier\tmy-dice\tfalsify\tready" in run_command(site, "plugins").splitlines()
    tests = ["-k", "declares or everywhere or corner or refused", str(folder / "tests")]
    run_python(site, "-m", "pytest", "-q", "-c", os.devnull, "--rootdir", str(folder), *tests)


def install(source: Path, folder: Path) -> Path:
    """Install a package into a folder of its own, offline."""
    site = folder / "site"
    command = ["-m", "pip", "install", "--quiet", "--no-deps", "--no-build-isolation", "--target", str(site)]
    run_python(site, *command, str(source))
    return site


def run_python(site: Path, *arguments: str) -> str:
    """Python with `site` on its path; fails with everything that was printed."""
    environment = {**os.environ, "PYTHONPATH": str(site), "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1"}
    run = subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        check=False,
        env=environment,
        cwd=site.parent,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return run.stdout


def run_command(site: Path, *arguments: str) -> str:
    """The command line."""
    return run_python(site, "-c", "from verifolio.cli.main import main; main()", *arguments)
