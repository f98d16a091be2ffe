"""Questions over the columns of a table, drawn from a grammar of all that is accepted."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final

from tests.integration.parties import Connection, fetch
from tests.meaning.tables import SCHEMA, Table

FROM: Final = "{publication}"
"""Stands for the relation that is asked."""

_FIELDS: Final = ("year", "month", "quarter", "dow", "day")


class Questions:
    """An endless supply of questions about a table; the same seed draws the same ones."""

    def __init__(self, publisher: Connection, table: Table, sensitive: str, seed: int) -> None:
        self._draw = random.Random(seed)  # noqa: S311  # to be drawn again
        self._kinds = table.kinds
        self._names = list(table.columns)
        self._sensitive = sensitive
        self._values = {
            name: [
                text
                for (text,) in fetch(
                    publisher,
                    f"SELECT DISTINCT {name}::text FROM {SCHEMA}.{table.name}"
                    f" WHERE {name} IS NOT NULL ORDER BY 1",
                )
            ]
            or ["0"]
            for name in table.columns
        }

    def one(self, choices: Sequence[str]) -> str:
        return self._draw.choice(choices)

    def often(self, share: float) -> bool:
        return self._draw.random() < share

    # -- constants ----------------------------------------------------------------------------

    def text_of(self, name: str) -> str:
        """The text of one of a column's values."""
        return self.one(self._values[name])

    def constant(self, name: str) -> str:
        """A constant to compare a column with: one of its values, or one nearby."""
        text, kind = self.text_of(name), self._kinds[name]
        quoted = "'" + text.replace("'", "''") + "'"
        match kind:
            case "number":
                near = self.one([text, text, text, f"{float(text) + 0.05:.2f}", text.split(".")[0]])
                return self.one([near, near, near, f"'{near}'" if near == text else near])
            case "moment":
                day = text[:10]
                return self.one([quoted, quoted, f"DATE '{day}'", f"TIMESTAMP '{day} 06:30'"])
            case "boolean":
                return self.one(["TRUE", "FALSE", "'true'", "'f'", "'yes'"])
            case "text":
                blanks = f"{quoted[:-1]}  '"
                upper = quoted.upper()
                return self.one([quoted, quoted, quoted, blanks, upper, "'illness'", "''"])
        return quoted

    # -- conditions ---------------------------------------------------------------------------

    def leaf(self, name: str) -> str:
        kind = self._kinds[name]
        forms: list[Callable[[], str]] = [
            lambda: f"{name} {self.one(['=', '<>'])} {self.constant(name)}",
            lambda: f"{name} {self.one(['<', '<=', '>', '>='])} {self.constant(name)}",
            lambda: f"{self.constant(name)} {self.one(['<', '=', '>='])} {name}",
            lambda: (
                f"{name} {self.one(['', 'NOT '])}IN ({self.constant(name)}, {self.constant(name)},"
                f" {self.constant(name)})"
            ),
            lambda: (
                f"{name} {self.one(['', 'NOT '])}BETWEEN {self.constant(name)}"
                f" AND {self.constant(name)}"
            ),
            lambda: f"{name} IS {self.one(['', 'NOT '])}NULL",
            lambda: f"{name} IS {self.one(['', 'NOT '])}DISTINCT FROM {self.constant(name)}",
            lambda: f"({self.leaf_of(kind)}) IS {self.one(['TRUE', 'NOT TRUE', 'UNKNOWN'])}",
            lambda: f"NOT {self.leaf_of(kind)}",
        ]
        if kind == "boolean":
            forms += [
                lambda: name,
                lambda: f"NOT {name}",
                lambda: f"{name} IS {self.one(['TRUE', 'NOT TRUE', 'FALSE', 'UNKNOWN'])}",
            ]
        if kind == "text":
            forms += [
                lambda: f"{name} {self.one(['LIKE', 'NOT LIKE', 'ILIKE'])} {self.pattern(name)}"
            ] * 2
        if kind == "number":
            forms += [
                lambda: f"{name} % 3 = {self.one(['0', '1'])}",
                lambda: f"{name} * 2 - 1 > {self.constant(name)}",
                lambda: f"CASE WHEN {name} > {self.constant(name)} THEN 1 ELSE 0 END = 1",
            ]
            forms += [
                lambda: (
                    f"{name}::{self.one(['int', 'numeric', 'float8', 'bigint'])}"
                    f" {self.one(['=', '<', '>='])} {self.text_of(name)}"
                ),
                lambda: f"CAST({name} AS int)::text LIKE '%{self._draw.randrange(10)}'",
                lambda: f"({name} > {self.constant(name)})::int = {self.one(['0', '1'])}",
            ]
        if kind == "enum":
            forms.append(lambda: f"{name}::text > {self.constant(name)}")
        if kind == "moment":
            forms += [
                lambda: f"{name}::date >= {self.constant(name)}",
                lambda: (
                    f"EXTRACT({self.one(['YEAR', 'MONTH'])} FROM AGE(DATE '2024-05-17', {name}))"
                    f" {self.one(['>=', '<', '='])} {self._draw.randrange(80)}"
                ),
                lambda: f"CAST({name} AS timestamp) < {self.constant(name)}",
                lambda: f"EXTRACT({self.one(_FIELDS)} FROM {name}) = {self._draw.randrange(13)}",
                lambda: f"date_trunc('month', {name}) <= {self.constant(name)}",
            ]
        forms += [
            lambda: f"COALESCE({name}, {self.constant(name)}) = {self.constant(name)}",
            lambda: f"NULLIF({name}, {self.constant(name)}) IS NULL",
        ]
        if kind in ("number", "text", "moment", "enum"):
            forms.append(lambda: f"COALESCE({name}, {self.constant(name)}) > {self.constant(name)}")
        same = [other for other in self._names if self._kinds[other] == kind and other != name]
        if same and kind in ("number", "text", "moment", "boolean"):
            other = self.one(same)
            forms.append(lambda: f"{name} {self.one(['=', '<', '>=', '<>'])} {other}")
        return self._draw.choice(forms)()

    def leaf_of(self, kind: str) -> str:
        """A plain condition on some column of a kind."""
        name = self.one([name for name in self._names if self._kinds[name] == kind])
        return f"{name} {self.one(['=', '<>', '<', '>='])} {self.constant(name)}"

    def pattern(self, name: str) -> str:
        text = self.text_of(name).replace("'", "''")
        cut = self._draw.randrange(len(text) + 1)
        return (
            "'" + self.one([text[:cut] + "%", "%" + text[cut:], text, "%" + text[-1:] + "%"]) + "'"
        )

    def condition(self, depth: int) -> str:
        if depth == 0 or self.often(0.3):
            return self.leaf(self.one([*self._names, self._sensitive]))
        parts = [self.condition(depth - 1) for _ in range(self._draw.choice([2, 2, 3]))]
        joined = f" {self.one(['AND', 'AND', 'OR'])} ".join(parts)
        return f"{self.one(['', '', 'NOT '])}({joined})"

    # -- questions ----------------------------------------------------------------------------

    def aggregate(self) -> str:
        numbers = [name for name in self._names if self._kinds[name] == "number"]
        forms = ["COUNT(*)", "COUNT(*)", "COUNT(*)", f"COUNT({self.one(self._names)})"]
        forms += [f"COUNT(DISTINCT {self.one([*self._names, self._sensitive])})"]
        if numbers:
            name = self.one(numbers)
            forms += [f"COUNT(DISTINCT {name}{self.one(['', ' % 7', '::int'])})"]
            forms += [self.percentile(self.one([name, name, f"{name} * 2 - 1"]))] * 3
            forms += [f"SUM({name})", f"AVG({name})"]
            forms += [f"SUM({name}::int)", f"AVG(CAST({name} AS numeric))"]
            forms += [f"SUM(COALESCE({name}, {self.one(numbers)}, 7))", f"AVG(NULLIF({name}, 20))"]
            forms += [f"SUM(CASE WHEN {self.leaf(self.one(self._names))} THEN 1 ELSE 0 END)"]
        if self.often(0.15):
            part = f"COUNT(*) FILTER (WHERE {self.condition(self._draw.choice([0, 1]))})"
            whole = self.one(["COUNT(*)", "NULLIF(COUNT(*), 0)"])
            shares = [f"100.0 * {part} / {whole}", f"{part}::numeric / {whole}"]
            shares += [f"COUNT(*) - 2 * {part}", f"1 - 1.0 * {part} / {whole}"]
            if numbers:
                shares += [f"(SUM({self.one(numbers)}) - 1.5) / {whole}"]
            share = self.one(shares)
            if self.often(0.3):
                return f"ROUND({share}, {self.one(['0', '1', '2', '-1'])})"
            return share
        if numbers and self.often(0.05):
            name = self.one(numbers)
            return self.one([f"ROUND(AVG({name}))", f"ROUND(CAST(SUM({name}) AS numeric), -1)"])
        chosen = f" FILTER (WHERE {self.condition(self._draw.choice([0, 1]))})"
        return self.one(forms) + (chosen if self.often(0.25) else "")

    def percentile(self, of: str) -> str:
        share = self.one(["0", "0.1", "0.5", "0.5", "0.9", "0.25", "0.333", "1"])
        return self.one([
            f"MIN({of})", f"MAX({of})",
            f"percentile_cont({share}) WITHIN GROUP (ORDER BY {of})",
            f"percentile_disc({share}) WITHIN GROUP (ORDER BY {of})",
        ])  # fmt: skip

    def question(self) -> str:
        where = (
            f" WHERE {self.condition(self._draw.choice([0, 1, 1, 2]))}" if self.often(0.95) else ""
        )
        source = FROM
        if self.often(0.15):
            chosen = self.one(["*", ", ".join(self._names)])
            source = f"(SELECT {chosen} FROM {FROM} WHERE {self.condition(1)}) AS t"
        if self.often(0.75):
            return f"SELECT {self.aggregate()} FROM {source}{where}"
        keys = self._draw.sample([*self._names, self._sensitive], self._draw.choice([1, 1, 2]))
        listed = ", ".join(keys)
        if self.often(0.1):
            return f"SELECT DISTINCT {listed} FROM {source}{where}"
        return f"SELECT {listed}, {self.aggregate()} FROM {source}{where} GROUP BY {listed}"


