"""POST /score and /rerank: how well texts go together, by a cross-encoder that reads them as one or by the cosine of vectors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.client.pooling import PoolFront, PoolPrompt
from octavo.client.pooling_calls import TextPair, pair_up
from octavo.errors import InvalidRequest
from octavo.server.errors import JSONResponse
from octavo.server.pooling.answering import answer_all, header, read_body, read_prompts, usage
from octavo.server.pooling.schemas import RerankRequest, ScoreRequest
from octavo.server.state import Engine

NAMES = (("text_1", "text_2"), ("queries", "documents"), ("queries", "items"), ("data_1", "data_2"))  # that the two sides may have


async def score(request: Request) -> Response:
    body, engine, headers = await read_body(request, ScoreRequest)
    scores, prompts = await _scores(request, engine, _pairs(body), body.truncate_prompt_tokens, body.priority, "text_1")
    data = [{"index": index, "object": "score", "score": value} for index, value in enumerate(scores)]
    return JSONResponse(header(request, "score", body.model) | {"data": data, "usage": usage(prompts)}, headers=headers)


async def rerank(request: Request) -> Response:
    body, engine, headers = await read_body(request, RerankRequest)
    pairs = pair_up(body.query, body.documents)
    scores, prompts = await _scores(request, engine, pairs, body.truncate_prompt_tokens, body.priority, "documents")
    best = sorted(range(len(scores)), key=lambda index: (-scores[index], index))[: body.top_n or None]
    results: list[dict[str, Any]] = [{"index": index, "relevance_score": scores[index]} for index in best]
    if body.return_documents is not False:
        for result in results:
            result["document"] = {"text": body.documents[result["index"]]}
    return JSONResponse(
        {"id": f"rerank-{request.state.request_id}", "model": body.model, "results": results, "usage": usage(prompts)}, headers=headers
    )


async def _scores(
    request: Request, engine: Engine, pairs: Sequence[TextPair], truncate: int | None, priority: int | None, param: str
) -> tuple[list[float], list[PoolPrompt]]:
    """Return the score of each pair, and what was read for them."""
    front = engine.pool_front
    if not front.scores_pairs:
        raise InvalidRequest(f"this model has {len(front.spec.labels)} classes and gives no score of two texts", code="unsupported_task")
    if front.reads_pairs:
        prompts = await read_prompts(request, engine, lambda front: _read_pairs(front, pairs, truncate, param))
        values = await answer_all(request, prompts, "classify", priority=priority)
        return [float(value[0]) for value in values], prompts
    texts = list(dict.fromkeys(text for pair in pairs for text in pair))
    prompts = await read_prompts(request, engine, lambda front: [front.read(text, truncate=truncate, param=param) for text in texts])
    vectors = dict(zip(texts, await answer_all(request, prompts, "embed", priority=priority), strict=True))
    from octavo.client.vectors import cosine

    return [cosine(vectors[first], vectors[second]) for first, second in pairs], prompts


def _pairs(body: ScoreRequest) -> list[TextPair]:
    """Return the pairs to score. Raises InvalidRequest unless the texts come under one pair of names and fit each other."""
    given = {name: texts for name in dict.fromkeys(name for pair in NAMES for name in pair) if (texts := getattr(body, name)) is not None}
    if tuple(given) not in NAMES:
        pairs = ", ".join(f"{first} and {second}" for first, second in NAMES)
        raise InvalidRequest(f"give the texts as one of these pairs: {pairs}", code="missing_required_parameter", param="text_1")
    return pair_up(*given.values())


def _read_pairs(front: PoolFront, pairs: Sequence[TextPair], truncate: int | None, param: str) -> list[PoolPrompt]:
    return [front.read_pair(*pair, truncate=truncate, param=param) for pair in pairs]
