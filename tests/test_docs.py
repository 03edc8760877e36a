"""Every example in the README and in docs/ runs and prints what the page says; every link leads somewhere.

Fences of python, console and sh are executed, page by page, in an empty folder in which `examples` is the
project's own. `<!-- file: NAME -->` before a fence writes it to a file, `<!-- not run: REASON -->` leaves it
out. In console output `...` stands for anything.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / "docs"
PAGES = sorted([*ROOT.glob("*.md"), *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("README.md")])
GENERATORS = sorted(DOCS.glob("build_*.py"))
FENCE = re.compile(r"(?:<!-- (file|not run): (.+?) -->\n)?^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)#\s]*)(?:#([^)\s]+))?\)")
HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: what its comment says, its language, its text, the line it starts at."""

    directive: str
    value: str
    language: str
    text: str
    line: int


def blocks(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(m[1] or "", m[2] or "", m[3], m[4], text[: m.start(3)].count("\n") + 1)
        for m in FENCE.finditer(text)
    ]


def runnable(page: Path) -> bool:
    return any(b.language in ("python", "console", "sh") and b.directive != "not run" for b in blocks(page))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    return tmp_path


def environment(place: Path) -> dict[str, str]:
    """Commands of this interpreter first; a page can import its files; pip works offline, into its own folder."""
    return {
        **os.environ,
        "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
        "PYTHONSAFEPATH": "1",
        "PYTHONPATH": f"{place / 'site'}{os.pathsep}{place}",
        "OMP_NUM_THREADS": "1",
        "PIP_TARGET": str(place / "site"),
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads the variables of its no-options the other way round
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
        "PYTEST_ADDOPTS": f"-c {os.devnull} --rootdir {place} -p no:cacheprovider",
    }


def shell(script: str, place: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["bash", "-c", script],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
        cwd=place,
        env=environment(place),
    )


def pattern_of(want: str) -> str:
    """Output as a regular expression: `...` is any text within a line, or any number of lines on its own."""
    lines = []
    for line in want.splitlines():
        inner = re.escape(line).replace(r"\.\.\.", r"[^\n]*?")
        lines.append(r"(?:[^\n]*\n)*?" if line == "..." else rf"{inner}\n")
    return "".join(lines)


def run_console(block: Block, place: Path) -> str:
    """All commands in one shell; what each prints is compared with what follows it on the page."""
    mark = "@@@@"
    parts = re.split(r"^\$ ", block.text, flags=re.MULTILINE)[1:]
    commands = [p.partition("\n")[0] for p in parts]
    wanted = [p.partition("\n")[2] for p in parts]
    # the mark keeps the exit code for a following `echo $?`
    script = "\n".join(f'{c}\n_code=$?; echo "{mark}"; (exit $_code)' for c in commands)
    printed = shell(script, place).stdout.split(f"{mark}\n")
    for command, want, got in zip(commands, wanted, printed, strict=False):
        if not re.fullmatch(pattern_of(want), got if got.endswith("\n") or not got else f"{got}\n"):
            return f"$ {command}\nexpected:\n{want}\ngot:\n{got}"
    return ""


def run_block(block: Block, place: Path, before: list[str]) -> str:
    """What went wrong, or nothing; python is collected in `before`, and run at the end of the page."""
    if block.directive == "file":
        target = place / block.value
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text(block.text, encoding="utf-8")
        return ""
    if block.language == "console":
        return run_console(block, place)
    if block.language == "sh":
        done = shell("set -e\n" + block.text, place)
        return done.stdout if done.returncode else ""
    before.append(block.text)
    return ""


def run_python(texts: list[str], place: Path) -> str:
    """All python of a page so far, as one module: names of earlier blocks stay known."""
    code = place / "page.py"
    code.write_text("\n".join(texts), encoding="utf-8")
    done = shell(f"python {code.name}", place)
    return done.stdout if done.returncode else ""


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", [p for p in PAGES if runnable(p)], ids=lambda p: str(p.relative_to(ROOT)))
def test_examples_run(page: Path, place: Path) -> None:
    before: list[str] = []
    for block in blocks(page):
        wanted = block.language in ("python", "console", "sh") or block.directive == "file"
        if block.directive == "not run" or not wanted:
            continue
        trouble = run_block(block, place, before)
        assert not trouble, f"{page.relative_to(ROOT)}:{block.line}:\n{trouble}"
    trouble = run_python(before, place) if before else ""
    assert not trouble, f"{page.relative_to(ROOT)}:\n{trouble}"


def prose(page: Path) -> str:
    """A page without its fenced blocks, in which brackets and signs have other meanings."""
    return FENCE.sub("", page.read_text(encoding="utf-8"))


def anchor(heading: str) -> str:
    """What GitHub and MkDocs both call a heading, without its marks of code and emphasis."""
    text = re.sub(r"[^\w\s-]", "", heading.replace("*", "")).strip().lower()
    return re.sub(r"\s", "-", text)


