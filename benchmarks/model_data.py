"""Images that models are measured on: scikit-learn's digits, or files of MNIST when given a path.

KANON_MNIST names a folder with the four files of MNIST (``train-images-idx3-ubyte`` and so on, as
they are or with ``.gz``); then these are taken instead of the digits.
"""

from __future__ import annotations

import gzip
import os
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np
import numpy.typing as npt
from sklearn.datasets import load_digits

from kanon_db.algorithms.ground.arrays import AnyIntArray
from kanon_db.models._network import Float32Array, Member, TrainingSettings, logits
from kanon_db.models._training import parts_of, train
from kanon_db.models._votes import noisy_inputs, vote

MEMBERS = 50
CLASSES = 10
SCALES = (0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
MOST_LOST = 0.02
SETTINGS = TrainingSettings(steps=1500, batch=64)
_DRAWS = 10


@dataclass(frozen=True)
class Images:
    """Images with their classes, in three parts that no person or network mixes."""

    name: str
    train: tuple[Float32Array, AnyIntArray]
    validation: tuple[Float32Array, AnyIntArray]
    test: tuple[Float32Array, AnyIntArray]


@cache
def images() -> Images:
    """Read the images, with pixels from 0 to 1, and shuffle the digits with a fixed seed."""
    if folder := os.environ.get("KANON_MNIST"):
        return _mnist(Path(folder))
    found = load_digits()
    order = np.random.default_rng(20).permutation(len(found.target))
    x = (found.images[order] / 16).astype(np.float32)[..., None]
    y = found.target[order]
    parts = [(x[low:high], y[low:high]) for low, high in ((0, 1350), (1350, 1550), (1550, 1797))]
    return Images("scikit-learn's digits", *parts)


def _mnist(folder: Path) -> Images:
    """As in [TH]: 50 times 1,100 images to train with, 5,000 to validate."""
    x, y = (_idx(folder, f"train-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte"))
    order = np.random.default_rng(20).permutation(len(y))
    x, y = _pixels(x[order]), y[order].astype(np.int64)
    test = tuple(
        _idx(folder, f"t10k-{what}") for what in ("images-idx3-ubyte", "labels-idx1-ubyte")
    )
    return Images(
        "MNIST",
        (x[:-5000], y[:-5000]),
        (x[-5000:], y[-5000:]),
        (_pixels(test[0]), test[1].astype(np.int64)),
    )


def _idx(folder: Path, name: str) -> npt.NDArray[np.uint8]:
    """Read a file in the format IDX: two zeros, a type, the number of dimensions, their sizes."""
    packed = folder / f"{name}.gz"
    content = (
        gzip.decompress(packed.read_bytes()) if packed.exists() else (folder / name).read_bytes()
    )
    if content[:3] != b"\0\0\x08":
        raise ValueError(f"{name} is no IDX file of bytes")
    shape = np.frombuffer(content, ">u4", content[3], 4)
    return np.frombuffer(content, np.uint8, offset=4 + 4 * content[3]).reshape(shape)


def _pixels(bytes_: npt.NDArray[np.uint8]) -> Float32Array:
    return (bytes_ / np.float32(255)).astype(np.float32)[..., None]


@cache
def ensemble(parts: str, members: int = MEMBERS) -> tuple[Member, ...]:
    """Train members on 'disjoint' parts or on 'all' images, with a fixed seed."""
    x, y = images().train
    generator = np.random.default_rng(4)
    split = parts_of(len(y), members, generator) if parts == "disjoint" else None
    return tuple(
        train(x, y, CLASSES, members=members, parts=split, settings=SETTINGS, generator=generator)
    )


def labels(members: tuple[Member, ...], x: Float32Array, scale: float = 0.0) -> AnyIntArray:
    """Classify images by every member, each with noise of its own: (n_members, n_images)."""
    return np.stack([logits(member, noisy_inputs(x, scale)).argmax(axis=1) for member in members])


def accuracies(
    members: tuple[Member, ...], x: Float32Array, y: AnyIntArray, scale: float = 0.0
) -> tuple[float, float]:
    """Return the mean accuracy of the members and that of their vote; of noise, over ten draws."""
    found = []
    for _ in range(_DRAWS if scale else 1):
        classified = labels(members, x, scale)
        found.append(((classified == y).mean(), (vote(classified, CLASSES).winner == y).mean()))
    single, together = np.mean(found, axis=0).tolist()
    return single, together


@cache
def noise_scale(parts: str) -> float:
    """Choose the noise: the most with which the vote on the validation images loses two points.

    Attacks have no say in it.
    """
    members, (x, y) = ensemble(parts), images().validation
    _, clean = accuracies(members, x, y)
    kept = [s for s in SCALES if accuracies(members, x, y, s)[1] >= clean - MOST_LOST]
    return max(kept, default=SCALES[0])
