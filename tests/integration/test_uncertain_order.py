"""Who asks for the first of some groups is told whether their order is uncertain."""

from __future__ import annotations

import kanon_db
from tests.integration.parties import Functions, Parties, create_table, fetch

QUERY = (
    "SELECT town, COUNT(*) FROM ordered WHERE sick = 'flu' GROUP BY town"
    " ORDER BY COUNT(*) DESC LIMIT 2"
)


def test_a_notice_from_sql_and_python(parties: Parties) -> None:
    rows = [(f"town {i % 5}", ["flu", "cold", "cough"][i * i % 7 % 3]) for i in range(90)]
    create_table(parties.publisher, "data.ordered", "town text, sick text", rows)
    functions = Functions(parties.publisher)
    functions.register("data.ordered", ["town"], "sick")
    functions.call("publish_buckets", "data.ordered", "ordered", privacy='{"default": 0.7}')
    heard: list[str] = []

    def listen(diagnostic: object) -> None:
        heard.append(str(getattr(diagnostic, "message_primary", "")))

    parties.analyst.add_notice_handler(listen)
    try:
        fetch(parties.analyst, "SELECT kanon.estimate_counts($1)", QUERY)
        fetch(parties.analyst, "SELECT kanon.estimate_counts($1)", QUERY.partition(" LIMIT")[0])
    finally:
        parties.analyst.remove_notice_handler(listen)
    assert len(heard) == 1
    assert heard[0].startswith("the order of the groups is uncertain")
    told: list[str] = []
    with kanon_db.connect(parties.dsn, on_notice=told.append) as kanon:
        kanon.count(QUERY)
    assert told == heard
