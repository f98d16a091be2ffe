"""The kinds of publications that kanon_db has, each declared in its own room, registered here."""

from __future__ import annotations

from kanon_db.publications.registry import DeclaredKind, register_kind

register_kind(
    DeclaredKind(
        name="buckets",
        request_class="BucketRequest",
        help="publish a registered source as buckets under F'-privacy",
        details="Creates the tables NAME_qit and NAME_sat, and the view NAME, which joins them.",
        room="kanon_db.publications.buckets",
        shape="buckets",
    )
)
register_kind(
    DeclaredKind(
        name="generalized",
        request_class="GeneralizedRequest",
        help="publish a registered source k-anonymously, with ranges and sets that rows share",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.generalized",
    )
)
register_kind(
    DeclaredKind(
        name="freeform",
        request_class="FreeformRequest",
        help="publish a registered source k-anonymously, each row with ranges and sets of its own",
        details="Creates the materialized view NAME.",
        room="kanon_db.publications.freeform",
    )
)
register_kind(
    DeclaredKind(
        name="suppressed",
        request_class="SuppressedRequest",
        help="publish a registered source k-anonymously, with suppressed cells",
        details="Creates the materialized view NAME. Without patterns or rules, any cells may be"
        " suppressed; `kanon patterns` shows which combinations they allow.",
        room="kanon_db.publications.suppressed",
    )
)
register_kind(
    DeclaredKind(
        name="model",
        request_class="ModelRequest",
        help="publish a model of a registered source, which readers ask and cannot read",
        details="Creates the table NAME, which says what to ask, and NAME_net, which no reader may"
        " read. `kanon classify` asks it. Training needs the extra models.",
        room="kanon_db.publications.model",
        shape="model",
    )
)
