"""Defines the errors that kanon_db raises on purpose, with their SQLSTATEs."""

from __future__ import annotations

from typing import ClassVar


class KanonError(Exception):
    """Base of all errors that a caller may see.

    Parameters
    ----------
    message : str
        One short fact in lower case, without a final stop.
    detail : str
        Where: table, column, limit and measured number.
    hint : str
        What to do about it.
    """

    sqlstate: ClassVar[str] = "KN000"

    def __init__(self, message: str, *, detail: str = "", hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.detail = detail
        self.hint = hint


class InvalidParameterError(KanonError):
    """An argument is malformed or out of range."""

    sqlstate = "22023"


class TooFewError(InvalidParameterError):
    """There are fewer people than a parameter asks for; more of them would do."""


class InvalidNameError(KanonError):
    """A name cannot be used, for its length or its characters."""

    sqlstate = "42602"


class NotFoundError(KanonError):
    """A relation, column, source or publication does not exist."""

    sqlstate = "42704"


class DuplicateError(KanonError):
    """A name is taken already."""

    sqlstate = "42710"


class InUseError(KanonError):
    """Something else depends on the object."""

    sqlstate = "55006"


class PermissionDeniedError(KanonError):
    """The role lacks a right that the operation needs."""

    sqlstate = "42501"


class SchemaMismatchError(KanonError):
    """A column's type does not allow what is asked of it, or the source changed its shape."""

    sqlstate = "42804"


class UnsupportedQueryError(KanonError):
    """The count query lies outside what the estimator answers."""

    sqlstate = "0A000"


class IneligibleError(KanonError):
    """No publication at all can satisfy the privacy specification ([GB] Lemma 1)."""

    sqlstate = "KN001"


class InfeasibleError(KanonError):
    """A publication may exist, but none within the given limits."""

    sqlstate = "KN002"


class VerificationError(KanonError):
    """The published relations fail one of their checks; nothing was published."""

    sqlstate = "KN003"


class ReplacedError(KanonError):
    """A publication was replaced while it was being read; the same call succeeds when repeated."""

    sqlstate = "40001"


class RiskError(KanonError):
    """A publication takes a known risk that the publisher has not accepted by name."""

    sqlstate = "KN005"


class BudgetError(KanonError):
    """A reader role was told by a model as much as it may be; nothing was answered or spent."""

    sqlstate = "KN006"


class ServerError(KanonError):
    """The server, its PL/Python or its operating-system environment is not as needed."""

    sqlstate = "KN004"


class DatabaseError(KanonError):
    """PostgreSQL refused a statement; carries its SQLSTATE and no text that may quote data."""

    def __init__(self, message: str, *, sqlstate: str, detail: str = "", hint: str = "") -> None:
        super().__init__(message, detail=detail, hint=hint)
        self.sqlstate = sqlstate  # type: ignore[misc]  # one class, the server's many states


class UndoneInterrupt(KeyboardInterrupt):  # it is no error, as its parent is none
    """Ctrl-C in the middle of a transaction, which was rolled back."""
