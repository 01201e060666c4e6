"""Who asks: a bearer token (or `Basic token:<token>`, as some clients send it) becomes a principal, or a 401.

Tokens are known by their SHA-256 only. Headers that were good once are remembered until the next snapshot, so that the
hot path is one look-up. Tokens are never logged.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Iterable
from hashlib import sha256
from typing import Final

from steelyard.contracts.snapshot import TokenView
from steelyard.errors import Unauthenticated

ANONYMOUS: Final = "anonymous"
_MAX_REMEMBERED: Final = 4096
_HINT: Final = "Send a valid token as 'Authorization: Bearer <token>'; `steelyard up` printed one at its first start."


class Identity:
    """The tokens in force. `replace` with each snapshot."""

    def __init__(self) -> None:
        self._required = True
        self._principals: dict[str, str] = {}
        self._groups: dict[str, tuple[str, ...]] = {}  # by principal: of all its tokens
        self._remembered: dict[bytes, str] = {}

    def replace(self, required: bool, tokens: Iterable[TokenView]) -> None:
        self._principals = {}
        self._groups = {}
        for token in tokens:
            self._principals[token.sha256.lower()] = token.principal
            if token.groups:
                self._groups[token.principal] = (*self._groups.get(token.principal, ()), *token.groups)
        self._required = required
        self._remembered = {}

    def principal(self, authorization: bytes | None) -> str:
        """The principal of an Authorization header. Raises Unauthenticated."""
        if authorization is not None:
            known = self._remembered.get(authorization)
            if known is not None:
                return known
        if not self._required:
            return ANONYMOUS
        if not authorization:
            raise Unauthenticated(f"No token was sent. {_HINT}")
        token = _token_of(authorization)
        principal = self._principals.get(sha256(token).hexdigest()) if token else None
        if principal is None:
            raise Unauthenticated(f"The token is not valid. {_HINT}")
        if len(self._remembered) >= _MAX_REMEMBERED:
            self._remembered.clear()
        self._remembered[authorization] = principal
        return principal

    def groups(self, principal: str) -> tuple[str, ...]:
        """That a principal belongs to; one may be named twice."""
        return self._groups.get(principal, ())


def _token_of(authorization: bytes) -> bytes:
    """The token within a Bearer or Basic header; empty when there is none."""
    scheme, _, rest = authorization.partition(b" ")
    rest = rest.strip()
    match scheme.lower():
        case b"bearer":
            return rest
        case b"basic":
            try:
                user, _, password = base64.b64decode(rest, validate=True).partition(b":")
            except binascii.Error:
                return b""
            return password if user == b"token" else b""
    return b""
