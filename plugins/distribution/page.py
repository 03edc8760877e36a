"""The page of a report: tables and pictures in one self-contained HTML file."""

from __future__ import annotations

import base64
import html
from collections.abc import Sequence
from pathlib import Path

from verifolio.plugin.section import Table

STYLE = (
    "body{font:15px/1.45 system-ui,sans-serif;margin:2em auto;max-width:66em;padding:0 1em;color:#222}"
    "table{border-collapse:collapse;margin:.6em 0 1.6em;display:block;overflow-x:auto;font-size:14px}"
    "td,th{padding:.25em .7em;border-bottom:1px solid #ddd;text-align:right;white-space:nowrap}"
    "th{white-space:normal;vertical-align:bottom;min-width:4.5em}"
    "td:first-child,th:first-child{text-align:left}img{max-width:100%}h2{margin-top:1.8em}p{max-width:48em}"
    "nav{columns:2;font-size:14px}"
)
INTRODUCTION = (
    "A critical radius is the distance of the closest counterexample. Its lower side is proved, its upper side is "
    "the distance of a counterexample that was replayed; every count below is an interval between what is proved "
    "and what is not refuted."
)


def make_page(tables: Sequence[Table], pictures: Sequence[tuple[str, Path]]) -> str:
    """The page."""
    titles = [*(t.title for t in tables), *(caption for caption, _ in pictures)]
    links = "".join(f"<div><a href='#s{k}'>{html.escape(t)}</a></div>" for k, t in enumerate(titles))
    sections = [_table(k, t) for k, t in enumerate(tables)]
    sections += [_picture(k, *p) for k, p in enumerate(pictures, len(tables))]
    title = "Robustness distributions"
    return (
        f"<!doctype html><html lang='en'><head><meta charset='utf-8'><title>{title}</title>"
        f"<style>{STYLE}</style></head><body><h1>{title}</h1><p>{INTRODUCTION}</p>"
        f"<nav>{links}</nav>{''.join(sections)}</body></html>\n"
    )


def _table(k: int, table: Table) -> str:
    head = "".join(f"<th>{html.escape(c)}</th>" for c in table.columns)
    body = "".join(
        "<tr>" + "".join(f"<td>{html.escape(cell)}</td>" for cell in row) + "</tr>" for row in table.rows
    )
    return f"<h2 id='s{k}'>{html.escape(table.title)}</h2><table><tr>{head}</tr>{body}</table>"


def _picture(k: int, caption: str, path: Path) -> str:
    data = base64.b64encode(path.read_bytes()).decode()
    text = html.escape(caption)
    return f"<h2 id='s{k}'>{text}</h2><img alt='{text}' src='data:image/png;base64,{data}'>"
