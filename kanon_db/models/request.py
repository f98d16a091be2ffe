"""Declares the parameters of publishing a model, and of asking one.

SQL, Python and the command line import this module, so it imports nothing heavy.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from fractions import Fraction
from typing import Any, Final, Literal

from kanon_db.dataclasses import dataclass
from kanon_db.declaration import (
    FLAG,
    NAMES,
    SECONDS,
    SHARE,
    TEXT,
    choice,
    json_list,
    json_object,
    options,
    parameter,
    unknown,
    whole,
)
from kanon_db.errors import InvalidParameterError
from kanon_db.publications.publish_request import PublishRequest

MOST_MEMBERS: Final = 1000
_MOST_STEPS: Final = 1_000_000


@dataclass(frozen=True)
class Budget:
    """The differential privacy of all answers to a reader role."""

    epsilon: float  # Parameters of differential privacy, for all answers together
    delta: float
    # Standard deviation, in votes, of the noise that is added to the votes for each label
    noise: int


_BUDGET: Final[Mapping[str, float]] = {"epsilon": 100.0, "delta": 0.01, "noise": 1e6}
"""Upper limits; larger values would promise nothing, or drown every vote."""


def read_budget(given: Mapping[str, Any]) -> Budget:
    """Read a budget."""
    amounts = {}
    for name in given:
        if name not in _BUDGET:
            raise unknown("part of a budget", name, list(_BUDGET), is_shown=False)
    for name, most in _BUDGET.items():
        number = given.get(name)
        if isinstance(number, bool) or not isinstance(number, int | float):
            raise InvalidParameterError(
                f"a budget needs the number {name}",
                hint='write {"epsilon": 1, "delta": 1e-6, "noise": 20}: what each reader role may'
                " be told, and the standard deviation of the noise on votes",
            )
        if not 0 < number <= most:
            raise InvalidParameterError(
                f"{name} of a budget must be a number above 0 and at most {most:g}"
            )
        amounts[name] = number
    if amounts["noise"] != int(amounts["noise"]):
        raise InvalidParameterError("noise of a budget must be a whole number")
    return Budget(float(amounts["epsilon"]), float(amounts["delta"]), int(amounts["noise"]))


def _read_features(given: Mapping[str, Any]) -> Mapping[str, Mapping[str, Any]]:
    """Read the descriptions of features, which are compared with their columns later."""
    if not given:
        raise InvalidParameterError("a model needs a feature")
    for described in given.values():
        if not isinstance(described, Mapping):
            raise InvalidParameterError(
                "a feature is described by a JSON object",
                hint='such as {"age": {"lower": 0, "upper": 100}, "sex": {}}',
            )
    return given


@dataclass(frozen=True, kw_only=True)
class ModelOptions:
    """Options of the training."""

    time_limit: float = parameter(
        SECONDS, "Seconds for the training; if it takes longer, nothing is published.",
        default=3600.0,
    )  # fmt: skip
    steps: int = parameter(
        whole(most=_MOST_STEPS), "Batches that each member is trained with.", default=1500
    )
    descent: Literal["adam", "momentum"] = parameter(
        choice(
            "descent",
            adam="Adam, which learns in few steps whatever the temperature",
            momentum="with momentum, as in the thesis, in twenty times as many steps",
        ),
        "How members learn.",
        default="adam",
    )


@dataclass(frozen=True, kw_only=True)
class ModelRequest(PublishRequest):
    """Parameters of `publish_model`."""

    label: str = parameter(TEXT, "Column that the model is to tell.", metavar="NAME")
    features: Mapping[str, Mapping[str, Any]] | None = parameter(
        json_object(_read_features, is_exact=False),
        "Columns that it tells it from, each with its range or values if they are not to be read"
        ' from the source, such as \'{"age": {"lower": 0, "upper": 100}, "sex": {"values":'
        ' ["f", "m"]}, "pixels": {"shape": [28, 28], "lower": 0, "upper": 255}}\'; by default all'
        " published columns.",
        default=None,
    )
    members: int = parameter(whole(least=2, most=MOST_MEMBERS), "Networks that vote.", default=50)
    method: Literal["disjoint", "all"] = parameter(
        choice(
            "method",
            disjoint="each member on people of its own, drawn at random; a budget needs this",
            all="each member on all people",
        ),
        "On what members are trained.",
        default="disjoint",
    )
    budget: Budget | None = parameter(
        json_object(read_budget, is_exact=False),
        'What each reader role may be told about people, such as \'{"epsilon": 1, "delta": 1e-6,'
        ' "noise": 20}\', with the standard deviation of the noise on votes; without one, the risk'
        " model_without_budget must be accepted.",
        default=None,
    )
    input_noise: Fraction = parameter(
        SHARE, "Scale of the noise on inputs, which lie between -1 and 1, new for each question.",
        default="0.1",
    )  # fmt: skip
    logits: bool = parameter(
        FLAG,
        "Let readers have the mean of the members' outputs before the vote, always of noisy"
        " inputs; not with a budget.",
        default=False,
    )
    labels: tuple[str, ...] | None = parameter(
        NAMES,
        "All values that the label can have; by default those in the source, which readers see.",
        default=None,
    )
    options: ModelOptions = parameter(
        options(ModelOptions), "Options of the training, such as '{\"steps\": 3000}'.",
        default=None,
    )  # fmt: skip

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.budget is not None and self.method != "disjoint":
            raise InvalidParameterError(
                "a budget needs members that are trained on different people",
                detail="method => 'all': whoever is in the source may change all votes",
                hint="leave the method out, or publish without a budget",
            )
        if self.budget is not None and self.logits:
            raise InvalidParameterError(
                "with a budget, a model tells no logits",
                detail="the noise that bounds what it tells is on the votes",
                hint="leave logits out, or publish without a budget",
            )
        if self.logits and not self.input_noise:
            raise InvalidParameterError(
                "logits are told of noisy inputs only", hint="give input_noise a value above 0"
            )
        if self.features is not None and self.label in self.features:
            raise InvalidParameterError(
                "the label is a feature of itself", detail=f'column "{self.label}"'
            )


@dataclass(frozen=True, kw_only=True)
class ClassifyRequest:
    """Parameters of `classify`."""

    publication: str = parameter(TEXT, "The model.", is_positional=True, metavar="NAME")
    features: Mapping[str, Any] = parameter(
        json_object(dict, is_exact=False),
        'The value of each feature, such as \'{"age": 41, "sex": "f", "pixels": [0, 0.5]}\', null'
        " where it is not known; other names are ignored.",
        is_positional=True,
    )


@dataclass(frozen=True, kw_only=True)
class ClassifyAllRequest:
    """Parameters of `classify_all`."""

    publication: str = parameter(TEXT, "The model.", is_positional=True, metavar="NAME")
    rows: list[Any] = parameter(
        replace(json_list(is_exact=False), python="str | Sequence[Any] | pd.DataFrame"),
        "A JSON list of rows, each with its features, such as"
        " (SELECT jsonb_agg(p) FROM people AS p).",
        is_positional=True,
    )
