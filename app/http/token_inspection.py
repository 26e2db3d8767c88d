"""Describe tokens for people, and sign them again."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.errors import TokenMalformedError
from app.tokens import KIND_SESSION, KeyRing, Token

Describe = Callable[[Token], Mapping[str, object]]
"""Describes the position in a verified token as JSON members, ``kind`` among them.

Raises:
    TokenMalformedError: the token holds no position of this kind.
"""


class TokenInspection:
    """Inspects and refreshes the tokens of every product.

    Args:
        keys: the keys that verify and sign.
        kinds: the describing function of each kind of token.
    """

    def __init__(self, keys: KeyRing, kinds: Mapping[int, Describe]) -> None:
        self._keys = keys
        self._kinds = kinds

    def describe(self, text: str) -> dict[str, object]:
        """Verify a token and describe it.

        Raises:
            TokenMalformedError, TokenForgedError: see KeyRing.verify.
        """
        verified = self._keys.verify(text, refresh=True)
        token, key = verified.token, verified.key
        describe = self._kinds.get(token.kind)
        if describe is None:
            raise TokenMalformedError(f"the token has the unknown kind {token.kind}")
        return {
            "key": key.ident,
            "use": key.use,
            "issued": verified.issued.isoformat(),
            "identity": token.identity.hex(),
            "fingerprint": token.fingerprint.hex(),
            **describe(token),
        }

    def refresh(self, text: str) -> str:
        """Sign a token again with the current signing key.

        Raises:
            TokenMalformedError, TokenForgedError: see KeyRing.verify.
        """
        token = self._keys.verify(text, refresh=True).token
        if token.kind == KIND_SESSION:
            raise TokenMalformedError("the token is a sign-in, not a position: sign in again")
        return self._keys.sign(token)
