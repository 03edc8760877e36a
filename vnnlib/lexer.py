"""Text to parenthesised forms; plain comparisons, of which files consist, are recognised in one step."""

from __future__ import annotations

import re
from collections.abc import Iterator

from verifolio.vnnlib.errors import shorten
from verifolio.vnnlib.source import Source
from verifolio.vnnlib.tree import Apply, Assertion, Atom, Constant, Form, Item

MAX_DEPTH = 150  # later stages recurse over the tree, so this keeps them far from Python's own limit

_SYMBOL = r'[^\s()\[\];"]++'
_TERM = _SYMBOL + r'(?:\s*+\[[^\[\]();"]*+\])?+'
_COMPARISON = rf"\(\s*+(<=|>=|==|!=|<|>|=)\s++({_TERM})\s++({_TERM})\s*+\)"
# Possessive quantifiers keep matching linear on hostile text.
_TOKEN = re.compile(
    r"(?:\s|;[^\n\r]*+)*+()(?:"
    rf"\(\s*+assert\s*+{_COMPARISON}\s*+\)"  # groups 2, 3, 4
    rf"|{_COMPARISON}"  # 5, 6, 7
    rf"|\(\s*+declare-const\s++({_SYMBOL})\s++({_SYMBOL})\s*+\)"  # 8, 9
    rf"|(\()|(\))|({_SYMBOL})|(\[[^\[\]();\"]*+\])|(\"[^\"\n]*+\")|(.)|\Z)",  # 10 .. 15
    re.DOTALL,
)
_END, _ASSERTION, _PLAIN, _CONSTANT, _OPEN, _CLOSE, _STRAY = 1, 4, 7, 9, 10, 11, 15


def read_items(source: Source) -> Iterator[Item]:
    """Yield the top-level items of a text, checking parentheses, depth and stray characters."""
    stack: list[tuple[int, list[Item]]] = []
    for match in _TOKEN.finditer(source.text):
        kind = match.lastindex
        offset = match.start(1)
        item: Item
        if kind == _ASSERTION:
            operator, left, right = match.group(2, 3, 4)
            pair = (Atom(match.start(3), left), Atom(match.start(4), right))
            item = Assertion(offset, Apply(match.start(2), operator, pair))
        elif kind == _PLAIN:
            operator, left, right = match.group(5, 6, 7)
            item = Apply(offset, operator, (Atom(match.start(6), left), Atom(match.start(7), right)))
        elif kind == _CONSTANT:
            item = Constant(offset, match.group(8), match.group(9))
        elif kind == _OPEN:
            stack.append((offset, []))
            if len(stack) > MAX_DEPTH:
                raise _too_deep(source, offset)
            continue
        elif kind == _CLOSE:
            if not stack:
                raise _unopened(source, offset)
            start, items = stack.pop()
            item = Form(start, tuple(items))
        elif kind == _STRAY:
            raise _stray(source, offset)
        elif kind == _END or kind is None:
            break
        else:
            item = Atom(offset, match.group(kind))
        if stack:
            stack[-1][1].append(item)
        else:
            yield item
    if stack:
        raise _unclosed(source, stack[-1][0])


def _too_deep(source: Source, offset: int) -> Exception:
    return source.error(
        offset,
        expected=f"at most {MAX_DEPTH} nested parentheses",
        got="one more",
        remedy="flatten the formula",
    )


def _unopened(source: Source, offset: int) -> Exception:
    return source.error(
        offset, expected="a command", got="')' that closes nothing", remedy="remove it or add its '('"
    )


def _unclosed(source: Source, offset: int) -> Exception:
    return source.error(
        offset,
        expected="')' that closes this '('",
        got="the end of the text",
        remedy="balance the parentheses",
    )


def _stray(source: Source, offset: int) -> Exception:
    got = shorten(source.text[offset])
    return source.error(
        offset, expected="a parenthesis, a name or a number", got=got, remedy="remove or close it"
    )
