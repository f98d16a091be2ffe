"""Publishes models that readers ask and cannot read, and answers for them by vote [TH].

``kind`` makes a model of a source, verifies and attacks it; ``asking`` is what `kanon.classify`
runs, on the reader's side and on the owner's. ``_network`` has encodings and networks in numpy,
``_training`` and ``_descent`` train them with JAX, and ``_votes`` counts votes, adds noise, and
knows what answers cost. Training and budgets need the extra ``models``; answering needs numpy only.
"""
