"""The report's page in a real browser: every picture is drawn, every link leads somewhere, nothing overflows."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from verifolio.plugin.section import Table
from verifolio.plugins.distribution.page import make_page

BROWSER = next(filter(None, map(shutil.which, ("chromium", "google-chrome", "chromium-browser"))), None)
FLAGS = [
    "--headless",
    "--no-sandbox",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--virtual-time-budget=5000",
    "--dump-dom",
]
PROBE = """<script>addEventListener('load', () => { document.title = JSON.stringify({
    pictures: [...document.images].map(i => i.naturalWidth),
    dead: [...document.links].filter(a => !document.querySelector(a.hash)).length,
    links: document.links.length,
    wide: document.documentElement.scrollWidth - document.documentElement.clientWidth,
    cell: document.querySelector('td').textContent})})</script>"""


@pytest.mark.skipif(BROWSER is None, reason="no chromium or google-chrome on this machine")
@pytest.mark.parametrize("width", [1200, 500])
def test_a_browser_shows_the_whole_page(tmp_path: Path, width: int) -> None:
    import matplotlib.image
    import numpy as np

    picture = tmp_path / "one.png"
    matplotlib.image.imsave(picture, np.zeros((40, 1600, 3)))
    table = Table("wide", "A <wide> table", tuple(f"column {k}" for k in range(40)), (("<b>1</b>",) * 40,))
    page = tmp_path / "index.html"
    page.write_text(make_page([table], [("A 'quoted' & long picture", picture)]) + PROBE)
    where = [f"--user-data-dir={tmp_path / 'profile'}", f"--window-size={width},900", page.as_uri()]
    shown = subprocess.run([str(BROWSER), *FLAGS, *where], capture_output=True, text=True, timeout=60)
    title = re.search(r"<title>(\{.*?\})</title>", shown.stdout)
    assert title is not None, shown.stderr[-2000:]
    seen = json.loads(title.group(1).replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&"))
    assert seen == {"pictures": [1600], "dead": 0, "links": 2, "wide": 0, "cell": "<b>1</b>"}
