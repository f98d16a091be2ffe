"""Publishes models that readers ask and cannot read, and answers for them by vote [TH].

``kind`` makes a model of a source, verifies it and attacks it; ``asking`` answers `kanon.classify`,
in the reader's session and with the owner's rights. ``_network`` has encodings and networks in
numpy, ``_training`` and ``_descent`` train them with JAX, and ``_votes`` counts votes, adds noise
and calculates what answers cost. Training and budgets need the extra ``models``, answering numpy.
"""
