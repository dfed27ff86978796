"""POST /tokenize and /detokenize, GET /tokenizer_info: the model's tokenizer by itself, nothing generated."""

from __future__ import annotations

from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from octavo.server.body import read_json_object
from octavo.server.errors import JSONResponse
from octavo.server.openai.models import check_model
from octavo.server.openai.sampling import check_in_vocabulary
from octavo.server.openai.schemas import Body, DetokenizeRequest, TokenizeChatRequest, TokenizeTextRequest
from octavo.server.openai.validation import ignored_fields_header, parse_body
from octavo.server.state import Engine, ServerState
from octavo.server.turn import render


async def tokenize(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.engine
    raw = await read_json_object(request, state.config.max_body_bytes)
    schema: type[Body] = TokenizeChatRequest if "messages" in raw else TokenizeTextRequest
    body, ignored = parse_body(schema, raw, ignore_unknown=state.config.ignore_unknown_fields)
    return JSONResponse(await state.in_text_pool(_tokens, engine, body), headers=ignored_fields_header(ignored))


def _tokens(engine: Engine, body: Body) -> dict[str, Any]:
    tokenizer = engine.tokenizer
    if isinstance(body, TokenizeChatRequest):
        check_model(engine, body.model)
        kwargs = body.chat_template_kwargs or {}
        ids = render(engine, body, tools=[], documents=None, template_kwargs=kwargs, max_prompt_tokens=None)
        wants_texts = body.return_token_strs
    elif isinstance(body, TokenizeTextRequest):
        check_model(engine, body.model)
        ids, wants_texts = tokenizer.encode(body.prompt, add_special_tokens=body.add_special_tokens is not False), body.return_token_strs
    texts = [tokenizer.token_text(token_id) for token_id in ids] if wants_texts else None
    return {"count": len(ids), "max_model_len": engine.ready.max_model_len, "tokens": ids, "token_strs": texts}


async def detokenize(request: Request) -> Response:
    state: ServerState = request.app.state.server
    engine = state.engine
    raw = await read_json_object(request, state.config.max_body_bytes)
    body, ignored = parse_body(DetokenizeRequest, raw, ignore_unknown=state.config.ignore_unknown_fields)
    check_model(engine, body.model)
    text = await state.in_text_pool(_text, engine, body)
    return JSONResponse({"prompt": text}, headers=ignored_fields_header(ignored))


def _text(engine: Engine, body: DetokenizeRequest) -> str:
    check_in_vocabulary(body.tokens, engine, "tokens")
    return engine.tokenizer.decode(body.tokens, skip_special_tokens=False)


async def tokenizer_info(request: Request) -> Response:
    """The facts that evaluation harnesses ask for, in the names of tokenizer_config.json."""
    state: ServerState = request.app.state.server
    engine = state.engine
    tokenizer, chat = engine.tokenizer, engine.chat if engine.generates else None
    bos, eos = tokenizer.bos_token_id, next(iter(tokenizer.eos_token_ids), None)
    return JSONResponse(
        {
            "tokenizer_class": "Octavo",
            "vocab_size": tokenizer.vocab_size,
            "model_max_length": engine.ready.max_model_len,
            "bos_token": None if bos is None else tokenizer.token_text(bos),
            "eos_token": None if eos is None else tokenizer.token_text(eos),
            "pad_token": None if eos is None else tokenizer.token_text(eos),
            "chat_template": None if chat is None else chat.source or None,
            "added_tokens_decoder": {
                str(token_id): {"content": text, "special": True} for text, token_id in tokenizer.control_tokens.items()
            },
        }
    )
