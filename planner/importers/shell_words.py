"""The words of a shell script: quotes, comments, continued lines, arrays and operators told apart."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from planner.errors import Refused

ARRAY = re.compile(r"([A-Za-z_]\w*)(\+?)=\($")
OPERATORS = ("&&", "||", ";;", ";", "|", "&", "(", ")", "\n")
REDIRECTION = re.compile(r"\d*(?:<<<|<<-?|>>|>\||&>>?|[<>]&?)")
DUPLICATE = re.compile(r"[\d-]+")
CONTINUED = "\1"
"""Stands for a line end behind a backslash: a blank that still counts as a line."""
OPENS = {"$((": "))", "$(": ")", "${": "}"}
BLANKS = " \t" + CONTINUED
Kind = Literal["word", "operator", "array"]


@dataclass(frozen=True, slots=True)
class Token:
    """A word as it is written (quotes and dollars in place), an operator, or an array assignment."""

    kind: Kind
    text: str
    line: int
    items: tuple[str, ...] = ()
    """Words of an array, whose name and `+` (if it appends) are `text`."""


class Reader:
    """A cursor over a script."""

    def __init__(self, text: str) -> None:
        self.text, self.at, self.line = text.replace("\r", "").replace("\\\n", f" {CONTINUED}"), 0, 1
        self.bodies: list[str] = []
        """Delimiters of here-documents that start after this line."""

    def tokens(self) -> list[Token]:
        """The script's tokens. Raises Refused where a quote or bracket is not closed."""
        found: list[Token] = []
        while token := self._next():
            found.append(token)
        return found

    def _next(self) -> Token | None:
        self._skip_blanks()
        if self.at >= len(self.text):
            return None
        if redirected := REDIRECTION.match(self.text, self.at):
            self._redirection(redirected)
            return self._next()
        for operator in OPERATORS:
            if self.text.startswith(operator, self.at):
                return self._operator(operator)
        line, raw = self.line, self._word()
        if match := ARRAY.match(raw):
            return Token("array", match.group(1) + match.group(2), line, self._array())
        return Token("word", raw, line)

    def _operator(self, operator: str) -> Token:
        token = Token("operator", operator, self.line)
        self.at += len(operator)
        if operator == "\n":
            self.line += 1
            for delimiter in self.bodies:
                self._skip_body(delimiter)
            self.bodies = []
        return token

    def _skip_blanks(self) -> None:
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == "#":
                end = self.text.find("\n", self.at)
                self.at = len(self.text) if end < 0 else end
            elif letter in BLANKS:
                self.line += letter == CONTINUED
                self.at += 1
            else:
                return

    def _redirection(self, match: re.Match[str]) -> None:
        """Where output goes does not matter; the body of a here-document is no command."""
        self.at = match.end()
        if match.group(0).endswith("&") and (number := DUPLICATE.match(self.text, self.at)):
            self.at = number.end()
            return
        self._skip_blanks()
        if self.at < len(self.text) and self.text[self.at] != "\n":
            target = self._word()
            if match.group(0).lstrip("0123456789") in ("<<", "<<-"):
                self.bodies.append(target.strip("'\"\\"))

    def _skip_body(self, delimiter: str) -> None:
        while self.at < len(self.text):
            end = self.text.find("\n", self.at)
            end = len(self.text) if end < 0 else end
            row = self.text[self.at : end].strip()
            self.at, self.line = min(end + 1, len(self.text)), self.line + 1
            if row == delimiter:
                return

    def _array(self) -> tuple[str, ...]:
        items: list[str] = []
        start = self.line
        while True:
            self._skip_blanks()
            if self.at >= len(self.text):
                raise Refused(f"line {start}: an array that is not closed", "NAME=( words )")
            if self.text[self.at] == ")":
                self.at += 1
                return tuple(items)
            if self.text[self.at] == "\n":
                self.at, self.line = self.at + 1, self.line + 1
                continue
            items.append(self._word())

    def _word(self) -> str:
        start = self.at
        while self.at < len(self.text):
            letter = self.text[self.at]
            if ARRAY.match(self.text[start : self.at]):
                break
            if letter in BLANKS + "\n;|&<>)" or (letter == "(" and self._stops(start)):
                break
            self._part(letter)
        if self.at == start:
            self.at += 1
        return self.text[start : self.at].replace(CONTINUED, "")

    def _stops(self, start: int) -> bool:
        """`(` belongs to a word only in NAME=( and in patterns inside one."""
        return not ARRAY.match(self.text[start : self.at] + "(")

    def _part(self, letter: str) -> None:
        """One letter, quoted stretch or expansion."""
        if letter == "\\":
            self.at += 2
        elif letter == "'":
            self._through("'")
        elif letter == '"':
            self._double()
        elif letter == "`":
            self._through("`")
        elif opened := next((each for each in OPENS if self.text.startswith(each, self.at)), None):
            self._nested(opened)
        else:
            self.at += 1

    def _through(self, quote: str) -> None:
        end = self.text.find(quote, self.at + 1)
        if end < 0:
            raise Refused(f"line {self.line}: a {quote} that is not closed", "quotes in pairs")
        self.line += lines_in(self.text[self.at : end])
        self.at = end + 1

    def _double(self) -> None:
        start, self.at = self.line, self.at + 1
        while self.at < len(self.text):
            letter = self.text[self.at]
            if letter == '"':
                self.at += 1
                return
            self.line += letter in ("\n", CONTINUED)
            if letter == "'":
                self.at += 1
            else:
                self._part(letter)
        raise Refused(f'line {start}: a " that is not closed', "quotes in pairs")

    def _nested(self, opened: str) -> None:
        start, close = self.line, OPENS[opened]
        self.at += len(opened)
        while self.at < len(self.text):
            if self.text.startswith(close, self.at):
                self.at += len(close)
                return
            letter = self.text[self.at]
            self.line += letter in ("\n", CONTINUED)
            if letter == "(" and close == "))":
                self._nested_bracket()
            else:
                self._part(letter)
        raise Refused(f"line {start}: a {opened} that is not closed", f"{opened} ... {close}")

    def _nested_bracket(self) -> None:
        depth = 0
        while self.at < len(self.text):
            depth += {"(": 1, ")": -1}.get(self.text[self.at], 0)
            self.at += 1
            if depth == 0:
                return


def lines_in(text: str) -> int:
    """Line ends in a text, continued ones as well."""
    return text.count("\n") + text.count(CONTINUED)