_OF_KIND: Final = {
    "number": (
        "floor({})", "ceil({} / 10.0) * 10", "abs({} - 30)", "trunc({}::numeric, -1)",
        "round({}::numeric)", "round({}::float8)", "floor({} * 1.5) - {}",
    ),
    "text": (
        "upper({})", "lower({})", "initcap({})", "left({}, 9)", "right({}, -2)", "substr({}, 2, 8)",
        "length({})", "{} || '-' || {}", "btrim({})", "replace({}, 'ill', 'x')", "strpos({}, 'n')",
        "concat({}, 'x')", "rtrim({}, '013')",
    ),
    "moment": (
        "{} - INTERVAL '1 month'", "{} + INTERVAL '40 days'", "({}::timestamp) AT TIME ZONE 'UTC'",
        "{}::date + 30", "{}::date - DATE '1980-01-01'",
        "date_trunc('year', {} - INTERVAL '9 days')",
    ),
}  # fmt: skip
"""Values that functions make of a column's."""


class FunctionQuestions(Questions):
    """Questions about what functions make of values."""

    def made_of(self, name: str) -> tuple[str, str]:
        """Draw a function of a column, and the same of a constant."""
        form = self.one(_OF_KIND[self._kinds[name]])
        text = self.text_of(name).replace("'", "''")
        constant = {
            "number": text if not text.startswith("-") else f"({text})",
            "text": f"'{text}'", "moment": f"TIMESTAMP '{text[:19]}'",
        }[self._kinds[name]]  # fmt: skip
        return form.replace("{}", name), form.replace("{}", constant)

    def question(self) -> str:
        names = [name for name in (*self._names, self._sensitive) if self._kinds[name] in _OF_KIND]
        made, constant = self.made_of(self.one(names))
        where = f"{made} {self.one(['=', '<>', '<', '>='])} {constant}"
        if self.often(0.5):
            where = (
                f"{self.one(['', 'NOT '])}({where}) {self.one(['AND', 'OR'])} {self.condition(1)}"
            )
        value, _ = self.made_of(self.one(names))
        numbers = [name for name in self._names if self._kinds[name] == "number"]
        forms = ["COUNT(*)", "COUNT(*)", f"COUNT(DISTINCT {value})"]
        if numbers:
            number, _ = self.made_of(self.one(numbers))
            forms += [f"{one}({number})" for one in ("SUM", "AVG", "MIN", "MAX")]
        if self.often(0.6):
            return f"SELECT {self.one(forms)} FROM {FROM} WHERE {where}"
        key, _ = self.made_of(self.one(names))
        return f"SELECT {key} AS key, {self.one(forms)} FROM {FROM} WHERE {where} GROUP BY 1"
