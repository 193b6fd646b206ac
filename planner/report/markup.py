"""Small pieces of HTML; whatever text comes in is escaped here."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape


def section(title: str, *parts: str) -> str:
    """A section under its heading."""
    return f"<section><h2>{escape(title)}</h2>\n{''.join(parts)}</section>"


def paragraph(text: str, kind: str = "") -> str:
    """A paragraph, of a class."""
    return f"<p{_class(kind)}>{escape(text)}</p>\n" if text else ""


def bullets(texts: Iterable[str]) -> str:
    """A list of sentences."""
    items = "".join(f"<li>{escape(text)}</li>" for text in texts)
    return f'<ul class="plain">{items}</ul>\n' if items else ""


def facts(rows: Iterable[tuple[str, str]]) -> str:
    """Names and what is to be said of each."""
    cells = "".join(f"<tr><th>{escape(name)}</th><td>{escape(text)}</td></tr>" for name, text in rows)
    return f'<table class="stack"><tbody>{cells}</tbody></table>\n'


def numbers(
    heads: Sequence[str], rows: Iterable[Sequence[str]], keys: Sequence[str] = (), total: bool = False
) -> str:
    """A table whose first column is words and the others numbers; `keys` colours its rows."""
    head = "".join(f"<th{_class('n' if i else '')}>{escape(text)}</th>" for i, text in enumerate(heads))
    lines = []
    listed = list(rows)
    for place, row in enumerate(listed):
        key = _key(keys[place]) if place < len(keys) else ""
        cells = "".join(
            f"<td{_class('n' if i else '')}>{key if not i else ''}{escape(text)}</td>"
            for i, text in enumerate(row)
        )
        lines.append(f"<tr{_class('total' if total and place == len(listed) - 1 else '')}>{cells}</tr>")
    body = "".join(lines)
    return f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>\n'


def legend(entries: Iterable[tuple[str, str]]) -> str:
    """Colours and what they mean."""
    items = "".join(f"<li>{_key(color)}{escape(text)}</li>" for text, color in entries)
    return f'<ul class="legend">{items}</ul>\n'


def chart(name: str, words: str) -> str:
    """The place of a chart, with what it shows for those who cannot see it."""
    return f'<div class="chart" id="chart-{escape(name)}" role="img" aria-label="{escape(words)}"></div>\n'


def tiles(entries: Iterable[tuple[str, str, str]]) -> str:
    """Key figures: a name, the figure, and a word below it."""
    made = "".join(
        f"<div><dt>{escape(name)}</dt><dd>{escape(value)}<small>{escape(below)}</small></dd></div>"
        for name, value, below in entries
    )
    return f'<dl class="tiles">{made}</dl>\n'


def _key(color: str) -> str:
    return f'<span class="key" style="background:{escape(color)}"></span>'


def _class(kind: str) -> str:
    return f' class="{escape(kind)}"' if kind else ""
