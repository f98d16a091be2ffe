"""Attacks against a model, played by its publisher."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from kanon_db.algorithms.models import count_votes, highest_rate, logits
from kanon_db.publications.kind import AttackTarget
from kanon_db.publications.model.layout import MEMBERS, encoding_of
from kanon_db.publications.model.members import read_members
from kanon_db.publications.model.sample import read_sample
from kanon_db.publications.results import Attack


def attack_model(target: AttackTarget) -> Sequence[Attack]:
    """Guess values, and who was in the source.

    Values are guessed by asking, of records of the source as it is today. Who was in it can only be
    scored while it is known which member was trained on whom, so that this was measured when the
    model was published (:mod:`.figures`).
    """
    publication = target.publication
    layout, metrics = publication.layout, publication.metrics
    inputs, labels = read_sample(target, encoding_of(layout))
    relation = target.session.identifier(target.schema, publication.name + MEMBERS)
    chosen = []
    for member in read_members(target.session, relation, int(layout["members"])):
        target.session.heartbeat()
        chosen.append(logits(member, inputs).argmax(axis=1))
    counts = count_votes(np.stack(chosen), len(layout["labels"]))
    n = len(labels)
    found = [
        Attack(
            "asking for a value",
            None,
            float(np.bincount(labels).max()) / n,
            float((counts.argmax(axis=1) == labels).mean()),
            n,
        )
    ]
    budget = layout["budget"]
    bound = None if budget is None else highest_rate(budget["epsilon"], budget["delta"])
    for attack, metric, limit in (
        ("membership: votes", "membership_rate_of_votes", bound),
        ("membership: a member that was taken", "membership_rate_of_a_member", None),
    ):
        rate = metrics.get(metric)
        people = 0 if rate is None else int(metrics["membership_people"])
        found.append(Attack(attack, limit, None if rate is None else 0.5, rate, people))
    return found
