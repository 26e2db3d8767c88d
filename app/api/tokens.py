"""Routes that look at tokens."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter

from app.api.deps import OPTIONS_ONCE, ServicesDep
from app.api.schemas import TokenAnswer, TokenBody, TokenDescription, problem_responses
from app.services.checkpoints import describe

router = APIRouter(
    prefix="/v1/tokens",
    tags=["tokens"],
    dependencies=[OPTIONS_ONCE],
    responses=problem_responses(400, 401, 403, 422, 503),
)


@router.post("/inspect", operation_id="inspect_token", response_model=TokenDescription)
async def inspect_token(body: TokenBody, services: ServicesDep) -> Any:  # noqa: ANN401 - validated
    """Say what a token says, once its signature is found right."""
    return describe(services.keys.verify(body.token, refresh=True))


@router.post("/refresh", operation_id="refresh_token")
async def refresh_token(body: TokenBody, services: ServicesDep) -> TokenAnswer:
    """Sign a token anew with the key that signs today."""
    verified = services.keys.verify(body.token, refresh=True)
    return TokenAnswer(token=services.keys.sign(verified.token))
