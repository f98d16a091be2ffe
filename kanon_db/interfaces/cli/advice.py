"""The command `kanon recommend`, which asks what its options do not say."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click
from click.core import ParameterSource

from kanon_db.advice.protections import PROTECTIONS, PURPOSES
from kanon_db.interfaces import console
from kanon_db.interfaces.cli.base import Command, connected, database_options
from kanon_db.interfaces.cli.derived import click_parameter
from kanon_db.operations import operations

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

_LEGEND: Final = """\
certain people: those whose sensitive value follows from what is published.
count error:    half of 300 random counts are off by no more than this share of the true count.
loss:           from 0% (every row shows a column's value) to 100% (no row shows anything), the mean
                of the quasi-identifiers. Buckets show them all, and hide whose a value is.
best attack:    for how many people the best of the known attacks is right; in brackets, for how
                many the same guesses would be right without the publication.
records:        how many counts were answered about; rows are searched and attacked on at most some
                10,000. seconds: what publishing these took."""

_SENTENCES: Final = {name: one.sentence for name, one in PROTECTIONS.items()}


@click.command(cls=Command)
@database_options
def recommend(dsn: str | None, directory: Path, as_json: bool, **given: Any) -> None:
    """Say what identifies people in a table, try what could be published of it, and compare.

    Nothing is published. Candidates are tried one after the other, on a random sample of a large
    table, until the time limit; the best comes first. On a terminal, it asks for the purpose and
    the protection unless the options say them.
    """
    given["purpose"] = _asked("purpose", "What will analysts do with it?", PURPOSES, given)
    given["protection"] = _asked(
        "protection", "How much are people to be protected?", _SENTENCES, given
    )
    with connected(dsn, directory, as_json=as_json) as kanon:
        identifying = kanon.unicity(given["source"])
        found = kanon.recommend(**given)
    if as_json:
        console.print_json({"identifying": identifying, "candidates": found})
        return
    _print_identifying(given["source"], identifying)
    _print_candidates(given, found)


recommend.params[:0] = [click_parameter(item) for item in operations()["recommend"].parameters]


def _asked(name: str, question: str, choices: Mapping[str, str], given: Mapping[str, Any]) -> str:
    """Return what an option says, or what somebody at a terminal answers."""
    source = click.get_current_context().get_parameter_source(name)
    if source is not ParameterSource.DEFAULT or not sys.stdin.isatty():
        return str(given[name])
    console.say(question, err=True)
    for word, meaning in choices.items():
        console.say(f"  {word}: {meaning}", err=True)
    answer = click.prompt(
        name, type=click.Choice(list(choices)), default=given[name], show_choices=False, err=True
    )
    return str(answer)


def _print_identifying(source: str, found: pd.DataFrame) -> None:
    console.say(f"What identifies people in {source}: records that differ from all others in")
    console.print_table(
        ["columns", "records", "share"],
        [
            [", ".join(row["columns"]), row["records"], f"{row['share']:.1%}"]
            for row in found.to_dict("records")
            if row["records"]
        ],
    )
    console.say("")


def _print_candidates(given: Mapping[str, Any], found: pd.DataFrame) -> None:
    rows = [console.plain(row) for row in found.to_dict("records")]
    purpose, protection = given["purpose"], given["protection"]
    console.say(f"Purpose {purpose}: {PURPOSES[purpose]}.")
    console.say(f"Protection wanted, {protection}: {_SENTENCES[protection]}.")
    records = rows[0]["records"]
    if any(row["tried_on"] < records for row in rows):
        console.say(
            f"Tried on random samples of the {records:,} records. Of the whole table, errors and"
            " losses are as a rule smaller."
        )
    console.say("")
    measured = [row for row in rows if row["seconds"] is not None]
    if measured:
        console.print_table(
            [
                "",
                "candidate",
                "certain people",
                "count error",
                "loss",
                "best attack",
                "records",
                "seconds",
            ],
            [_line(row) for row in measured],
        )
        console.say(f"\n{_LEGEND}\n")
    for row in rows:
        _print_candidate(row)
    if not any(row["place"] for row in rows):
        console.say("None of the candidates is recommended.")


def _line(row: Mapping[str, Any]) -> list[Any]:
    certain = "" if row["certain_people"] is None else f"{row['certain_people']:,.0f}"
    return [
        _place(row),
        row["candidate"],
        certain,
        _percent(row["count_error"]),
        _percent(row["loss"]),
        _attack(row),
        row["tried_on"],
        f"{row['seconds']:.1f}",
    ]


def _place(row: Mapping[str, Any]) -> str:
    return f"{row['place']:.0f}" if row["place"] else "-"


def _attack(row: Mapping[str, Any]) -> str:
    rate = row["attack_rate"]
    if rate is None:
        return ""
    base = next(one["base_rate"] for one in row["attacks"] if one["rate"] == rate)
    return f"{_percent(rate)} ({_percent(base)})"


def _percent(share: float | None) -> str:
    return "" if share is None else f"{share:.1%}"


def _print_candidate(row: Mapping[str, Any]) -> None:
    console.say(f"{_place(row)}  {row['candidate']}")
    if row["objection"] is not None:
        console.say(f"   NOT RECOMMENDED: {row['objection']}.")
    console.say(f"   promises: {row['guarantee']}.")
    lost = {column: loss for column, loss in (row["loss_by_column"] or {}).items() if loss}
    if lost:
        console.say(
            f"   loses: {', '.join(f'{column} {_percent(v)}' for column, v in lost.items())}"
        )
    console.say(f"   {row['command']}\n")
