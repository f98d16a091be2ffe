"""Publishes a registered source, whatever the kind of publication.

``pipeline`` runs the steps of publishing in the same order for all kinds; ``kind`` says what the
steps of a kind are; ``registry`` finds the kinds by name. ``lifecycle`` names, drops and loads
publications, ``refresh`` adds the people that came since, ``examination`` verifies, measures and
attacks what is published. ``releases`` compares a release with earlier ones of the same people.
Each kind has a package of its own; ``rows`` is what the three kinds of rows share.
"""

import kanon_db.publications.registry  # noqa: F401  # registers the kinds that kanon_db has
from kanon_db.publications.registry import KINDS, DeclaredKind, register_kind

__all__ = ["KINDS", "DeclaredKind", "register_kind"]
