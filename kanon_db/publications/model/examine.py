"""Verifying and measuring a model."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from typing import Any, Final

from kanon_db.catalog.entries import Publication, ask_model, published_schema
from kanon_db.publications.model.budget import epsilon_of
from kanon_db.publications.model.layout import MEMBERS
from kanon_db.publications.results import Check, Examination
from kanon_db.session import Session

_ROUNDING: Final = 1e-5
"""Orders of the divergence are tried one by one, so that the least cost is met nearly."""


def examine_model(session: Session, publication: Publication, *, is_new: bool) -> Examination:
    """Check what a model promises, and measure it.

    Parameters
    ----------
    session : Session
        Of any role that may read the publication.
    publication : Publication
    is_new : bool
        Whether the role may read the members itself; otherwise their owner is asked about them.

    Returns
    -------
    Examination
        Metrics: ``records`` that it was trained on, ``members``, ``labels``, ``features`` and, with
        a budget, the ``answers`` that each reader role may get.
    """
    layout = publication.layout
    found = (
        _staged(session, publication)
        if is_new
        else ask_model(session, "members", name=publication.name)
    )
    budget = layout["budget"]
    checks = [*_members(publication, found), *_noise(layout)]
    if budget is not None:
        checks += [_cost(budget), *_spent(found["budgets"])]
    metrics: dict[str, float] = {
        "records": publication.records,
        "members": int(found["members"]),
        "labels": len(layout["labels"]),
        "features": len(layout["features"]),
    }
    if budget is not None:
        metrics["answers"] = int(budget["answers"])
    return Examination(checks, metrics)


def _staged(session: Session, publication: Publication) -> Mapping[str, Any]:
    """Look at the members themselves, by other means than the owner's."""
    relation = session.identifier(published_schema(session), publication.name + MEMBERS)
    digest, members, records = hashlib.sha256(), 0, 0
    rows = session.stream(1, f"SELECT network, records FROM {relation} ORDER BY member")
    for row in rows:
        digest.update(hashlib.sha256(row["network"]).digest())
        members, records = members + 1, records + int(row["records"])
    return {
        "members": members, "records": records, "digest": digest.hexdigest(), "budgets": [],
    }  # fmt: skip


def _members(publication: Publication, found: Mapping[str, Any]) -> list[Check]:
    layout, parameters = publication.layout, publication.parameters
    same = found["digest"] == layout["digest"]
    checks = [
        Check(
            "every member is there, as it was trained",
            f"{parameters['members']} members, the same digest",
            f"{found['members']} members, {'the same' if same else 'another'} digest",
            holds=same and found["members"] == layout["members"] == parameters["members"],
        )
    ]
    if publication.method == "disjoint":
        checks.append(
            Check(
                "members were trained on different records, which are all records together",
                f"{publication.records} records",
                f"{found['records']} records of all members",
                holds=found["records"] == publication.records,
            )
        )
    return checks


def _noise(layout: Mapping[str, Any]) -> list[Check]:
    scale, budget = layout["input_noise"], layout["budget"]
    checks = []
    if layout["logits"]:
        checks.append(
            Check(
                "logits are told of noisy inputs only, and without a budget",
                "a scale above 0",
                f"{scale:g}",
                holds=scale > 0 and budget is None,
            )
        )
    return checks


def _cost(budget: Mapping[str, Any]) -> Check:
    """Check the number of answers by a formula that shares nothing with how it was found."""
    cost = epsilon_of(budget["answers"], budget["delta"], budget["noise"])
    return Check(
        "the answers that a reader role may get, with the noise on votes, keep its budget",
        f"epsilon {budget['epsilon']:g}, delta {budget['delta']:g}",
        f"epsilon {cost:.4g} for {budget['answers']:,} answers with noise {budget['noise']}",
        holds=cost <= budget["epsilon"] * (1 + _ROUNDING),
    )


def _spent(budgets: list[Mapping[str, Any]]) -> list[Check]:
    return [
        Check(
            f"answers to the role {budget['role']} are counted",
            f"at most {budget['answers']:,}",
            "nobody knows: its counter is gone, or was changed"
            if budget["asked"] is None
            else f"{budget['asked']:,}",
            holds=budget["asked"] is not None and budget["asked"] <= budget["answers"],
        )
        for budget in budgets
    ]
