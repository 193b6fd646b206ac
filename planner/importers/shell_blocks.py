"""How the statements of a shell script are put together: blocks, branches, conditions."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase

from planner.errors import Refused
from planner.importers.shell_expand import Value, joined
from planner.importers.shell_words import Token

SHELLS = ("sh", "bash", "zsh", "dash")


def compared(left: str, sign: str, right: str) -> bool:
    """`a == b`, `a != b`, `3 -gt 2`; what is no number compares as false."""
    if sign in ("=", "=="):
        return fnmatchcase(left, right)
    if sign == "!=":
        return not fnmatchcase(left, right)
    try:
        a, b = int(left), int(right)
    except ValueError:
        return False
    signs = {"-eq": a == b, "-ne": a != b, "-gt": a > b, "-ge": a >= b, "-lt": a < b, "-le": a <= b}
    return signs.get(sign, {"<": a < b, ">": a > b}.get(sign, False))


def condition_words(token: Token, values: Mapping[str, Value]) -> list[str]:
    """A word of a condition: never split, and there even where it is empty."""
    return [joined(token.text, values)] if token.kind == "word" else []


def is_call(tokens: Sequence[Token], at: int) -> bool:
    """`name()`: the start of a function."""
    following = [token.text for token in tokens[at + 1 : at + 3]]
    return tokens[at].kind == "word" and following == ["(", ")"]


def shell_text(words: Sequence[str]) -> str | None:
    """The text behind `bash -c`, wherever it stands in a command."""
    for place, word in enumerate(words[:-1]):
        if word.rsplit("/", 1)[-1] in SHELLS:
            for offset, option in enumerate(words[place + 1 : -1], place + 1):
                if re.fullmatch(r"-[a-z]*c", option):
                    return words[offset + 1]
    return None


def block_end(tokens: Sequence[Token], at: int) -> int:
    """Behind the `fi`, `done` or `esac` that closes the block at `at`."""
    closes = {"if": "fi", "for": "done", "while": "done", "case": "esac"}
    stack: list[str] = []
    for place in range(at, len(tokens)):
        text = tokens[place].text if tokens[place].kind == "word" and starts(tokens, place) else ""
        if text in closes:
            stack.append(closes[text])
        elif stack and text == stack[-1]:
            stack.pop()
            if not stack:
                return place + 1
    raise Refused(
        f"line {tokens[at].line}: `{tokens[at].text}` without `{closes[tokens[at].text]}`", "a whole block"
    )


def starts(tokens: Sequence[Token], at: int) -> bool:
    """A word at the start of a command, where keywords count."""
    before = tokens[at - 1] if at else None
    keywords = ("then", "do", "else", "elif", "if", "while", "{", "!")
    return before is None or before.kind == "operator" or before.kind == "array" or before.text in keywords


def branches(tokens: Sequence[Token]) -> list[tuple[Sequence[Token] | None, Sequence[Token]]]:
    """(condition, body) of an `if` block, the `else` without a condition."""
    found: list[tuple[Sequence[Token] | None, Sequence[Token]]] = []
    depth, start, condition = 0, 1, None
    pending: Sequence[Token] | None = None
    for place in range(len(tokens)):
        token = tokens[place]
        text = token.text if token.kind == "word" and starts(tokens, place) else ""
        depth += {"if": 1, "for": 1, "while": 1, "case": 1, "fi": -1, "done": -1, "esac": -1}.get(text, 0)
        if depth == 1 and text == "then":
            pending, start = stripped(tokens[start:place]), place + 1
        elif (depth == 1 and text in ("elif", "else")) or (depth == 0 and text == "fi"):
            found.append((pending, tokens[start:place]))
            start, pending = place + 1, condition
    return found


def stripped(tokens: Sequence[Token]) -> Sequence[Token]:
    """Without the `;` or line end before `then`."""
    kept = list(tokens)
    while kept and kept[-1].text in (";", "\n"):
        kept.pop()
    return [token for token in kept if token.text != "\n"]


def split_on(tokens: Sequence[Token], signs: Sequence[str]) -> list[tuple[list[Token], str]]:
    """Groups of tokens between signs, each with the sign behind it."""
    found: list[tuple[list[Token], str]] = [([], "")]
    for token in tokens:
        if token.text in signs:
            found[-1] = (found[-1][0], token.text)
            found.append(([], ""))
        else:
            found[-1][0].append(token)
    return found


def arms(tokens: Sequence[Token]) -> list[tuple[list[str], Sequence[Token]]]:
    """(patterns, body) of a `case` block."""
    found: list[tuple[list[str], Sequence[Token]]] = []
    for group, _ in split_on(tokens, (";;",)):
        close = next((i for i, token in enumerate(group) if token.text == ")"), None)
        if close is not None:
            found.append(([t.text for t in group[:close] if t.kind == "word"], group[close + 1 :]))
    return found
