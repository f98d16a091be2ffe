"""Writes a report as one HTML file that needs nothing else.

Its sentences are for people who have not read the papers. Each is about a property that a test
holds the code to; docs/understand/privacy.md names the proofs and the tests.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import kanon_db
from kanon_db.errors import ServerError
from kanon_db.figures import FigureRule
from kanon_db.publications.registry import kind_named
from kanon_db.publications.results import Attack, Check, Remark, is_attack
from kanon_db.reporting.facts import AT_RISK, Counted, Facts, LinkingRisk

ROWS: Final[Mapping[Counted, str]] = {
    Counted.PEOPLE: "one row for each person",
    Counted.SEVERAL: "a row for each record; several may be about one person",
    Counted.UNKNOWN: "a row for each record; several may be about one person, since no column of"
    " the source was registered that says whom a record is about",
}
"""What a row of a publication is."""

PREMISES: Final[Mapping[Counted, str]] = {
    Counted.SEVERAL: "Several records may be about one person, so what follows counts records.",
    Counted.UNKNOWN: "This takes each record for a person of its own. No column of the source was"
    " registered as its entity: where several records are about one person, less is promised.",
}
"""What a promise rests on, where it is not known that there is one record for each person."""

ALWAYS: Final = (
    "that a person is in the table at all: the publication does not hide it",
    (
        "what several publications of the same people tell together, beyond what the section on"
        " releases says"
    ),
    (
        "what somebody knows, or learns, about how other columns go together with the hidden value;"
        " the table of attacks says how much that is for the attackers it lists, and no more"
    ),
)
"""What no guarantee covers."""

NOT_MEASURED: Final = "not measured"

_EL_EMAM: Final = "El Emam 2013, chapter 16"
_WP216: Final = "Article 29 Working Party, Opinion 05/2014 (WP216)"
_MEANINGS: Final[Mapping[str, str]] = {
    "Prosecutor risk, highest": "Somebody looks for a person who is known to be in the table. Of f"
    " people who are alike, 1 in f is picked rightly: this is of the smallest class"
    f" ({_EL_EMAM})",
    "Prosecutor risk, average": f"The same, as the mean over all ({_EL_EMAM})",
    "At risk": f"In classes of fewer than {AT_RISK}: above 0.09, the threshold of the European"
    " Medicines Agency for public releases (Policy 0070)",
    "Journalist risk, highest": "Somebody picks a record and looks for it in the population, not"
    " knowing who is in the table: 1 in F, of the F people there who are alike. Where every F is at"
    f" least k, the table is k-mapped ({_EL_EMAM}; k-map: Sweeney 2002)",
    "Journalist risk, average": f"The same, as the greater of two means ({_EL_EMAM})",
    "Marketer risk": "Somebody links the whole table to a list, by chance inside classes: the share"
    f" that is right ({_EL_EMAM}; Dankar and El Emam 2010). Without a population, the list is of"
    " just these people",
}
"""The risks of linking, each with its definition and source."""


def _figures(risk: LinkingRisk, facts: Facts) -> tuple[float | str | None, ...]:
    prosecutor, journalist = risk.prosecutor, risk.journalist
    return (
        prosecutor.highest, prosecutor.average, _share(facts, prosecutor.at_risk),
        None if journalist is None else journalist.highest,
        None if journalist is None else journalist.average,
        risk.marketer,
    )  # fmt: skip


def linking_rows(facts: Facts) -> list[tuple[str, str, str, str]]:
    """Return the risks of linking: name, definition, in the original, in the publication."""
    linking = facts.linking
    nothing = (None,) * len(_MEANINGS)
    figures = (_figures(one, facts) if one else nothing for one in (linking.before, linking.after))
    rows = []
    for (name, meaning), before, after in zip(_MEANINGS.items(), *figures, strict=True):
        said = _tell_risk(after)
        if facts.shape == "model":
            said = "no rows are published"
        elif linking.after is None and linking.bound and name.startswith("Prosecutor"):
            said = f"at most {_percent(float(linking.bound))}"
        rows.append((name, meaning, _tell_risk(before), said))
    return rows


def three_tests(facts: Facts) -> list[tuple[str, str, str, str]]:
    """Answer the three questions of European guidance: name, question, verdict, what is known."""
    linking, k = facts.linking, facts.parameters.get("k")
    who = "people" if facts.counted is Counted.PEOPLE else "records"
    others = [one for one in facts.releases if one.now and one.name != facts.name]
    shared = [one.name for one in others if one.is_shared]
    further = "; no other release of these people that this role made can be read now"
    if shared:
        further = (
            f"; readers can now read other releases of these people as well: {', '.join(shared)}"
        )
    elif others:
        further = (
            "; other releases of these people can be read now, by nobody who reads this one:"
            f" {', '.join(one.name for one in others)}"
        )
    if facts.shape == "buckets":
        alone = linked = "not prevented"
        row = (
            "quasi-identifiers are published as they are, and"
            f" {_share(facts, facts.before.unique)} of the {who} are alone with theirs"
        )
        record = "rows of two tables with the same quasi-identifiers are linked"
    elif facts.shape == "model":
        alone = linked = "no rows"
        row = "readers see no record; see the attacks on membership"
        record = "there is nothing to link but answers"
    else:
        alone = linked = "limited"
        seen = [one.name for one in facts.columns if one.shown == "as it is"]
        row = (
            f"quasi-identifiers fit at least {k} {who}, but for what the promise excepts;"
            f" together with what is published as it is ({', '.join(seen) or 'no column'}),"
            f" {_share(facts, linking.alone)} of the rows are alone"
        )
        record = (
            "by quasi-identifiers, a record elsewhere is linked to a group, not to a row; by"
            f" columns that are published as they are: {NOT_MEASURED}"
        )
        if (picked := facts.line_of("refinement: linking a row")) is not None:
            record += (
                "; whoever recomputes the classes picks a person's row rightly in"
                f" {_percent(picked.rate)} of the cases, on average"
            )
    if (singled := facts.line_of("singling out")) is not None:
        if (singled.rate or 0.0) > (singled.base_rate or 0.0):
            alone = "not prevented"
        row += (
            f"; {_percent(singled.rate)} of the rows describe exactly one person, and by chance"
            f" {_percent(singled.base_rate)} would: the attack singling out"
        )
    verdict, measured = inference_test(facts, who)
    return [
        ("Singling out", "Can a record be isolated that is one person's?", alone, row),
        (
            "Linkability",
            "Can two records about the same person or group be linked, in one table or in two?",
            linked,
            record + further,
        ),
        (
            "Inference",
            "Can a value be deduced, with significant probability, from other values?",
            verdict,
            measured,
        ),
    ]


def inference_test(facts: Facts, who: str) -> tuple[str, str]:
    """Judge by figures whether values are inferred: the promise beside the best attack."""
    inferences = facts.inferences
    if not inferences:
        return "nothing sensitive", "there is no sensitive column to infer"
    verdicts, measured = [], []
    for one in inferences:
        worst, known = one.worst, one.known
        verdict = "bounded" if one.is_bounded else "not bounded"
        if worst is not None and worst.exceeds:
            verdict = (
                f"bounded for readers who learn nothing; exceeded by {worst.attack}"
                f" ({_percent(worst.rate)})"
            )
        if one.is_bounded and (open_to := one.worst_unbounded) is not None:
            verdict += f", but not against {open_to.attack} ({_percent(open_to.rate)})"
        verdicts.append(f"{one.name}: {verdict}" if len(inferences) > 1 else verdict)
        said = []
        if known.certain is not None:
            said.append(
                f"the value of {_share(facts, known.certain)} of the {who} is certain, and that of"
                f" {_share(facts, known.guessed)} the most frequent of those that are possible"
            )
        if worst is not None:
            allowed = (
                "nothing bounds it"
                if worst.bound is None
                else (f"{_percent(worst.bound)} is allowed")
            )
            said.append(
                f"the best attack, {worst.attack}, is right for {_percent(worst.rate)} of"
                f" {_rule(facts).words(worst.people)} {who}: {allowed}"
            )
        said = said or ["no attack was played"]
        measured.append(
            f"{one.name}: {'; '.join(said)}" if len(inferences) > 1 else "; ".join(said)
        )
    return "; ".join(verdicts), "; ".join(measured)


ATTACKS: Final[Mapping[str, str]] = {
    "most frequent value": "guesses the most frequent value among those a person may have",
    "unusual people: most frequent value": "the same, only for people who are easy to find",
    "minimality": "sorts people, and takes the first or last of a bucket for whom it was kept open",
    "deFinetti": "learns from the publication which values go with which people; those who are"
    " alike are told the same",
    "unusual people: deFinetti": "the same, only for people who are easy to find",
    "unique people: deFinetti": "the same, only for people whom nobody else is like",
    "a part of the value": "guesses one of the codes of a value that is a list of codes",
    "surer than the bound: deFinetti": "the same, only for people of whom it is surer than allowed",
    "correlations of the source": "knows that already, from other people's true values",
    "homogeneity": "waits for people whose value is certain",
    "knows the value": "and guesses another sensitive value of the same person",
    "linking a row": "says which row is a person's",
    "unusual people: linking a row": "the same, only for people who are easy to find",
    "asking for a value": "asks the model for the label of people in the source",
    "membership: votes": "knows a person, and tells from the votes whether the person was in it",
    "membership: a member that was taken": "the same, from one of the networks itself",
    "singling out": "describes somebody so that nobody else is like that",
    "downcoding": "guesses what a range or a set stands for",
    "refinement": "knows the method: how much of what cells leave open it excludes, in bits",
    "refinement: known values": "the same: cells of classes whose values all follow, in some order",
    "refinement: linking a row": "the same, and says which row is a person's",
    "refinement: most frequent value": "the same, and guesses the most frequent value of the rows"
    " that are left",
}
"""What each attacker does; docs/understand/attacks.md has the details."""


_TEMPLATE: Final = "report.html"


def write_page(facts: Facts) -> str:
    """Write a report as HTML, with plots and style inside; names, roles and reasons are escaped.

    `ServerError`: the extra ``report`` is not installed.
    """
    try:
        import jinja2
        from markupsafe import Markup

        from kanon_db.reporting import _plots
    except ImportError:
        raise ServerError(
            "a report needs packages that are not installed here",
            detail="jinja2 and matplotlib",
            hint="pip install 'kanon_db[report]'",
        ) from None
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader("kanon_db.reporting", "."),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    facts, figures = _show_attacks(facts), _rule(facts)
    environment.filters |= {"share": lambda share: _share(facts, share)}
    environment.filters |= {"percent": _percent, "number": _number, "people": figures.words}
    environment.filters |= {"attacker": _attacker, "verdict": verdict}
    described = kind_named(facts.kind).description
    group = "bucket" if facts.shape == "buckets" else "class"
    who = "people" if facts.counted is Counted.PEOPLE else "records"
    sizes = figures.sizes(facts.sizes)
    drawn = {
        "attacks": _plots.attacks_plot(facts.attacks) if facts.attacks else "",
        "sizes": _plots.sizes_plot(sizes, f"{who} in a {group}") if sizes else "",
        "losses": _plots.losses_plot(facts.losses) if any(facts.losses.values()) else "",
        "errors": _plots.errors_plot(facts.errors) if facts.errors else "",
    }
    return environment.get_template(_TEMPLATE).render(
        facts=facts,
        sizes=sizes,
        who=who,
        premise=PREMISES.get(facts.counted, "") if facts.shape != "model" else "",
        now=facts.reported_at,
        group=group,
        groups="buckets" if group == "bucket" else "classes",
        what=described.published.format(row=ROWS[facts.counted], who=who),
        promise=facts.promise[:1].upper() + facts.promise[1:],
        not_covered=[
            *facts.left_open,
            *described.not_covered,
            *ALWAYS[described.hides_membership :],
        ],
        which=f" of {facts.sensitive}" if facts.others else "",
        linking=linking_rows(facts),
        means_of_linking=described.linking,
        tests=three_tests(facts),
        wp216=_WP216,
        plots={name: Markup(svg) for name, svg in drawn.items()},  # noqa: S704  # our own
        parameters={
            name: figures.words(value) if name in _COUNTS else _plain(value)
            for name, value in facts.parameters.items()
        },
        version=kanon_db.__version__,
    )


_COUNTS: Final = ("suppressed", "not_kept")
"""Parameters that count people."""


def _rule(facts: Facts) -> FigureRule:
    return facts.figures or FigureRule()


def _share(facts: Facts, share: float | None) -> str:
    """Write a share of the people; of few, that they are few."""
    rule = _rule(facts)
    return _percent(share) if rule.is_shown(share, facts.records) else rule.few


def _tell_risk(risk: float | str | None) -> str:
    if risk is None:
        return NOT_MEASURED
    return risk if isinstance(risk, str) else _percent(risk)


def _show_attacks(facts: Facts) -> Facts:
    """Leave out how often an attack is right about few people."""
    rule = _rule(facts)

    def show(attacks: Sequence[Attack]) -> list[Attack]:
        return [
            replace(line, rate=None, base_rate=None) if rule.number(line.people) is None else line
            for line in attacks
        ]

    return replace(
        facts,
        attacks=show(facts.attacks),
        inferences=[replace(one, attacks=show(one.attacks)) for one in facts.inferences],
    )


def verdict(check: Check) -> str:
    """Say whether a check holds; what was not measured, or has no bound, is no promise kept."""
    if isinstance(check, Remark):
        return "not measured" if check.measured == "not measured" else "no bound"
    return "yes" if check.holds else "no"


def _plain(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _attacker(line: Attack) -> str:
    """Say what an attacker does, whichever sensitive attribute it is about."""
    return next((what for name, what in ATTACKS.items() if is_attack(line.attack, name)), "")


def _percent(share: float | None) -> str:
    """Round to what a reader needs; only zero is shown as zero."""
    if share is None:
        return "-"
    if 0 < share < 0.0001:
        return "< 0.01 %"
    if 0.9999 < share < 1:
        return "> 99.99 %"
    return f"{100 * share:.2f} %" if share < 0.1 else f"{100 * share:.1f} %"


def _number(value: float | None) -> str:
    return "-" if value is None else f"{value:,.0f}"
