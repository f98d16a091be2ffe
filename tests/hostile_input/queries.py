"""Hostile queries: well-formed ones, mutated ones, and what is hardly a query at all."""

from __future__ import annotations

import random
import re
import string
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Final, NamedTuple

FOLDER: Final = Path(__file__).parents[1]
CORPUS: Final = [
    line.rsplit(" -- ", 1)[0]
    for folder in ("corpus", "rewrite/fixtures")
    for name in ("answered.sql", "refused.sql")
    for line in (FOLDER / folder / name).read_text(encoding="utf-8").splitlines()
]

COMMON: Final = {
    "age": "number", "zip": "number", "height": "number", "sex": "text", "born": "moment",
    "seen": "moment", "member": "boolean",
}  # fmt: skip
PUBLICATIONS: Final[Mapping[str, Mapping[str, str]]] = {
    "paid": {**COMMON, "cost": "number"},
    **{name: {**COMMON, "illness": "text"} for name in ("ill", "ranged", "free", "masked")},
}
"""The columns of each publication, with what kind of values they have."""

LOOKUPS: Final = (
    " JOIN data.regions AS r ON zip = r.zip", " LEFT JOIN data.regions USING (zip)",
    " JOIN data.severity AS r ON illness = r.illness",
)  # fmt: skip

FIELDS: Final = "year month day quarter week decade century millennium YEAR".split()
ODD_FIELDS: Final = (
    *"hour minute second epoch dow isodow doy isoyear timezone julian x".split(),
    *("'year'", '"month"', "", "\u0131soyear"),
)
MARKS: Final = "()[]{},.;:=<>!+-*/%^&|~@#?`'\"\\$_"
PIECES: Final = (
    *"select count ( ) * from where and or not in between is null true false as , ; . :: = <> !="
    " < <= > >= - + / % date timestamp interval cast distinct group by order having limit offset"
    " union with over filter unknown user left join on using like ilike escape case when then else"
    " end extract date_part date_trunc sum avg asc desc nulls first last values array row any all"
    " exists similar to lateral natural cross full outer inner tablesample for update into fetch"
    " collate at time zone operator".split(),
    *"ill paid ranged free masked published data regions age zip height sex born seen member cost"
    " illness ctid weight bucket_id tableoid xmin".split(),
    *("1", "0", "-1", ".5", "5.", "1e5", "0x1F", "1_000", "0b1", "'x'", "''", "'='", "'it''s'"),
    *('"Age"', '""', "E'x'", "U&'\\0061'", "B'1'", "X'F'", "N'x'", "--", "/*", "*/", "$1", "$$"),
    *("?", ":x", "@", "||", "->", "->>", "@>", "~*", "!~~", "<=>", "\\", "%s", "{}", "{0}", "\n"),
)
LETTERS: Final = (
    "\x01", "\x07", "\x08", "\x0b", "\x0c", "\x1a", "\x1b", "\x7f", "\x80", "\x85", "\xa0", "\xad",
    "\u0130", "\u0131", "\u017f", "\u0301", "\u037e", "\u0660", "\u09ea", "\u1680", "\u180e",
    "\u200b", "\u200e", "\u2028", "\u202e", "\u2044", "\u2060", "\u2212", "\u2400", "\u3000",
    "\ud800", "\udfff", "\ufe00", "\ufeff", "\uff07", "\uff10", "\uff33", "\ufffd", "\ufffe",
    "\uffff", "\0", "\U0001d7d8", "\U0001f600", "\U000e0001", "\U0010ffff", "%00", "\\u0000",
    "\\0", "&#0;",
)  # fmt: skip


class Query(NamedTuple):
    """A query, and how it was made."""

    form: str
    text: str


