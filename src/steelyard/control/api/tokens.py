"""Routes of the token API, in the shapes that databricks-sdk's `tokens` speaks."""

from __future__ import annotations

from fastapi import APIRouter

from steelyard.control.api.bodies import CreateToken, DeleteToken, Nothing, TokenCreated, TokenInfo, TokenList
from steelyard.control.api.parts import Given, Principal, errors
from steelyard.control.records import TokenRecord

PREFIX = "/api/2.0/token"
NEVER = -1
tokens = APIRouter(tags=["tokens"])


def _shown(token: TokenRecord) -> TokenInfo:
    return TokenInfo(
        token_id=token.id,
        creation_time=token.created_ms,
        expiry_time=NEVER if token.expires_ms is None else token.expires_ms,
        comment=token.comment,
    )


@tokens.post(f"{PREFIX}/create", responses=errors(400))
async def create_token(body: CreateToken, parts: Given, principal: Principal) -> TokenCreated:
    """Create a token for yourself. Its value is told this once; without a lifetime it never expires."""
    plain, token = await parts.operations.create_token(
        principal=principal, comment=body.comment or "", lifetime_s=body.lifetime_seconds
    )
    return TokenCreated(token_value=plain, token_info=_shown(token))


@tokens.get(f"{PREFIX}/list", responses=errors())
async def list_tokens(parts: Given, principal: Principal) -> TokenList:
    """Your own tokens, without their values."""
    return TokenList(token_infos=[_shown(token) for token in await parts.operations.tokens(principal)])


@tokens.post(f"{PREFIX}/delete", responses=errors(400, 404))
async def delete_token(body: DeleteToken, parts: Given, principal: Principal) -> Nothing:
    """Revoke one of your tokens."""
    await parts.operations.delete_token(body.token_id, principal=principal)
    return Nothing()
