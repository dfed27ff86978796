"""The table of routes: path, method, who may call it, what it takes, and the handler. A route that does not say `open` needs a key."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from octavo.config.server_schema import ServerConfig
from octavo.server import status
from octavo.server.anthropic import endpoints as anthropic
from octavo.server.anthropic.schemas import CountTokensRequest, MessagesRequest
from octavo.server.auth import credentials
from octavo.server.endpoint import Endpoint, Handler, Task
from octavo.server.openai import tokens
from octavo.server.openai.chat import create_chat_completion
from octavo.server.openai.completions import create_completion
from octavo.server.openai.invocations import invoke
from octavo.server.openai.models import list_models, retrieve_model
from octavo.server.openai.schemas import ChatRequest, CompletionRequest, DetokenizeRequest, TokenizeChatRequest, TokenizeTextRequest
from octavo.server.openapi import describe_page, describe_schema
from octavo.server.plan.endpoints import PLAN_ENDPOINTS
from octavo.server.pooling.schemas import ClassifyRequest, EmbeddingRequest, PoolingRequest, RerankRequest, ScoreRequest
from octavo.server.pooling.scores import rerank, score
from octavo.server.pooling.vectors import classify, create_embedding, pool
from octavo.server.responses import endpoints as responses
from octavo.server.responses.schemas import ResponsesRequest
from octavo.server.state import ServerState


def _all_for(task: Task, *endpoints: Endpoint) -> tuple[Endpoint, ...]:
    return tuple(msgspec.structs.replace(endpoint, task=task) for endpoint in endpoints)


ENDPOINTS: tuple[Endpoint, ...] = (
    *_all_for(
        "generate",
        Endpoint("/v1/chat/completions", "POST", "key", create_chat_completion, "Answer a conversation", "ChatCompletion", (ChatRequest,)),
        Endpoint("/v1/completions", "POST", "key", create_completion, "Continue up to 32 texts", "TextCompletion", (CompletionRequest,)),
        Endpoint(
            "/v1/responses", "POST", "key", responses.create_response, "Answer items; the answer is kept", "Response", (ResponsesRequest,)
        ),
        Endpoint("/v1/responses/{response_id}", "GET", "key", responses.retrieve_response, "A stored response", "Response"),
        Endpoint("/v1/responses/{response_id}", "DELETE", "key", responses.delete_response, "Forget a stored response", "Deleted"),
        Endpoint("/v1/responses/{response_id}/cancel", "POST", "key", responses.cancel_response, "Refused: none runs unseen", "Response"),
        Endpoint("/v1/responses/{response_id}/input_items", "GET", "key", responses.list_input_items, "What it answers", "InputItems"),
        Endpoint(
            "/v1/messages", "POST", "key", anthropic.create_message, "Answer a conversation, Anthropic's way", "Message", (MessagesRequest,)
        ),
        Endpoint(
            "/v1/messages/count_tokens", "POST", "key", anthropic.count_tokens, "Count its tokens", "TokenCount", (CountTokensRequest,)
        ),
        Endpoint(
            "/invocations",
            "POST",
            "key",
            invoke,
            "A chat or a text completion, as the body has it",
            "Completion",
            (ChatRequest, CompletionRequest),
        ),
    ),
    *_all_for(
        "embed",
        Endpoint("/v1/embeddings", "POST", "key", create_embedding, "The vectors of texts", "Embeddings", (EmbeddingRequest,)),
    ),
    *_all_for(
        "score",
        Endpoint("/v1/rerank", "POST", "key", rerank, "Sort documents by how well they answer a query", "Ranking", (RerankRequest,)),
        Endpoint("/v2/rerank", "POST", "key", rerank, "As /v1/rerank", "Ranking", (RerankRequest,)),
        Endpoint("/rerank", "POST", "key", rerank, "As /v1/rerank", "Ranking", (RerankRequest,)),
        Endpoint("/v1/score", "POST", "key", score, "How well two texts go together", "Scores", (ScoreRequest,)),
        Endpoint("/score", "POST", "key", score, "As /v1/score", "Scores", (ScoreRequest,)),
    ),
    *_all_for(
        "pool",
        Endpoint("/pooling", "POST", "key", pool, "A vector a token, a vector or scores of texts", "Pooled", (PoolingRequest,)),
    ),
    *_all_for(
        "classify",
        Endpoint("/classify", "POST", "key", classify, "The likeliest classes of texts", "Classes", (ClassifyRequest,)),
    ),
    Endpoint("/v1/models", "GET", "key", list_models, "The names under which the model is served", "Models"),
    Endpoint("/v1/models/{model:path}", "GET", "key", retrieve_model, "One of those names", "Model"),
    Endpoint(
        "/tokenize", "POST", "key", tokens.tokenize, "Text or chat as token ids", "Tokens", (TokenizeTextRequest, TokenizeChatRequest)
    ),
    Endpoint("/detokenize", "POST", "key", tokens.detokenize, "Token ids as text", "Text", (DetokenizeRequest,)),
    Endpoint(
        "/tokenizer_info",
        "GET",
        "key",
        tokens.tokenizer_info,
        "Special tokens, chat template",
        "TokenizerInfo",
        switch="enable_tokenizer_info_endpoint",
    ),
    Endpoint("/health", "GET", "open", status.health, "200 when a request would be taken now", ""),
    Endpoint("/readyz", "GET", "open", status.health, "As /health", ""),
    Endpoint("/ping", "GET", "open", status.health, "As /health", ""),
    Endpoint("/ping", "POST", "open", status.health, "As /health", ""),
    Endpoint("/livez", "GET", "open", status.alive, "200 as long as the process answers", ""),
    Endpoint("/load", "GET", "key", status.load, "How many answers are unfinished", "Load"),
    Endpoint("/version", "GET", "key", status.version, "This program's version", "Version"),
    Endpoint("/metrics", "GET", "key", status.metrics, "Metrics as Prometheus reads them", "text/plain"),
    Endpoint("/server_info", "GET", "key", status.server_info, "Settings and sizes", "ServerInfo", switch="enable_admin_endpoints"),
    Endpoint(
        "/reset_prefix_cache",
        "POST",
        "key",
        status.reset_prefix_cache,
        "Forget cached prefixes",
        "Success",
        switch="enable_admin_endpoints",
    ),
    *PLAN_ENDPOINTS,
    Endpoint("/pause", "POST", "key", status.pause, "Begin with no further request", "Paused", switch="enable_admin_endpoints"),
    Endpoint("/resume", "POST", "key", status.resume, "Go on after /pause", "Resumed", switch="enable_admin_endpoints"),
    Endpoint("/is_paused", "GET", "key", status.is_paused, "Whether it is paused", "IsPaused", switch="enable_admin_endpoints"),
    Endpoint("/openapi.json", "GET", "key", describe_schema, "This list, for machines", "OpenAPI"),
    Endpoint("/docs", "GET", "key", describe_page, "This list, for people", "text/html"),
)


def served(config: ServerConfig) -> list[Endpoint]:
    """Return the endpoints that a server with these settings has."""
    return [endpoint for endpoint in ENDPOINTS if endpoint.switch is None or getattr(config, endpoint.switch)]


def build_routes(endpoints: Iterable[Endpoint]) -> list[Route]:
    """Return one route a path, so that a refused method's Allow header names all that the path has."""
    by_path: dict[str, dict[str, Handler]] = {}
    for endpoint in endpoints:
        by_path.setdefault(endpoint.path, {})[endpoint.method] = _guarded(endpoint)
    return [Route(path, _by_method(handlers), methods=list(handlers)) for path, handlers in by_path.items()]


def _by_method(handlers: dict[str, Handler]) -> Handler:
    async def handle(request: Request) -> Response:
        return await handlers["GET" if request.method == "HEAD" else request.method](request)

    return handle


def _guarded(endpoint: Endpoint) -> Handler:
    """Return the handler behind the check of the key that its route declares."""

    async def handle(request: Request) -> Response:
        if endpoint.access == "key":
            state: ServerState = request.app.state.server
            request.state.cache_salt = state.keys.tenant_salt(credentials(request.headers))
        return await endpoint.handler(request)

    return handle
