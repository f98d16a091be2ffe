"""Mistakes that newcomers make, in the order of a first day: docs/howto/troubleshooting.md."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

FILES: Final = {
    "semicolons.csv": b"age;town\n30;Bern\n31;Genf\n",
    "ragged.csv": b"age,town\n30,Bern\n31,Genf,Rolle\n",
    "latin.csv": b"age,town\n30,Bern\n31,Z\xfcrich\n",
    "wide.csv": "age,town\n30,Bern\n".encode("utf-16-le"),
    "commas.csv": b'age,income\n30,"1200,50"\n31,"950,00"\n',
    "dates.csv": b"age,born\n30,01/02/1994\n31,03/04/1993\n",
    "ages.csv": b"age,town\n30,Bern\nunknown,Genf\n",
    "tiny.csv": b"age,town,disease\n30,Bern,Flu\n31,Genf,Flu\n32,Basel,HIV\n",
}
"""Beside fair.csv, the demo's data."""

REGISTER: Final = "kanon register fair --quasi-identifiers age,children,educ --sensitive affairs"


@dataclass(frozen=True)
class Mistake:
    """What somebody types, and what to type instead.

    Attributes
    ----------
    title : str
    typed : str
        A command, a statement or an expression.
    instead : str
        What works, in the same language; tests run it. Empty where that is not up to the caller.
    way : {"shell", "sql", "python"}
    who : {"owner", "stranger", "publisher", "newcomer", "nobody"}
        Who types it: the table's owner, a role without any right, a publisher who may not read the
        table, the owner in a database without kanon_db, or somebody without a server.
    more : str
        A sentence about it.
    """

    title: str
    typed: str
    instead: str = ""
    way: Literal["shell", "sql", "python"] = "shell"
    who: Literal["owner", "stranger", "publisher", "newcomer", "nobody"] = "owner"
    more: str = ""


