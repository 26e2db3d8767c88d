"""The base of the errors that the service itself raises."""

from __future__ import annotations

from typing import Any, ClassVar


class ServiceError(Exception):
    """Base of the errors that the service itself raises.

    Attributes:
        code: of its problem.
        status: HTTP status of the answer; those of codes with a row of their own have none.
        title: of the problem, always the same.
        hint: how to fix it, or None.
        members: further members of the problem document.
        retry_after: seconds after which a retry makes sense, or None.
    """

    code: ClassVar[str] = "internal"
    status: ClassVar[int]
    title: ClassVar[str]

    def __init_subclass__(cls, code: str = "", problem: tuple[str, int, str] | None = None) -> None:
        super().__init_subclass__()
        cls.code = code or cls.code
        if problem is not None:
            cls.code, cls.status, cls.title = problem

    def __init__(
        self,
        detail: str,
        *,
        hint: str | None = None,
        retry_after: int | None = None,
        **members: Any,  # noqa: ANN401 - JSON values
    ) -> None:
        super().__init__(detail)
        self.hint = hint
        self.retry_after = retry_after
        self.members = members


class LargerError(ServiceError):
    """Base of all refusals of what is larger than a limit: 413.

    Args:
        detail: what is too large.
        limit: name of the limit.
        allowed: the largest value.
        setting: variable with which an operator changes it; None where nobody can.
        others: hint and further members.
    """

    def __init__(
        self,
        detail: str,
        *,
        limit: str,
        allowed: float,
        setting: str | None,
        **others: Any,  # noqa: ANN401 - as of ServiceError
    ) -> None:
        super().__init__(detail, limit=limit, allowed=allowed, setting=setting, **others)