class Queries:
    """An endless supply of queries; the same seed draws the same ones."""

    def __init__(self, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # to be drawn again
        self._forms: dict[str, Callable[[], str]] = {
            "well-formed": self.well_formed,
            "mutated": lambda: self.mutated(self.well_formed()),
            "corpus, mutated": lambda: self.mutated(self.corpus()),
            "tokens": self.tokens,
            "nested": self.nested,
            "long": self.long,
            "characters": self.characters,
            "numbers": self.numbers,
        }

    def __iter__(self) -> Iterator[Query]:
        names = list(self._forms)
        while True:
            name = self._draw.choices(names, weights=(6, 6, 6, 3, 1, 1, 3, 3))[0]
            yield Query(name, self._forms[name]())

    # -- small draws --------------------------------------------------------------------------

    def one(self, choices: Sequence[str]) -> str:
        return self._draw.choice(choices)

    def often(self, share: float) -> bool:
        return self._draw.random() < share

    def size(self, most: int) -> int:
        """A number up to `most`, more often a small one."""
        return int(most ** self._draw.random())

    def text(self, most: int = 8) -> str:
        usual = self.one([string.ascii_lowercase, string.printable[:-5], "%_"])
        alphabet = self.one([*LETTERS, "\\'\""]) if self.often(0.1) else usual
        return "".join(self.one(alphabet) for _ in range(self.size(most)))

    # -- a grammar ----------------------------------------------------------------------------

    def well_formed(self) -> str:
        publication = self.one(list(PUBLICATIONS))
        names = _Names(self, PUBLICATIONS[publication])
        schema = self.one(["", "", "", "published."])
        lookup = self.one(LOOKUPS) if self.often(0.1) else ""
        keys = [self.key(names) for _ in range(self.size(4))] if self.often(0.4) else []
        items = [*keys, *(self.aggregate(names) for _ in range(self.size(3)))]
        parts = [f"SELECT {', '.join(items)} FROM {schema}{publication}{lookup}"]
        if keys and self.often(0.1):
            items, keys = keys, []
            parts = [f"SELECT DISTINCT {', '.join(items)} FROM {schema}{publication}{lookup}"]
        if self.often(0.8):
            parts.append(f"WHERE {self.condition(names, self.size(4))}")
        if keys:
            parts.append(f"GROUP BY {', '.join(keys)}")
        if self.often(0.15):
            parts.append(f"HAVING {self.having(names)}")
        if self.often(0.15):
            order = self.one(["", " DESC", " ASC NULLS FIRST", " DESC NULLS LAST"])
            parts.append(f"ORDER BY {self.one([*items, '1', 'x'])}{order}")
        if self.often(0.1):
            parts.append(f"LIMIT {self.one(['0', '1', '2', '5', self.plain_number()])}")
        return self.one([" ", " ", "\n", "\t "]).join(parts)

    def key(self, names: _Names) -> str:
        return self.one([names.any(), names.any(), self.value(names, 1, self.one(_KINDS))])

    def aggregate(self, names: _Names) -> str:
        if self.often(0.5):
            return self.one(["COUNT(*)", "count(*) AS n", 'COUNT(*) AS "n n"'])
        filtered = f" FILTER (WHERE {self.condition(names, 1)})" if self.often(0.2) else ""
        if self.often(0.1):
            return f"COUNT(DISTINCT {self.value(names, 1, self.one(_KINDS))}){filtered}"
        if self.often(0.15):
            of = self.value(names, 1, self.one(["number", self.one(_KINDS)]))
            share = self.one(["0", "0.5", "1", ".999", "1.5", "-1"])
            kind = self.one(["cont", "disc"])
            call = f"percentile_{kind}({share}) WITHIN GROUP (ORDER BY {of})"
            return self.one([f"MIN({of})", f"MAX({of})", call]) + filtered
        found = f"{self.one(['SUM', 'AVG', 'COUNT'])}({self.value(names, 2, 'number')}){filtered}"
        return f"ROUND({found}, {self.one(['0', '2', '-3', '21'])})" if self.often(0.1) else found

    def having(self, names: _Names) -> str:
        one, other = (self.aggregate(names).partition(" AS ")[0] for _ in range(2))
        low, high = self.plain_number(), self.plain_number()
        return self.one([
            f"{one} {self.comparison()} {low}", f"{one} - {other} BETWEEN {low} AND {high}",
            f"NOT {one} * {low} > {other} OR COUNT(*) IS NULL",
        ])  # fmt: skip

    def comparison(self) -> str:
        return self.one(["=", "<>", "!=", "<", "<=", ">", ">="])

    def condition(self, names: _Names, depth: int) -> str:
        if depth > 0:
            one, other = (self.condition(names, depth - 1) for _ in range(2))
            return self.one([
                f"({one}) AND ({other})", f"({one}) OR {other}", f"NOT ({one})",
                f"({one}) IS {self.one(['', 'NOT '])}{self.one(['TRUE', 'FALSE', 'UNKNOWN'])}",
                f"CASE WHEN {one} THEN {other} ELSE FALSE END",
            ])  # fmt: skip
        kind = self.one(_KINDS)
        left, right = (self.value(names, 2, kind) for _ in range(2))
        negated = self.one(["", "", "NOT "])
        return self.one([
            f"{left} {self.comparison()} {right}",
            f"{left} {negated}IN ({', '.join(self.constant(kind) for _ in range(self.size(6)))})",
            f"{left} {negated}BETWEEN {self.constant(kind)} AND {right}",
            f"{left} IS {negated}NULL",
            f"{left} IS {negated}DISTINCT FROM {right}",
            f"{self.value(names, 1, 'text')} {negated}{self.pattern()}",
            names.of("boolean"),
        ])  # fmt: skip

    def pattern(self) -> str:
        escape = self.one(["", "", " ESCAPE '!'", f" ESCAPE {self.constant('text')}"])
        return f"{self.one(['LIKE', 'ILIKE'])} {self.constant('text')}{escape}"

    def value(self, names: _Names, depth: int, kind: str) -> str:
        if depth <= 0 or self.often(0.5):
            return self.one([names.of(kind), names.of(kind), self.constant(kind)])
        inner = [self.value(names, depth - 1, kind) for _ in range(2)]
        if kind == "number":
            return self.one([
                f"({inner[0]} {self.one('+-*/%')} {inner[1]})", f"- {inner[0]}",
                f"COALESCE({inner[0]}, {inner[1]})", f"NULLIF({inner[0]}, {inner[1]})",
                f"EXTRACT({self.field()} FROM {names.of('moment')})",
                f"date_part('{self.field()}', {names.of('moment')})",
            ])  # fmt: skip
        if kind == "moment" and self.often(0.5):
            return f"date_trunc('{self.field()}', {names.of('moment')})"
        what = self.one(_KINDS)
        return f"CASE {names.of(what)} WHEN {self.constant(what)} THEN {inner[0]} END"

    def constant(self, kind: str) -> str:
        if self.often(0.02):
            kind = self.one(_KINDS)
        if kind == "number":
            return self.plain_number()
        if kind == "moment":
            odd = ["infinity", "0001-01-01 BC", "294276-12-31", "2020-02-30", "now", "epoch",
                   "J2451187", "20200131", "today", "x", ""]  # fmt: skip
            day = self.one(odd if self.often(0.1) else ["2020-01-31", "1918-01-01", "1982-03-15"])
            return self.one([f"'{day}'", f"DATE '{day}'", f"TIMESTAMP '{day}'", f"'{day}'::date"])
        if kind == "boolean":
            return self.one(["TRUE", "FALSE", "TRUE", "'t'", "'no'", "NULL", "'maybe'"])
        return "'" + self.text().replace("'", self.one(["''", "''", "'"])) + "'"

    # -- everything else ----------------------------------------------------------------------

    def plain_number(self) -> str:
        if self.often(0.05):
            return self.number()
        return self.one([str(self._draw.randrange(60)), "0", "1", "1.5", "0.1"])

    def field(self) -> str:
        return self.one(ODD_FIELDS if self.often(0.1) else FIELDS)

    def number(self) -> str:
        n = self.size(60_000)
        return self.one([
            "0", "-0", "00", "-1", "2147483647", "2147483648", "9223372036854775808", "1e400",
            "1e-400", "1e131071", "1e131072", "-1e99999999999", "1E-99999999999", ".5", "5.",
            ".", "1e", "1e+", "1.e5", "1..2", "1_0", "0x1F", "0o7", "0b1", "1.5e3.2", "'NaN'",
            "NaN", "'infinity'", "'-Infinity'", "9" * n, "0." + "0" * n + "1",
            "1" + "0" * n + "e-9", "--1", "+1", "- - 1", "1e308", "1.7976931348623159e308",
            "4.9e-324", "1e2147483648",
        ])  # fmt: skip

    def numbers(self) -> str:
        publication = self.one(list(PUBLICATIONS))
        names = _Names(self, PUBLICATIONS[publication])
        column, one, other = names.of("number"), self.number(), self.number()
        ask = f"SELECT {self.one(['COUNT(*)', f'SUM({column} * {one})'])} FROM {publication}"
        return self.one([
            f"{ask} WHERE {column} {self.comparison()} {one}",
            f"{ask} WHERE {column} BETWEEN {one} AND {other}",
            f"{ask} WHERE {column} IN ({one}, {other}, {column})",
            f"{ask} WHERE {column} {self.one('+-*/%')} {one} {self.comparison()} {other}",
            f"{ask} WHERE {one} {self.one('+-*/%')} {other} = {column} OR {column} = 1",
            f"{ask} HAVING COUNT(*) {self.comparison()} {one} * {other}",
            f"{ask} LIMIT {one} OFFSET {other}",
            f"{ask} WHERE {names.of('text')} = {one} OR {names.of('moment')} > {other}",
        ])  # fmt: skip

    def corpus(self) -> str:
        """A query of the tests, most of which ask a table t."""
        return self.one(CORPUS).replace(" FROM t", f" FROM {self.one(list(PUBLICATIONS))}")

    def mutated(self, text: str) -> str:
        for _ in range(self.size(5)):
            at = self._draw.randrange(len(text) + 1)
            to, other = min(len(text), at + self.size(30)), self.one(CORPUS)
            if self.often(0.4):  # one word for another
                words = re.findall(r"\w+|\s+|'[^']*'|\S", text) or [""]
                words[self._draw.randrange(len(words))] = self.one(PIECES)
                text = "".join(words)
                continue
            text = self.one([
                f"{text[:at]} {self.one(PIECES)} {text[at:]}",
                f"{text[:at]}{self.one(PIECES)}{text[at:]}",
                text[:at] + text[to:],
                text[:to] + text[at:],
                text[:at] + self.one(LETTERS) + text[at:],
                text[:at] + text[at:to].swapcase() + text[to:],
                text[:at] + other[self._draw.randrange(len(other)) :],
                text[:at] + self.number()[:500] + text[to:],
            ])  # fmt: skip
        return text

    def tokens(self) -> str:
        pieces = [self.one([*PIECES, self.number()[:500]]) for _ in range(self.size(300))]
        start = self.one(["", "SELECT COUNT(*) FROM ill WHERE ", "SELECT "])
        return start + self.one(["", " ", " "]).join(pieces)

    def characters(self) -> str:
        text = self.one([self.well_formed(), self.corpus(), "SELECT COUNT(*) FROM ill WHERE "])
        for _ in range(self.size(20)):
            at = self._draw.randrange(len(text) + 1)
            odd = [self.one(LETTERS), chr(self._draw.randrange(0x110000)), self.one(MARKS)]
            text = text[:at] + self.one(odd) + text[at + self._draw.randrange(2) :]
        return text

    def nested(self) -> str:
        depth = self.size(30_000)
        opened, inside, closed = self._draw.choice([
            ("(", "age = 1", ")"), ("NOT ", "age = 1", ""), ("NOT (", "age = 1", ")"),
            ("- ", "age = 1", ""), ("-(", "age", ") = 1"), ("age + (", "1", ")"), ("+", "1", ""),
            ("CASE WHEN ", "member", " THEN member END"), ("CASE age WHEN ", "1", " THEN 1 END"),
            ("(", "member", ") IS TRUE"), ("(", "member", " IS NULL)"),
            ("(", "age", " BETWEEN 1 AND 2)"), ("(", "age", " IN (1, 2))"), ("(", "age", ")::date"),
            ("age IN (", "1", ")"), ("SUM(", "age", ")"), ("COUNT(", "*", ")"),
            ("(SELECT ", "1", ")"), ("EXTRACT(year FROM ", "born", ")"), ("[", "1", "]"),
            ("CAST(", "'x'", " AS date)"), ("age.", "age", ""), ("'", "x", "'"), ('"', "x", '"'),
            ("/*", "x", "*/"), ("$$", "x", "$$"), ("f(", "x", ")"), ("x::", "int", ""),
            ("age = 1 AND (sex = 'f' OR ", "member", ")"), ("(age = 1) = (", "member", ")"),
        ])  # fmt: skip
        closing = closed * self._draw.choice([depth, depth, depth, 0, depth - 1, depth + 1])
        place = self.one(["WHERE", "WHERE", "HAVING", "GROUP BY", "ORDER BY", "LIMIT", ","])
        publication = self.one(list(PUBLICATIONS))
        return f"SELECT COUNT(*) FROM {publication} {place} {opened * depth}{inside}{closing}"

    def long(self) -> str:
        n, publication = self.size(40_000), self.one(list(PUBLICATIONS))
        ask = f"SELECT COUNT(*) FROM {publication} WHERE"
        one = f"age {self.comparison()} {{}}"
        return self.one([
            f"{ask} age {self.one(['', 'NOT '])}IN ({', '.join(map(str, range(n)))})",
            f"{ask} sex IN ({', '.join(map(repr, map(str, range(n))))})",
            f"{ask} {self.one([' AND ', ' OR ']).join(one.format(i) for i in range(n))}",
            f"{ask} {' OR '.join(f'(age = {i} AND height = {i})' for i in range(n // 10))}",
            f"{ask} {' AND '.join(f'(age <> {i} OR zip <> {i})' for i in range(n // 10))}",
            f"{ask} age = {' + '.join(['1'] * n)}", f"{ask} age = {'- ' * n}1",
            f"{ask} sex = '{self.text() * n}'", f'{ask} "{"x" * n}" = 1', f"{ask} {'x' * n} = 1",
            f"{ask} sex LIKE '{'%_' * n}'", f"{ask}{' ' * n}age = 1", f"{ask} age = {'1' * n}",
            f"SELECT {', '.join(f'SUM(age + {i})' for i in range(n // 50))} FROM {publication}",
            f"SELECT COUNT(*) FROM {publication} GROUP BY {', '.join(['age'] * (n // 50 + 1))}",
            f"SELECT COUNT(*) FROM {publication} HAVING {'COUNT(*) > 1 AND ' * (n // 50)} 1 = 1",
            f"{ask} CASE {'WHEN age = 1 THEN 1 ' * (n // 10)}END = 1",
            f"{ask} age = 1{'; ' * n}", f"{ask} age = 1 {'-- x' * n}", ".".join(["a"] * n),
            "SELECT COUNT(*) FROM " + ".".join(["published"] * n),
        ])  # fmt: skip


_KINDS: Final = ("number", "number", "text", "moment", "boolean")


class _Names:
    """The columns of a publication, and now and then one that it does not have."""

    def __init__(self, queries: Queries, columns: Mapping[str, str]) -> None:
        self._queries = queries
        self._columns = columns

    def any(self) -> str:
        return self._written(self._queries.one([*self._columns] * 3 + ["nothing"]))

    def of(self, kind: str) -> str:
        fitting = [name for name, its in self._columns.items() if its == kind]
        return (
            self.any() if self._queries.often(0.05) else self._written(self._queries.one(fitting))
        )

    def _written(self, name: str) -> str:
        return self._queries.one([name, name, name, f'"{name}"', name.upper(), f"({name})"])
