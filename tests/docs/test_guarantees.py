"""Each sentence of each guarantee is in the reference, and nothing else is."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import product
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

from kanon_db.models.kind import ModelGuarantee
from kanon_db.publications.buckets.methods import BucketGuarantee, ValueProtection
from kanon_db.publications.freeform import kind as freeform
from kanon_db.publications.generalized import kind as generalized
from kanon_db.publications.guarantees import Guarantee
from kanon_db.publications.suppressed import kind as suppressed
from tests.attacks.publishers import request_of

PAGE = (Path(__file__).parents[2] / "docs" / "reference" / "reference.md").read_text(
    encoding="utf-8"
)
TABLE = PAGE.split("<!-- guarantees -->")[1].split("<!-- end -->")[0]
ROWS = re.findall(r"^\| (?!---|what it says)(.+?) \| (`.+`) \|$", TABLE, re.MULTILINE)


def guarantees() -> Iterator[Guarantee]:
    """Every kind, with everything that changes what it says."""
    quiet = cast("Any", SimpleNamespace(warn=lambda _: None))
    for assignment, certain, unbounded, attributes in product(
        ("cells", "random", "m_invariant"),
        (0, 2),
        (0.0, 0.125),
        (("ill",), ("ill", "cost")),
    ):
        asked = request_of("buckets", privacy={"l": 3}, assignment=assignment)
        for l in (None, 3) if assignment != "m_invariant" else (3,):
            protection = ValueProtection(attributes, (), l, unbounded, attributes[:1])
            yield protection.guarantee(asked, certain, quiet)
    exposure = {"unbounded": 1, "records": 8}
    for constraints, n, with_entities, names in product(
        (None, {"l": 2}, {"default": 0.5}), (0, 3), (False, True), (["ill"], ["ill", "3; cost"])
    ):
        asked = request_of("generalized", k=5, constraints=constraints)
        each = {} if constraints is None else asked.constraints.of_each(names)
        for exposures in (dict.fromkeys(each, exposure), {}):
            yield generalized.ClassGuarantee.of(
                asked, n, each, exposures, quiet.warn, with_entities=with_entities
            )
    for method, options in (
        ("sort_greedy", {}), ("sort_greedy", {"symmetric": True}),
        ("k_concealment", {"allow_weaker": True}),
    ):  # fmt: skip
        asked = request_of("freeform", k=4, method=method, options=options)
        yield freeform.FreeformGuarantee.of(asked)
    accept = {"left_over_records": "it is a test"}
    for left_over, n, with_entities in product(("withhold", "publish"), (0, 3), (False, True)):
        asked = request_of("suppressed", k=4, options={"left_over": left_over}, accept=accept)
        yield suppressed.SuppressedGuarantee.of(asked, n, with_entities=with_entities)
    for entity, is_declared, budget in product(
        (None, "id"), (True, False), (None, SimpleNamespace(epsilon=2.0, delta=1e-5, answers=70))
    ):
        job = SimpleNamespace(
            source=SimpleNamespace(entity=entity), request=SimpleNamespace(label="ill")
        )
        feature = SimpleNamespace(name="age", is_declared=is_declared)
        encoding = SimpleNamespace(features=[feature])
        labels = SimpleNamespace(is_declared=is_declared)
        yield ModelGuarantee.of(*cast("Any", (job, budget, encoding, labels)))
    one = freeform.FreeformGuarantee(k=4)
    yield replace(one, kept="the latest by admission, with the greatest cost", pooled=("cost",))


def sentences(told: str) -> list[str]:
    """Split a guarantee where no name has a semicolon."""
    return told.replace("3; cost", "3, cost").split("; ")


def test_each_sentence_is_in_the_reference() -> None:
    known = [".+".join(map(re.escape, row.split("…"))) for row, _ in ROWS]
    told = {str(one) for one in guarantees()}
    told |= {str(one.together(one)) for one in guarantees()}
    sentences_told = {one for said in told for one in sentences(said)}
    missing = [one for one in sentences_told if not any(re.fullmatch(row, one) for row in known)]
    assert missing == []
    unused = [row for row in known if not any(re.fullmatch(row, one) for one in sentences_told)]
    assert unused == []


def test_the_catalog_keeps_what_a_guarantee_says() -> None:
    """Its figures, as JSON, make the same text again."""
    for one in guarantees():
        plain = json.loads(json.dumps(one.plain))
        again = type(one).read(plain)
        assert (str(again), again.short, again.bounded) == (str(one), one.short, one.bounded)
        assert len(one.short) < 80 < len(str(one))


def test_batches_add_people_and_nothing_else() -> None:
    """Thresholds, names of columns and rules are those of both, whatever numbers are in them."""
    bounds = {"l": "3", "attributes": {"icd10": {"default": "1/3"}, "part 1/2": {"cap": "1/2"}}}
    one = BucketGuarantee(
        attributes=("icd10", "part 1/2"), l=None, rules=bounds, unbounded=0.2, certain=3
    )
    batch = replace(one, unbounded=0.1, certain=4, rules={"n_own": 7})
    both = one.together(batch)
    assert both == replace(one, certain=7)
    assert "icd10 or part 1/2" in str(both)
    assert "icd10 (default 1/3), part 1/2 (cap 1/2)" in str(both)
    assert str(both).endswith("the threshold is 1 for 20.0% of the records; the value of 7 people"
                              " is certain")  # fmt: skip
    constraints = {"icd10": {"entropy_l": 2.5, "t": 0.2, "distance": "equal"}}
    rows = generalized.ClassGuarantee(k=5, of_people=True, constraints=constraints, left_out=2)
    assert rows.together(replace(rows, left_out=5)) == replace(rows, left_out=7)
    hidden = suppressed.SuppressedGuarantee(k=5, of_people=False, left_over=0)
    assert hidden.together(replace(hidden, left_over=3)).left_over == 3
