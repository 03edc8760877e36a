"""The page: one self-contained HTML file that makes no request, with its data as JSON in it."""

from __future__ import annotations

import base64
import hashlib
import html
import json
from collections.abc import Mapping
from importlib import resources
from pathlib import Path
from typing import Any

STYLES = ("page.css",)
SCRIPTS = ("tools.js", "charts.js", "table.js", "page.js")
KINDS = {".png": "image/png", ".svg": "image/svg+xml"}
# In a script element, these end it, begin another or are line ends that JavaScript does not allow in text.
DANGEROUS = {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}


def asset(name: str) -> str:
    """A file of this package."""
    return (resources.files(__package__ or "") / "assets" / name).read_text(encoding="utf-8")


def script() -> str:
    """All scripts as one, which leaves no names behind."""
    parts = "\n".join(asset(name) for name in SCRIPTS)
    return f"(() => {{\n'use strict';\n{parts}\n}})();"


def embedded(value: Any) -> str:
    """JSON that may stand in a script element."""
    text = json.dumps(value, ensure_ascii=False, allow_nan=False, separators=(",", ":"))
    for character, safe in DANGEROUS.items():
        text = text.replace(character, safe)
    return text


def with_pictures(content: Mapping[str, Any]) -> dict[str, Any]:
    """The content with the pictures of sections as data addresses."""
    chapters = []
    for one in content["chapters"]:
        shown = [_picture(p["caption"], Path(p["path"])) for p in one["pictures"]]
        chapters.append(dict(one) | {"pictures": shown})
    return dict(content) | {"chapters": chapters}


def _picture(caption: str, path: Path) -> dict[str, Any]:
    """A picture that cannot be read is told as text."""
    others = [f"{path.stem}{ending}" for ending in (".svg", ".pdf", ".png")]
    files = [name for name in others if (path.parent / name).is_file()]
    try:
        data = base64.b64encode(path.read_bytes()).decode()
    except OSError as error:
        return {"caption": caption, "src": "", "missing": f"{path.name}: {error.strerror}", "files": files}
    return {
        "caption": caption,
        "src": f"data:{KINDS.get(path.suffix, 'image/png')};base64,{data}",
        "files": files,
    }


def make_page(content: Mapping[str, Any], source: str = "") -> str:
    """The whole page; `source` is the address that a live page asks for news, by default none."""
    code = script()
    digest = base64.b64encode(hashlib.sha256(code.encode()).digest()).decode()
    connect = "'self'" if source else "'none'"
    policy = (
        f"default-src 'none'; script-src 'sha256-{digest}'; style-src 'unsafe-inline'; img-src data:; "
        f"connect-src {connect}; base-uri 'none'; form-action 'none'"
    )
    title = html.escape(str(content["title"]))
    answers = "".join(f"<p>{html.escape(c['answer'])}</p>" for c in content["chapters"])
    styles = "\n".join(asset(name) for name in STYLES)
    return (
        "<!doctype html>\n<html lang='en'><head><meta charset='utf-8'>"
        f'<meta http-equiv="Content-Security-Policy" content="{policy}">'
        "<meta name='viewport' content='width=device-width, initial-scale=1'>"
        "<meta name='color-scheme' content='light dark'>"
        f"<title>{title}</title><style>{styles}</style></head>\n"
        f"<body data-source='{html.escape(source)}'><main id='page'>"
        f"<noscript><h1>{title}</h1>{answers}<p>Tables and pictures need JavaScript.</p></noscript></main>\n"
        f"<script type='application/json' id='content'>{embedded(content)}</script>\n"
        f"<script>{code}</script></body></html>\n"
    )
