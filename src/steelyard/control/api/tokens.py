"""Routes of the token API, in the shapes that databricks-sdk's `tokens` and `token_management` speak."""

from __future__ import annotations

from fastapi import APIRouter

from steelyard.control.api.bodies import (
    CreateToken,
    CreateTokenFor,
    DeleteToken,
    ManagedTokenInfo,
    ManagedTokenList,
    Nothing,
    TokenCreated,
    TokenInfo,
    TokenList,
)
from steelyard.control.api.parts import Given, Principal, errors
from steelyard.control.records import TokenRecord

PREFIX = "/api/2.0/token"
MANAGEMENT = "/api/2.0/token-management"
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


@tokens.post(f"{MANAGEMENT}/on-behalf-of/tokens", responses=errors(400))
async def create_token_for(body: CreateTokenFor, parts: Given) -> TokenCreated:
    """Create a token for somebody else: a tenant, with limits and usage of their own. Its value is told this once."""
    plain, token = await parts.operations.create_token(
        principal=body.application_id,
        comment=body.comment or "",
        lifetime_s=body.lifetime_seconds,
        groups=body.groups or (),
    )
    return TokenCreated(token_value=plain, token_info=_shown(token))


@tokens.get(f"{MANAGEMENT}/tokens", responses=errors())
async def list_all_tokens(parts: Given) -> ManagedTokenList:
    """Everybody's tokens, without their values."""
    return ManagedTokenList(
        token_infos=[
            ManagedTokenInfo(**dict(_shown(token)), created_by_username=token.principal, groups=list(token.groups))
            for token in await parts.operations.all_tokens()
        ]
    )


@tokens.delete(MANAGEMENT + "/tokens/{token_id}", responses=errors(400, 404))
async def delete_any_token(token_id: str, parts: Given) -> Nothing:
    """Revoke a token, whoever has it."""
    await parts.operations.delete_token(token_id, principal=None)
    return Nothing()
