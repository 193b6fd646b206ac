"""What a shell makes of a word: variables, defaults, arithmetic, arrays, quotes, fields."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from typing import Any

Value = str | list[str]
UNKNOWN = "\0"
"""Brackets what a script alone does not say: `\\0NNODES\\0` for a variable that it never sets."""
UNSET = re.compile(f"{UNKNOWN}([^{UNKNOWN}]*){UNKNOWN}")
NAME = re.compile(r"[A-Za-z_]\w*|[0-9@*#?$!]")
BRACED = re.compile(r"(#?)([A-Za-z_]\w*|[0-9@*]+)(?:\[([^\]]*)\])?(.*)", re.DOTALL)
DEFAULT = re.compile(r"(:?[-=+?])(.*)", re.DOTALL)
CUT = re.compile(r"(%%?|##?)(.*)", re.DOTALL)
LARGEST = 2**63
ARITHMETIC: dict[type[ast.AST], Callable[..., Any]] = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Mod: operator.mod,
    ast.Div: operator.floordiv,
    ast.FloorDiv: operator.floordiv,
    ast.USub: operator.neg,
    ast.UAdd: operator.pos,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}


def unknown(name: str) -> str:
    """The mark of a value that the script does not have."""
    return f"{UNKNOWN}{name}{UNKNOWN}"


def unset_in(text: str) -> list[str]:
    """Names of what a text would need from outside."""
    return UNSET.findall(text)


def fields(raw: str, values: Mapping[str, Value]) -> list[str]:
    """A word's fields: none, one, or many where an unquoted variable or an array holds several."""
    done: list[str] = []
    current: list[str] = []
    started = False
    for text, quoted in parts(raw, values):
        if isinstance(text, list):
            pieces = [each for item in text for each in ([item] if quoted else item.split())]
        elif quoted:
            current.append(text)
            started = True
            continue
        else:
            pieces = text.split()
            if text[:1].isspace() and (started or current):
                done.append("".join(current))
                current, started = [], False
        if not pieces:
            continue
        current.append(pieces[0])
        for piece in pieces[1:]:
            done.append("".join(current))
            current = [piece]
        started = True
        if isinstance(text, str) and text[-1:].isspace():
            done.append("".join(current))
            current, started = [], False
    return [*done, "".join(current)] if started else done


def joined(raw: str, values: Mapping[str, Value]) -> str:
    """A word as one text, as in an assignment."""
    return "".join(" ".join(text) if isinstance(text, list) else text for text, _ in parts(raw, values))


def parts(raw: str, values: Mapping[str, Value]) -> list[tuple[Value, bool]]:
    """Stretches of a word with their values, and whether they are safe from being split."""
    found: list[tuple[Value, bool]] = []
    at = 0
    while at < len(raw):
        letter = raw[at]
        if letter == "'":
            end = raw.index("'", at + 1)
            found.append((raw[at + 1 : end], True))
            at = end + 1
        elif letter == '"':
            at = _double(raw, at + 1, values, found)
        elif letter == "\\":
            found.append((raw[at + 1 : at + 2], True))
            at += 2
        elif letter in "$`":
            value, at = expansion(raw, at, values)
            found.append((value, False))
        else:
            end = min([i for i in (raw.find(c, at) for c in "'\"\\$`") if i >= 0], default=len(raw))
            found.append((raw[at:end], True))
            at = end
    return found


def _double(raw: str, at: int, values: Mapping[str, Value], found: list[tuple[Value, bool]]) -> int:
    """Reads up to the closing quote; variables are still replaced, and arrays keep their items."""
    if raw[at : at + 1] == '"':
        found.append(("", True))
    while at < len(raw) and raw[at] != '"':
        if raw[at] in "$`":
            value, at = expansion(raw, at, values)
        elif raw[at] == "\\" and raw[at + 1 : at + 2] in '"\\$`':
            value, at = raw[at + 1], at + 2
        else:
            value, at = raw[at], at + 1
        found.append((value, True))
    return at + 1


def expansion(raw: str, at: int, values: Mapping[str, Value]) -> tuple[Value, int]:
    """The value of `$...` or `` `...` `` that starts at `at`, and where it ends."""
    if raw[at] == "`":
        end = raw.find("`", at + 1)
        return unknown(raw[at : end + 1]), end + 1
    if raw.startswith("$((", at):
        end = _closing(raw, at + 1)
        return arithmetic(raw[at + 3 : end - 2], values), end
    if raw.startswith("$(", at):
        end = _closing(raw, at + 1)
        return unknown(raw[at:end]), end
    if raw.startswith("${", at):
        end = _closing(raw, at + 1)
        return braced(raw[at + 2 : end - 1], values), end
    match = NAME.match(raw, at + 1)
    if not match:
        return "$", at + 1
    return named(match.group(0), values), match.end()