def broken_links(page: Path) -> list[str]:
    """Links to files that are not there, or to headings that those files do not have."""
    broken = []
    for target, part in LINK.findall(prose(page)):
        if "://" in target:
            continue
        path = page.parent / target if target else page
        known = [anchor(h) for h in HEADING.findall(prose(path))] if part and path.is_file() else [part]
        if not path.exists() or part not in known:
            broken.append(f"{target}#{part}" if part else target)
    return broken


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_links_lead_somewhere(page: Path) -> None:
    assert not broken_links(page)


def test_the_page_of_commands_is_fresh() -> None:
    from verifolio.cli.reference import PAGE, render

    assert (ROOT / PAGE).read_text(encoding="utf-8") == render(), "run `make reference`"


def test_a_broken_link_is_noticed(tmp_path: Path) -> None:
    (tmp_path / "other.md").write_text("# One `two(x)`\n```\n# no heading\n```\n", encoding="utf-8")
    page = tmp_path / "page.md"
    page.write_text(
        "[a](other.md#one-twox) [b](other.md#no-heading) [c](none.md) [d](#e)\n\n# E\n", encoding="utf-8"
    )
    assert broken_links(page) == ["other.md#no-heading", "none.md"]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_paths_of_the_repository_exist(page: Path) -> None:
    """A source file or folder of ours that a page names is there; tables are made by running something."""
    folders = "core|plugins|vnnlib|checker|tests|benchmarks|examples|docs"
    named = re.findall(rf"`((?:{folders})/[a-z_0-9/]*(?:\.py|\.md|\.yaml|\.c)?)`", prose(page))
    assert not [path for path in named if not (ROOT / path).exists()]


@pytest.mark.parametrize("page", sorted(DOCS.rglob("*.md")), ids=lambda p: str(p.relative_to(ROOT)))
def test_pages_link_within_the_site(page: Path) -> None:
    """The site has the files below docs/ and no others."""
    paths = [
        (page.parent / target).resolve() for target, _ in LINK.findall(prose(page)) if "://" not in target
    ]
    assert not [p for p in paths if not p.is_relative_to(DOCS)]


@pytest.mark.parametrize("page", PAGES, ids=lambda p: str(p.relative_to(ROOT)))
def test_lists_and_tables_have_a_blank_line_before(page: Path) -> None:
    """MkDocs takes a list or a table that follows a line of text directly for more of that text."""
    starts = re.compile(r"^(?![-#|\s]|\d+\. |<!--)[^\n]+\n(?=- |\d+\. |\|)", re.MULTILINE)
    assert not starts.findall(prose(page))


def pages_of(entry: object) -> list[str]:
    """The files that an entry of the navigation names, at any depth."""
    if isinstance(entry, str):
        return [entry]
    inner = entry.values() if isinstance(entry, dict) else entry if isinstance(entry, list) else ()
    return [page for part in inner for page in pages_of(part)]


def test_every_page_is_in_the_navigation_once() -> None:
    settings = yaml.safe_load((ROOT / "mkdocs.yml").read_text(encoding="utf-8"))
    present = sorted(p.relative_to(DOCS).as_posix() for p in DOCS.rglob("*.md"))
    assert sorted(pages_of(settings["nav"])) == present


@pytest.mark.parametrize("script", GENERATORS, ids=lambda p: p.name)
def test_generated_pages_are_fresh(script: Path) -> None:
    command = [sys.executable, "-P", str(script), "--check"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_the_reference_has_every_exported_name() -> None:
    import verifolio

    headings = HEADING.findall(prose(DOCS / "reference/api.md"))
    assert [name for name in verifolio.__all__ if headings.count(name) != 1] == []


def test_the_glossary_names_modules_that_exist() -> None:
    text = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    named = re.findall(r"`((?:core|plugins|vnnlib|checker)/[\w/]+\.\w+)`", text)
    assert len(named) >= 20
    assert [name for name in named if not (ROOT / name).is_file()] == []


def test_the_tests_that_the_page_of_soundness_names_exist() -> None:
    text = (DOCS / "explanation" / "soundness.md").read_text(encoding="utf-8")
    files = list((ROOT / "tests").rglob("test_*.py"))
    defined = "".join(p.read_text(encoding="utf-8") for p in files)
    for name in re.findall(r"`(test_\w+\.py)`", text):
        assert name in {p.name for p in files}, name
    for name, cut in re.findall(r"`(test_\w+)(\.\.\.)?`", text):
        assert f"def {name}" + ("" if cut else "(") in defined, name


def test_the_readme_lists_every_verifier() -> None:
    """The table of verifiers has everything that the package itself registers."""
    from verifolio.plugin.manager import current_plugins

    text = (ROOT / "README.md").read_text(encoding="utf-8")
    ours = [c.name for c in current_plugins().verifiers if c.__module__.startswith("verifolio.plugins.")]
    assert not [name for name in ours if f"`{name}`" not in text]
