"""The base of the errors that the service itself raises."""

from __future__ import annotations

from typing import Any, ClassVar


class ServiceError(Exception):
    """Base of the errors that the service itself raises.

    Attributes:
        hint: how to fix it, or None.
        members: further members of the problem document.
        retry_after: seconds after which a retry makes sense, or None.
    """

    code: ClassVar[str] = "internal"

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