def _closing(raw: str, at: int) -> int:
    """Behind the bracket that closes the one at `at`."""
    depth = 0
    for place in range(at, len(raw)):
        depth += {"(": 1, "{": 1, ")": -1, "}": -1}.get(raw[place], 0)
        if depth == 0:
            return place + 1
    return len(raw)


def named(name: str, values: Mapping[str, Value]) -> Value:
    """A variable; of an array the first item, as bash has it. One that is not set is marked."""
    if name not in values:
        return [] if name in "@*" else unknown(name)
    value = values[name]
    if isinstance(value, list) and name not in "@*":
        return value[0] if value else ""
    return value


def braced(text: str, values: Mapping[str, Value]) -> Value:
    """`${NAME}`, `${NAME[@]}`, `${#NAME[@]}`, `${NAME:-default}`, `${NAME##*/}`."""
    match = BRACED.fullmatch(text)
    if not match:
        return unknown(text)
    counted, name, index, rest = match.groups()
    value = named(name, values)
    if index is not None:
        value = _item(values.get(name, []), index, values)
    if counted:
        return str(len(value))
    if default := DEFAULT.fullmatch(rest):
        return _defaulted(value, default.group(1), default.group(2), values)
    if isinstance(value, str) and (cut := CUT.fullmatch(rest)):
        return _cut(value, cut.group(1), joined(cut.group(2), values))
    return unknown(text) if rest else value


def _item(value: Value, index: str, values: Mapping[str, Value]) -> Value:
    items = value if isinstance(value, list) else [value]
    if index in "@*":
        return items
    place = arithmetic(index, values)
    return items[int(place)] if place.isdecimal() and int(place) < len(items) else ""


def _defaulted(value: Value, sign: str, default: str, values: Mapping[str, Value]) -> Value:
    unset = isinstance(value, str) and UNSET.fullmatch(value) is not None
    empty = unset or (sign[0] == ":" and not value)
    if sign[-1] == "+":
        return "" if empty else joined(default, values)
    return joined(default, values) if empty and sign[-1] != "?" else value


def _cut(value: str, sign: str, pattern: str) -> str:
    """The value without its shortest or longest end (`%`, `%%`) or start (`#`, `##`) of that pattern."""
    ends = range(len(value) + 1)
    if sign[0] == "%":
        order = ends if len(sign) > 1 else reversed(ends)
        return next((value[:at] for at in order if fnmatchcase(value[at:], pattern)), value)
    order = reversed(ends) if len(sign) > 1 else ends
    return next((value[at:] for at in order if fnmatchcase(value[:at], pattern)), value)


def arithmetic(text: str, values: Mapping[str, Value]) -> str:
    """`A * (B + 1)` in whole numbers; marked as not known where a variable is not."""
    replaced = re.sub(r"\$?\{?\b([A-Za-z_]\w*)\b\}?", lambda m: str(named(m.group(1), values)), text)
    if unset := unset_in(replaced):
        return unknown(unset[0])
    plain = joined(replaced, values).strip()
    try:
        return str(
            int(_number(ast.parse(plain.replace("&&", " and ").replace("||", " or "), mode="eval").body))
        )
    except (SyntaxError, ValueError, KeyError, ZeroDivisionError, RecursionError, MemoryError):
        return unknown(f"$(({text}))")


def _number(node: ast.AST) -> int:
    if isinstance(node, ast.Constant) and isinstance(node.value, int):
        value = node.value
    elif isinstance(node, ast.BinOp):
        value = ARITHMETIC[type(node.op)](_number(node.left), _number(node.right))
    elif isinstance(node, ast.UnaryOp):
        value = ARITHMETIC[type(node.op)](_number(node.operand))
    elif isinstance(node, ast.Compare) and len(node.ops) == 1:
        value = ARITHMETIC[type(node.ops[0])](_number(node.left), _number(node.comparators[0]))
    elif isinstance(node, ast.BoolOp):
        truths = [bool(_number(each)) for each in node.values]
        value = all(truths) if isinstance(node.op, ast.And) else any(truths)
    else:
        raise ValueError("no arithmetic")
    if abs(value) > LARGEST:
        raise ValueError("too large")
    return int(value)
