"""Some records of a source, as a model that was made of it is asked about them."""

from __future__ import annotations

import numpy as np

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.algorithms.models import Encoding
from kanon_db.algorithms.models.networks import Float32Array
from kanon_db.errors import InfeasibleError
from kanon_db.publications.kind import AttackTarget
from kanon_db.publications.model.features import read_column, read_texts
from kanon_db.publications.model.figures import MOST_PEOPLE
from kanon_db.randomness import SecureRandom
from kanon_db.transfer.snapshot import take_snapshot


def read_sample(target: AttackTarget, encoding: Encoding) -> tuple[Float32Array, AnyIntArray]:
    """Read records of the source, drawn at random, with their labels.

    Returns
    -------
    inputs : ndarray of float32, shape (n, *shape)
    labels : ndarray of int64, shape (n,)
        Numbers of classes; records with other labels by now are left out.

    Raises
    ------
    InfeasibleError
        When none is left.
    """
    layout = target.publication.layout
    names = [feature.name for feature in encoding.features]
    snapshot = take_snapshot(
        target.session, target.source.relation, [*names, layout["label"]], target.room
    )
    places = SecureRandom().permutation(snapshot.n_records).astype(np.int32)
    snapshot = snapshot.keeping(np.where(places < MOST_PEOPLE, places, -1).astype(np.int32))
    columns = {
        feature.name: read_column(snapshot, target.types[feature.name], feature.kind)
        for feature in encoding.features
    }
    class_of = {text: place for place, text in enumerate(layout["labels"])}
    texts = read_texts(snapshot, target.types[layout["label"]])
    snapshot.drop()
    labels = np.array([class_of.get(text, -1) for text in texts], dtype=np.int64)
    if not (labels >= 0).any():
        raise InfeasibleError(
            "the source has no record left whose label the model knows",
            detail=f"relation {target.source.relation}",
        )
    return encoding.encode(columns)[labels >= 0], labels[labels >= 0]