SECTIONS: Final[dict[str, list[Mistake]]] = {
    "The server": [
        Mistake("No server is running", "kanon publications --dir here", who="nobody"),
        Mistake("The server cannot be reached", "kanon publications --dsn host=/nowhere"),
        Mistake(
            "The connection string is none", "kanon publications --dsn postgresql//me@host/data"
        ),
        Mistake("kanon_db is not installed", REGISTER, "kanon install", who="newcomer"),
    ],
    "Files": [
        Mistake(
            "The file is somewhere else", "kanon load fare.csv fair", "kanon load fair.csv fair"
        ),
        Mistake("Loaded twice", "kanon load fair.csv fair", "kanon load fair.csv fair --replace"),
        Mistake(
            "Fields are separated by semicolons",
            "kanon load semicolons.csv towns --delimiter ,",
            "kanon load semicolons.csv towns",
            more="Without `--delimiter`, it is found and shown.",
        ),
        Mistake("A line has too many fields", "kanon load ragged.csv ragged"),
        Mistake(
            "The file is not in UTF-8",
            "kanon load latin.csv latin",
            "kanon load latin.csv latin --encoding latin-1",
        ),
        Mistake(
            "The file is in UTF-16, and does not say so",
            "kanon load wide.csv wide",
            "kanon load wide.csv wide --encoding utf-16-le",
        ),
        Mistake(
            "Numbers have a decimal comma, and become texts",
            "kanon load commas.csv incomes",
            "kanon load commas.csv incomes --decimal , --replace",
            more="This is no error, but the note in the last column says what to do.",
        ),
        Mistake(
            "Dates could be read in two ways, and become texts",
            "kanon load dates.csv births",
            "kanon load dates.csv births --date-format DD/MM/YYYY --replace",
        ),
        Mistake(
            "A value does not have the type that it should have",
            """kanon load ages.csv ages --types '{"age": "integer"}'""",
            "kanon load ages.csv ages --null unknown",
        ),
    ],
    "Describing a table": [
        Mistake(
            "There is no such table",
            REGISTER.replace(" fair ", " fare "),
            REGISTER,
        ),
        Mistake(
            "There is no such column",
            REGISTER.replace("age", "agee"),
            REGISTER,
        ),
        Mistake(
            "The sensitive column is among the quasi-identifiers",
            "kanon register fair --quasi-identifiers age,affairs --sensitive affairs",
            REGISTER,
        ),
        Mistake(
            "Nobody has described the table",
            """kanon publish buckets births births_b --privacy '{"l": 2}'""",
            "kanon register births --quasi-identifiers born --sensitive age",
        ),
    ],
    "Publishing": [
        Mistake(
            "JSON is written as in Python",
            """kanon publish buckets fair fair_b --privacy "{'l': 3}\"""",
            """kanon publish buckets fair fair_b --privacy '{"default": 0.8}'""",
        ),
        Mistake(
            "Published twice",
            """kanon publish buckets fair fair_b --privacy '{"default": 0.75}'""",
            """kanon publish buckets fair fair_b --privacy '{"default": 0.75}' --replace"""
            """ --accept '{"combined_releases": "nobody has read the first one"}'""",
            more="The first one counts as a release, though it is replaced: somebody may have read"
            " it.",
        ),
        Mistake(
            "The same readers would get a second publication",
            "kanon publish suppressed fair fair_p --k 5",
            "kanon publish suppressed fair fair_p --k 5"
            """ --accept '{"combined_releases": "the survey itself is public"}'""",
            more="`[figures]` stands for what was measured, which depends on the buckets that were"
            " drawn: [releases.md](releases.md) explains it.",
        ),
        Mistake(
            "No publication can be that private",
            """kanon publish buckets fair fair_x --privacy '{"l": 4}' --dry-run""",
            """kanon publish buckets fair fair_x --privacy '{"l": 4, "values": {"0.0": 0.8}}'"""
            " --dry-run",
            more="More than a quarter of these people have the same value.",
        ),
        Mistake(
            "The third argument is not what one thinks",
            """SELECT * FROM kanon.publish_buckets('tiny', 'tiny_x', '{"default": 0.8}')""",
            """SELECT * FROM kanon.publish_buckets('tiny', 'tiny_x',"""
            """ privacy => '{"default": 0.8}', dry_run => true)""",
            way="sql",
        ),
        Mistake(
            "A parameter is misspelt",
            "kanon.publish_generalized('tiny', 'tiny_x', k=2, metod='mondrian')",
            "kanon.publish_generalized('tiny', 'tiny_x', k=2, method='mondrian', dry_run=True)",
            way="python",
        ),
        Mistake(
            "A method is misspelt",
            "kanon publish generalized tiny tiny_x --k 2 --method mondrain",
            "kanon publish generalized tiny tiny_x --k 2 --method mondrian --dry-run",
        ),
        Mistake(
            "An option of a method is misspelt",
            "kanon publish generalized tiny tiny_x --k 2 --options '{\"time_limt\": 5}'",
            "kanon publish generalized tiny tiny_x --k 2 --options '{\"time_limit\": 5}' --dry-run",
        ),
        Mistake(
            "An option of the command is misspelt",
            "kanon publish generalized tiny tiny_x --k 2 --metod mondrian",
            "kanon publish generalized tiny tiny_x --k 2 --method mondrian --dry-run",
        ),
        Mistake(
            "k is greater than the number of people",
            "kanon publish suppressed fair fair_x --k 7000",
            "kanon publish suppressed fair fair_x --k 7 --dry-run",
        ),
        Mistake(
            "The table is too small",
            "kanon publish generalized tiny tiny_k --k 5",
            "kanon publish generalized tiny tiny_k --k 3",
        ),
        Mistake(
            "The table is described anew while publications of it exist",
            REGISTER.replace("educ", "educ,religious"),
            "kanon drop fair_b",
            more="Then drop the others, and describe it.",
        ),
    ],
    "Rights": [
        Mistake(
            "The role may not use kanon_db",
            "kanon register fair --quasi-identifiers age",
            who="stranger",
        ),
        Mistake(
            "The role may not read the table",
            "SELECT kanon.register_source('fair', '{age}', 'affairs')",
            way="sql",
            who="publisher",
        ),
    ],
    "Asking": [
        Mistake(
            "There is no such publication",
            'kanon query "SELECT COUNT(*) FROM fair_c WHERE age > 30"',
            "kanon publications",
        ),
        Mistake(
            "The column is not published",
            'kanon query "SELECT COUNT(*) FROM fair_p WHERE religious > 2"',
            'kanon query "SELECT COUNT(*) FROM fair_p WHERE educ > 12"',
        ),
        Mistake(
            "The question is not about a number of people",
            'kanon query "SELECT * FROM fair_p"',
            'kanon query "SELECT COUNT(*) FROM fair_p"',
        ),
        Mistake(
            "The text has the wrong quotes",
            """kanon query 'SELECT COUNT(*) FROM fair_p WHERE age = "32"'""",
            """kanon query "SELECT COUNT(*) FROM fair_p WHERE age = '32'\"""",
        ),
    ],
}
