"""A small shell: the commands that a launch script would run, without running any.

Assignments, arrays, `export`, `if`, `case`, `for`, functions, `eval` and `sh -c` are followed. What a
script takes from outside (the environment, arguments, output of programs) stays marked as unknown; a
condition that hangs on it counts as false and is told as such.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase

from planner.errors import Refused
from planner.importers.shell_blocks import (
    arms,
    block_end,
    branches,
    compared,
    condition_words,
    is_call,
    shell_text,
    split_on,
)
from planner.importers.shell_expand import Value, arithmetic, fields, joined, unset_in
from planner.importers.shell_words import Reader, Token

ASSIGNMENT = re.compile(r"([A-Za-z_]\w*)(\+?)=(.*)", re.DOTALL)
DECLARES = ("export", "readonly", "local", "declare", "typeset")
MOST_STEPS = 20_000
DEEPEST = 24
WORDS_AHEAD = ("exec", "time", "nohup", "command")


@dataclass(frozen=True, slots=True)
class Command:
    """A command with its words as the shell would pass them."""

    words: tuple[str, ...]
    values: Mapping[str, Value]
    """Variables when it runs."""
    line: int


@dataclass
class Shell:
    """What a script did so far."""

    values: dict[str, Value] = field(default_factory=dict)
    commands: list[Command] = field(default_factory=list)
    doubts: list[str] = field(default_factory=list)
    """Conditions that could not be decided."""
    functions: dict[str, Sequence[Token]] = field(default_factory=dict)
    steps: int = 0
    depth: int = 0

    def script(self, text: str, outside: Mapping[str, str] | None = None) -> None:
        """Follows a script. Raises Refused where it is no shell script."""
        if outside:
            self.values.update(outside)
        try:
            self.follow(Reader(text).tokens())
        except RecursionError:
            raise Refused("quotes or brackets nested too deeply", "a launch script") from None

    def follow(self, tokens: Sequence[Token]) -> None:
        """Follows statements one after the other."""
        self.depth += 1
        if self.depth > DEEPEST:
            raise Refused("functions or commands nested too deeply", "a launch script")
        at = 0
        while at < len(tokens):
            self.steps += 1
            if self.steps > MOST_STEPS:
                raise Refused("loops that do not end soon", "a launch script")
            at = self._statement(tokens, at)
        self.depth -= 1

    def _statement(self, tokens: Sequence[Token], at: int) -> int:
        token = tokens[at]
        if token.kind == "operator":
            return at + 1
        if token.kind == "array":
            self._array(token)
            return at + 1
        if block := {"if": self._if, "for": self._for, "case": self._case, "while": self._while}.get(
            token.text
        ):
            end = block_end(tokens, at)
            block(tokens[at:end])
            return end
        if token.text == "function" or is_call(tokens, at):
            return self._define(tokens, at)
        if token.text in ("{", "}", "do", "done", "then", "fi", "esac", "!"):
            return at + 1
        end = next((i for i in range(at, len(tokens)) if tokens[i].kind != "word"), len(tokens))
        return self._simple(tokens, at, end)

    def _array(self, token: Token) -> None:
        name = token.text.rstrip("+")
        items = [each for raw in token.items for each in fields(raw, self.values)]
        old = self.values.get(name, []) if token.text.endswith("+") else []
        self.values[name] = [*(old if isinstance(old, list) else [old]), *items]

    def _simple(self, tokens: Sequence[Token], at: int, end: int) -> int:
        words = [token.text for token in tokens[at:end]]
        prefix: dict[str, Value] = {}
        while words and (match := ASSIGNMENT.fullmatch(words[0])):
            prefix[match.group(1)] = self._assigned(match)
            words = words[1:]
        if not words:
            self.values.update(prefix)
            return max(end, at + 1)
        called = [each for word in words for each in fields(word, self.values)]
        while called and called[0] in WORDS_AHEAD:
            called = called[1:]
        if called and called[0] in DECLARES:
            self._declared(words[1:])
            if end < len(tokens) and tokens[end].kind == "array":
                self._array(tokens[end])
                return end + 1
        elif called:
            self._call(called, prefix, tokens[at].line)
        return self._after(tokens, end, called)

    def _after(self, tokens: Sequence[Token], end: int, called: list[str]) -> int:
        """`[ condition ] && command` and `|| command` run or skip what follows."""
        if (
            end >= len(tokens)
            or tokens[end].text not in ("&&", "||")
            or called[:1] not in (["["], ["[["], ["test"])
        ):
            return end + 1 if end < len(tokens) and tokens[end].kind == "operator" else max(end, 1)
        if self._true(called, tokens[end].line) == (tokens[end].text == "&&"):
            return end + 1
        stop = next((i for i in range(end + 1, len(tokens)) if tokens[i].text in (";", "\n")), len(tokens))
        return stop

    def _assigned(self, match: re.Match[str]) -> Value:
        text = joined(match.group(3), self.values)
        if not match.group(2):
            return text
        old = self.values.get(match.group(1), "")
        return [f"{old[0] if old else ''}{text}", *old[1:]] if isinstance(old, list) else f"{old}{text}"

    def _declared(self, words: Sequence[str]) -> None:
        for word in words:
            if match := ASSIGNMENT.fullmatch(word):
                self.values[match.group(1)] = self._assigned(match)

    def _call(self, words: list[str], prefix: Mapping[str, Value], line: int) -> None:
        name = words[0].rsplit("/", 1)[-1]
        if words[0] in self.functions:
            outer = {key: self.values.get(key) for key in "@123456789"}
            self.values |= {"@": words[1:]} | {str(i): word for i, word in enumerate(words[1:10], 1)}
            self.follow(self.functions[words[0]])
            self.values = {k: v for k, v in (self.values | outer).items() if v is not None}
        elif name == "eval":
            self._nested(" ".join(words[1:]))
        elif (inner := shell_text(words)) is not None:
            self.commands.append(Command(tuple(words), {**self.values, **prefix}, line))
            self._nested(inner)
        else:
            self.commands.append(Command(tuple(words), {**self.values, **prefix}, line))

    def _nested(self, text: str) -> None:
        self.follow(Reader(text).tokens())

    def _define(self, tokens: Sequence[Token], at: int) -> int:
        name_at = at + 1 if tokens[at].text == "function" else at
        start = next((i for i in range(name_at, len(tokens)) if tokens[i].text == "{"), len(tokens))
        depth, end = 0, start
        for end in range(start, len(tokens)):
            depth += {"{": 1, "}": -1}.get(tokens[end].text, 0) if tokens[end].kind == "word" else 0
            if depth == 0:
                break
        if name_at < len(tokens):
            self.functions[tokens[name_at].text] = tokens[start + 1 : end]
        return end + 1

    def _if(self, tokens: Sequence[Token]) -> None:
        for condition, body in branches(tokens):
            if condition is None or self._holds(condition):
                self.follow(body)
                return

    def _while(self, tokens: Sequence[Token]) -> None:
        self.doubts.append(f"line {tokens[0].line}: a while loop is not followed")

    def _for(self, tokens: Sequence[Token]) -> None:
        do = next((i for i, token in enumerate(tokens) if token.text == "do"), None)
        if do is None or len(tokens) < 4 or tokens[2].text != "in":
            self.doubts.append(f"line {tokens[0].line}: this for loop is not followed")
            return
        words = [token.text for token in tokens[3:do] if token.kind == "word"]
        for value in [each for word in words for each in fields(word, self.values)]:
            self.values[tokens[1].text] = value
            self.follow(tokens[do + 1 : -1])

    def _case(self, tokens: Sequence[Token]) -> None:
        subject = joined(tokens[1].text, self.values)
        if unset_in(subject):
            subject = ""
        for patterns, body in arms(tokens[3:-1]):
            if any(fnmatchcase(subject, joined(pattern, self.values)) for pattern in patterns):
                self.follow(body)
                return

    def _holds(self, tokens: Sequence[Token]) -> bool:
        """A condition of `[ ]`, `[[ ]]`, `(( ))` or `test`, joined by `&&` and `||`."""
        text = " ".join(token.text for token in tokens)
        if text.startswith("( ( "):
            return self._decided(arithmetic(text.strip("() "), self.values), tokens[0].line)
        verdict, joiner = True, "&&"
        for group, following in split_on(tokens, ("&&", "||")):
            words = [each for token in group for each in condition_words(token, self.values)]
            this = self._true(words, tokens[0].line) if words else False
            verdict = verdict and this if joiner == "&&" else verdict or this
            joiner = following
        return verdict

    def _decided(self, value: str, line: int) -> bool:
        if unset := unset_in(value):
            self.doubts.append(f"line {line}: the condition needs {unset[0]}; taken as false")
            return False
        return value not in ("0", "")

    def _true(self, words: list[str], line: int) -> bool:
        if words[0] == "!":
            return not self._true(words[1:], line) if words[1:] else True
        if words[0] not in ("[", "[[", "test"):
            self.doubts.append(f"line {line}: the outcome of `{words[0]}` is not known; taken as false")
            return False
        inner = [word for word in words[1:] if word not in ("]", "]]")]
        if inner[:1] == ["!"]:
            return not self._true([words[0], *inner[1:]], line)
        return self._tested(inner, line)

    def _tested(self, words: list[str], line: int) -> bool:
        known = ["" if unset_in(word) else word for word in words]
        if len(words) == 2 and words[0] in ("-z", "-n"):
            return (known[1] == "") == (words[0] == "-z")
        if len(words) == 2 and words[0].startswith("-"):
            self.doubts.append(
                f"line {line}: `{words[0]} {known[1] or '...'}` asks the machine; taken as false"
            )
            return False
        if len(words) == 1:
            return known[0] != ""
        if len(words) == 3:
            return compared(known[0], words[1], known[2])
        return False
