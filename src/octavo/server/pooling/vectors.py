"""POST /v1/embeddings, /pooling and /classify: texts in, one vector, array or set of probabilities each out."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from octavo.client.pooling import PoolFront, PoolPrompt
from octavo.errors import InvalidRequest
from octavo.messages.wire import PoolTask
from octavo.server.pooling.answering import ArrayResponse, answer_all, as_format, header, read_body, read_prompts, usage
from octavo.server.pooling.schemas import ClassifyRequest, EmbeddingRequest, InputBody, PoolingRequest


async def create_embedding(request: Request) -> Response:
    body, engine, headers = await read_body(request, EmbeddingRequest)
    prompts = await read_prompts(request, engine, lambda front: _read_input(front, body, "embed", body.dimensions))
    vectors = await answer_all(request, prompts, "embed", activate=body.use_activation is not False, priority=body.priority)
    shown = [as_format(vector, body.encoding_format) for vector in vectors]
    data = [{"index": index, "object": "embedding", "embedding": vector} for index, vector in enumerate(shown)]
    return ArrayResponse(header(request, "embd", body.model) | {"data": data, "usage": usage(prompts)}, headers=headers)


async def pool(request: Request) -> Response:
    body, engine, headers = await read_body(request, PoolingRequest)
    task: PoolTask = body.task or ("classify" if engine.pool_front.spec.labels else "token_embed")
    prompts = await read_prompts(request, engine, lambda front: _read_input(front, body, task, body.dimensions))
    arrays = await answer_all(request, prompts, task, activate=body.use_activation is not False, priority=body.priority)
    data = [{"index": index, "object": "pooling", "data": as_format(array, body.encoding_format)} for index, array in enumerate(arrays)]
    return ArrayResponse(header(request, "pool", body.model) | {"data": data, "usage": usage(prompts)}, headers=headers)


async def classify(request: Request) -> Response:
    body, engine, headers = await read_body(request, ClassifyRequest)
    prompts = await read_prompts(request, engine, lambda front: _read_input(front, body, "classify"))
    labels = engine.pool_front.spec.labels
    scores = await answer_all(request, prompts, "classify", activate=body.use_activation is not False, priority=body.priority)
    data = [
        {"index": index, "label": labels[int(probs.argmax())], "probs": probs, "num_classes": len(labels)}
        for index, probs in enumerate(scores)
    ]
    return ArrayResponse(header(request, "classify", body.model) | {"data": data, "usage": usage(prompts)}, headers=headers)


def _read_input(front: PoolFront, body: InputBody, task: PoolTask, dimensions: int | None = None) -> list[PoolPrompt]:
    """Return the texts as ids. Raises InvalidRequest also for a task or a length of vector that the model does not do."""
    front.check_task(task)
    if dimensions is not None and dimensions != front.spec.hidden_size:
        raise InvalidRequest(
            f"dimensions is {dimensions:,}; this model's vectors have {front.spec.hidden_size:,} values and were not trained to be cut",
            code="unsupported_value",
            param="dimensions",
        )
    return [front.read(text, truncate=body.truncate_prompt_tokens) for text in body.input]
