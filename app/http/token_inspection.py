"""Tokens read for people, and signed anew."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from app.errors import TokenMalformedError
from app.tokens import KeyRing, Token

Describe = Callable[[Token], Mapping[str, object]]
"""Describes the position in a verified token, and names its kind.

Raises:
    TokenMalformedError: it holds no position of this kind.
"""


class TokenInspection:
    """Reads tokens of every product.

    Args:
        keys: verify and sign.
        kinds: for each kind of token, how its product describes it.
    """

    def __init__(self, keys: KeyRing, kinds: Mapping[int, Describe]) -> None:
        self._keys = keys
        self._kinds = kinds

    def describe(self, text: str) -> dict[str, object]:
        """Describe a token whose signature is right.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
        """
        verified = self._keys.verify(text, refresh=True)
        token, key = verified.token, verified.key
        describe = self._kinds.get(token.kind)
        if describe is None:
            raise TokenMalformedError(f"the token has kind {token.kind}, which is not known")
        return {
            "key": key.ident,
            "use": key.use,
            "issued": verified.issued.isoformat(),
            "identity": token.identity.hex(),
            "fingerprint": token.fingerprint.hex(),
            **describe(token),
        }

    def refresh(self, text: str) -> str:
        """Sign a token anew with the key that signs today.

        Raises:
            TokenMalformedError, TokenForgedError, TokenRetiredError: see KeyRing.verify.
        """
        return self._keys.sign(self._keys.verify(text, refresh=True).token)
