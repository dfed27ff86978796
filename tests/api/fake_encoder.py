"""An engine of a model that gives vectors or scores, without the model: what it answers depends on the text's tokens alone.

A vector is (number of tokens, last token, 1); scores are by the number of tokens. Token ids are bytes, texts end with 0.
"""

import asyncio

import numpy as np

from octavo.client.front import check_generates
from octavo.client.pooling import PoolFront
from octavo.errors import RequestFailed
from octavo.specs.model import EncoderSpec
from tests.api.fake_engine import ByteTokenizer, FakeEngine

MAX_MODEL_LEN = 64


class TextTokenizer(ByteTokenizer):
    def encode(self, text, *, add_special_tokens=True, parse_special=False):
        return [*text.encode(), 0]

    def encode_pair(self, first, second):
        head = self.encode(first)
        return [*head, *self.encode(second)], len(head)

    def truncate(self, ids, length):
        return ids if len(ids) <= length else [*ids[: length - 1], 0]


class FakeEncoder(FakeEngine):
    """`labels` as in EncoderSpec: none for an embedding model."""

    generates = False
    chat = property(check_generates)

    def __init__(self, labels=()):
        super().__init__()
        self.spec = EncoderSpec("bert", 1, 3, 8, 1, 256, MAX_MODEL_LEN, 64, 2, 1e-12, "gelu", "mean", True, labels)
        self.tokenizer = TextTokenizer()
        self.asked = []  # (token ids, task, activate, priority)

    @property
    def pool_front(self):
        return PoolFront(self, MAX_MODEL_LEN)

    def generate(self, *args, **fields):
        check_generates(self)

    async def pool(self, prompt, task, *, activate=True, priority=0):
        self.pool_front.check_task(task)
        self.asked.append((prompt.token_ids, task, activate, priority))
        try:
            self.num_unfinished += 1
            await self.running.wait()
            await asyncio.sleep(0)
        except asyncio.CancelledError:
            self.aborted.append(bytes(prompt.token_ids))
            raise
        finally:
            self.num_unfinished -= 1
        ids = prompt.token_ids
        if 33 in ids:  # !
            raise RequestFailed("the model's answer to this text holds values that are not finite")
        if task == "classify":
            return np.array([len(ids) / 64, *[0.25] * (len(self.spec.labels) - 1)], np.float32)
        vectors = np.array([[len(ids), token, 1] for token in ids], np.float32)
        return vectors if task == "token_embed" else vectors[-2 if len(ids) > 1 else 0]
