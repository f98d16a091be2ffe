"""The operations as methods.

Written by `make generate` from the declarations in kanon_db/operations.py.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Any

import pandas as pd

from kanon_db.models.asking import Classified
from kanon_db.publications.refresh import Refreshed
from kanon_db.publications.results import Published
from kanon_db.query.formulas import Estimated

class Methods:
    def perform(self, name: str, given: Mapping[str, Any]) -> Any: ...
    def version(self) -> str: ...
    def register_source(
        self,
        source: str,
        *,
        quasi_identifiers: Sequence[str],
        sensitive: str | None = ...,
        identifiers: Sequence[str] = ...,
        attributes: str | Mapping[str, Any] | None = ...,
        insensitive: Sequence[str] = ...,
        entity: str | None = ...,
        arrival: str | None = ...,
        also_sensitive: Sequence[str] = ...,
        keep: str | None = ...,
    ) -> int: ...
    def inspect_relation(self, source: str) -> pd.DataFrame: ...
    def unicity(self, source: str) -> pd.DataFrame: ...
    def recommend(
        self, source: str, *, purpose: str = ..., protection: str = ..., time_limit: float = ...
    ) -> pd.DataFrame: ...
    def suppression_patterns(
        self,
        source: str,
        *,
        patterns: Sequence[str] | None = ...,
        rules: str | Sequence[Any] | None = ...,
        weights: str | Mapping[str, Any] | None = ...,
    ) -> pd.DataFrame: ...
    def verify(self, name: str) -> pd.DataFrame: ...
    def check_relation(
        self,
        relation: str,
        *,
        quasi_identifiers: Sequence[str],
        sensitive: Sequence[str] = ...,
        entity: str | None = ...,
        survey_weight: str | None = ...,
        k: int | None = ...,
        l: int | None = ...,
        t: float | Decimal | str | None = ...,
    ) -> pd.DataFrame: ...
    def metrics(self, name: str) -> pd.DataFrame: ...
    def attack(self, name: str) -> pd.DataFrame: ...
    def evaluate_counts(
        self,
        name: str,
        *,
        queries: int = ...,
        dimensionality: Sequence[int] | None = ...,
        selectivity: Sequence[float] | None = ...,
        seed: int | None = ...,
    ) -> pd.DataFrame: ...
    def check_release(
        self, source: str, publication: str, *, readers: Sequence[str] | None = ...
    ) -> pd.DataFrame: ...
    def grant_publication(
        self, name: str, *, readers: Sequence[str], accept: str | Mapping[str, Any] = ...
    ) -> None: ...
    def refresh(self, publication: str, *, accept: str | Mapping[str, Any] = ...) -> Refreshed: ...
    def drop_publication(self, name: str) -> None: ...
    def draw(self, name: str, *, seed: int | None = ...) -> pd.DataFrame: ...
    def estimate_count(
        self,
        query: str,
        *,
        figures: str | Mapping[str, Any] | None = ...,
        params: str | Sequence[Any] | Mapping[str, Any] | None = ...,
        publication: str | None = ...,
    ) -> Estimated: ...
    def estimate_counts(
        self,
        query: str,
        *,
        figures: str | Mapping[str, Any] | None = ...,
        params: str | Sequence[Any] | Mapping[str, Any] | None = ...,
        publication: str | None = ...,
    ) -> pd.DataFrame: ...
    def estimate(
        self,
        query: str,
        *,
        figures: str | Mapping[str, Any] | None = ...,
        params: str | Sequence[Any] | Mapping[str, Any] | None = ...,
        publication: str | None = ...,
    ) -> pd.DataFrame: ...
    def explain_count(
        self,
        query: str,
        *,
        params: str | Sequence[Any] | Mapping[str, Any] | None = ...,
        publication: str | None = ...,
    ) -> pd.DataFrame: ...
    def rewrite_count(
        self,
        query: str,
        *,
        params: str | Sequence[Any] | Mapping[str, Any] | None = ...,
        publication: str | None = ...,
    ) -> str: ...
    def classify(self, publication: str, features: str | Mapping[str, Any]) -> Classified: ...
    def classify_all(
        self, publication: str, rows: str | Sequence[Any] | pd.DataFrame
    ) -> pd.DataFrame: ...
    def publish_buckets(
        self,
        source: str,
        publication: str,
        *,
        privacy: str | Mapping[str, Any],
        method: str = ...,
        max_bucket_size: int = ...,
        assignment: str = ...,
        readers: Sequence[str] | None = ...,
        replace: bool = ...,
        options: str | Mapping[str, Any] | None = ...,
        accept: str | Mapping[str, Any] = ...,
        dry_run: bool = ...,
        estimates: str = ...,
        figures: str | Mapping[str, Any] | None = ...,
        draws: bool = ...,
    ) -> Published: ...
    def publish_generalized(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        method: str = ...,
        weights: str | Mapping[str, Any] | None = ...,
        options: str | Mapping[str, Any] | None = ...,
        constraints: str | Mapping[str, Any] | None = ...,
        max_suppressed: float | Decimal | str = ...,
        refine: bool = ...,
        readers: Sequence[str] | None = ...,
        replace: bool = ...,
        accept: str | Mapping[str, Any] = ...,
        dry_run: bool = ...,
        figures: str | Mapping[str, Any] | None = ...,
        draws: bool = ...,
    ) -> Published: ...
    def publish_freeform(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        method: str = ...,
        weights: str | Mapping[str, Any] | None = ...,
        options: str | Mapping[str, Any] | None = ...,
        readers: Sequence[str] | None = ...,
        replace: bool = ...,
        accept: str | Mapping[str, Any] = ...,
        dry_run: bool = ...,
        figures: str | Mapping[str, Any] | None = ...,
        draws: bool = ...,
    ) -> Published: ...
    def publish_suppressed(
        self,
        source: str,
        publication: str,
        *,
        k: int,
        patterns: Sequence[str] | None = ...,
        method: str = ...,
        rules: str | Sequence[Any] | None = ...,
        weights: str | Mapping[str, Any] | None = ...,
        options: str | Mapping[str, Any] | None = ...,
        readers: Sequence[str] | None = ...,
        replace: bool = ...,
        accept: str | Mapping[str, Any] = ...,
        dry_run: bool = ...,
        figures: str | Mapping[str, Any] | None = ...,
        draws: bool = ...,
    ) -> Published: ...
    def publish_model(
        self,
        source: str,
        publication: str,
        *,
        label: str,
        features: str | Mapping[str, Any] | None = ...,
        members: int = ...,
        method: str = ...,
        budget: str | Mapping[str, Any] | None = ...,
        input_noise: float | Decimal | str = ...,
        logits: bool = ...,
        labels: Sequence[str] | None = ...,
        options: str | Mapping[str, Any] | None = ...,
        readers: Sequence[str] | None = ...,
        replace: bool = ...,
        accept: str | Mapping[str, Any] = ...,
        dry_run: bool = ...,
        draws: bool = ...,
    ) -> Published: ...
