"""Recommending what to publish: candidates are tried, measured, and set side by side."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from math import isnan
from typing import Any, Final

from kanon_db.advice.candidates import Microdata, candidates_for
from kanon_db.advice.commands import publication_name, shell_command, sql_call
from kanon_db.advice.copies import MOST_DRAWN, MOST_TRIED, copy_source
from kanon_db.advice.protections import PROTECTIONS, Protection
from kanon_db.advice.ranking import Ranked, ranked
from kanon_db.advice.trials import Ground, try_candidate
from kanon_db.catalog.entries import Source, published_schema
from kanon_db.catalog.sources import open_source, require_unchanged
from kanon_db.publications.readers import check_readers
from kanon_db.publications.releases.ledger import earlier_releases
from kanon_db.session import Session, undone
from kanon_db.transfer.room import Room

TIME_LIMIT: Final = 60.0

_TRYING: Final = 0.95
"""The share of the time in which candidates are tried: some steps end a little later."""


@dataclass(frozen=True)
class Recommended:
    """A candidate: what it promises, what it is good for, and how to publish it.

    Attributes
    ----------
    place : int or None
        From 1 on; None for what is not recommended.
    candidate : str
        What it is, in a few words.
    guarantee : str
        In a plain sentence.
    certain_people : int or None
        How many of those it was tried on have a sensitive value that is certain; None if there is
        no sensitive attribute.
    count_error : float or None
        Half of 300 random counts are off by no more than this share of the true count.
    loss : float or None
        The mean of the columns' losses.
    loss_by_column : dict of str to float or None
        From 0 (all values are shown) to 1 (nothing is).
    attack_rate : float or None
        How often the best attack is right.
    attacks : list of dict or None
        The rows of `attack`.
    seconds : float or None
        What publishing took, of the records that it was tried on.
    tried_on, records : int
        How many records counts were answered from, and how many the source has.
    objection : str or None
        Why it is not recommended.
    sql, command : str
        What publishes it.
    """

    place: int | None
    candidate: str
    guarantee: str
    certain_people: int | None
    count_error: float | None
    loss: float | None
    loss_by_column: Mapping[str, float] | None
    attack_rate: float | None
    attacks: list[Mapping[str, Any]] | None
    seconds: float | None
    tried_on: int
    records: int
    objection: str | None
    sql: str
    command: str


def recommend(
    session: Session,
    source: str,
    *,
    purpose: str = "counts",
    protection: str = "standard",
    time_limit: float = TIME_LIMIT,
) -> list[Recommended]:
    """Try what could be published of a source, and set it side by side; nothing is published.

    Parameters
    ----------
    session : Session
        Of a role that could publish the source.
    source : str
        A registered relation.
    purpose : {"counts", "rows", "both"}
    protection : {"basic", "standard", "strict"}
    time_limit : float
        Seconds, after which candidates that were not tried stay so.

    Returns
    -------
    list of Recommended
        The best first; what is not recommended comes last.

    Raises
    ------
    NotFoundError
        When the source is not registered.
    PermissionDeniedError
        When the role cannot read all of it.
    """
    deadline = time.monotonic() + _TRYING * time_limit
    with undone(session):
        return _recommended(session, source, purpose, PROTECTIONS[protection], deadline)


def _recommended(
    session: Session, source: str, purpose: str, protection: Protection, deadline: float
) -> list[Recommended]:
    described, _ = open_source(session, source)
    room = Room.of(session)
    whole = copy_source(session, described, room)
    require_unchanged(session, described)
    large, small = (
        Ground.of(session, whole.sampled(session, room, most)) for most in (MOST_DRAWN, MOST_TRIED)
    )
    if small.copy.is_sample:
        session.tell(
            f"the source has {whole.n_source:,} records, so candidates are tried on random samples"
            f" of some {MOST_TRIED:,}, and buckets answer counts about some {MOST_DRAWN:,}: errors"
            " and losses of the whole table are as a rule smaller"
        )
    data = what_is_protected(large, has_entities=whole.has_entities(session))
    candidates = candidates_for(purpose, protection, data)
    session.plan([candidate.title for candidate in candidates])
    tried = []
    for candidate in candidates:
        session.phase(candidate.title)
        session.limit(deadline - time.monotonic())
        tried.append(try_candidate(session, candidate, small, large, deadline))
    _warn_of_releases(session, described)
    return [_shown(session, described, small, one) for one in ranked(tried, purpose)]


def what_is_protected(ground: Ground, *, has_entities: bool) -> Microdata:
    """Return what candidates depend on."""
    if ground.asked.sensitive is None:
        return Microdata(None, has_entities=has_entities)
    counts = ground.asked.sensitive.counts.tolist()
    return Microdata(ground.copy.source.sensitive, counts, has_entities)


def _warn_of_releases(session: Session, source: Source) -> None:
    """Say that none of the candidates can be published without a word, where that is so."""
    readers = check_readers(session, None, published_schema(session))
    earlier = earlier_releases(session, source.source_id, readers)
    if earlier:
        names = ", ".join(dict.fromkeys(one.name for one in earlier))
        session.warn(
            f"the same readers could read other releases of this source ({names}): whatever you"
            " publish for them is measured together with these, and refused if it tells more,"
            " unless you accept the risk combined_releases; dry_run => true says whether"
        )


def _shown(session: Session, source: Source, small: Ground, one: Ranked) -> Recommended:
    candidate, measured = one.tried.candidate, one.tried.measured
    name = publication_name(source.relation.name, candidate)
    # With the fewest quotes: the search path has no other schema than the server's own.
    (row,) = session.fetch(
        "SELECT to_regclass($1::text)::text AS name", source.relation.quoted(session)
    )
    text = row["name"]
    worst = None if measured is None else measured.worst_attack
    return Recommended(
        place=one.place,
        candidate=candidate.title,
        guarantee=candidate.guarantee,
        certain_people=None if measured is None else measured.certain_people,
        count_error=None
        if measured is None or isnan(measured.count_error)
        else measured.count_error,
        loss=None if measured is None else measured.loss,
        loss_by_column=None if measured is None else measured.losses,
        attack_rate=None if worst is None else worst["rate"],
        attacks=None if measured is None else list(measured.attacks),
        seconds=None if measured is None else measured.seconds,
        tried_on=small.copy.n_records if measured is None else measured.records,
        records=small.copy.n_source,
        objection=one.objection,
        sql=sql_call(text, name, candidate, session.literal),
        command=shell_command(text, name, candidate),
    )
