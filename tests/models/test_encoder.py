"""Tiny random encoders: native and reference agree, company changes no bit, and both are transformers' BERT."""

import numpy as np
import pytest
import tiny_bert

from octavo.backends.native.backend import NativeBackend
from octavo.backends.reference.backend import ReferenceBackend
from octavo.loaders.load import open_weights
from octavo.messages.wire import PoolRequest
from octavo.models.registry import bind
from octavo.worker.pooling import PoolingWorker
from octavo.worker.runner import LoadedModel

SPECS = {
    "mean": tiny_bert.spec(),
    "cls": tiny_bert.spec(pooling="cls", normalize=False, activation="gelu_tanh"),
    "last": tiny_bert.spec(pooling="last", activation="relu", hidden_size=24, num_heads=3),
    "classes": tiny_bert.spec(labels=("bad", "fair", "good")),
    "cross-encoder": tiny_bert.spec(labels=("score",)),
}
TEXTS = [[1, 2, 3, 4, 5], [7], list(range(30)), [9, 9, 8]]


def worker_of(spec, backend, *, enforce_eager=False, tensors=None):
    model = bind(spec, tensors or tiny_bert.tensors(spec), backend)
    return PoolingWorker(LoadedModel(backend, model, spec, model.weight_bytes), spec, 64, enforce_eager)


def requests(spec, *, task=None, activate=True):
    task = task or ("classify" if spec.labels else "embed")
    return [
        PoolRequest(
            request_id=str(number), prompt_token_ids=ids, task=task, second_start=min(len(ids), 2), arrival_s=0.0, activate=activate
        )
        for number, ids in enumerate(TEXTS)
    ]


@pytest.mark.parametrize("name", SPECS)
def test_native_answers_as_reference_does(name):
    spec = SPECS[name]
    answers = [worker_of(spec, backend).execute(requests(spec)) for backend in (NativeBackend(2), ReferenceBackend())]
    for native, reference in zip(*answers, strict=True):
        np.testing.assert_allclose(native, reference, atol=2e-5)


@pytest.mark.parametrize("enforce_eager", [False, True])
@pytest.mark.parametrize("name", SPECS)
def test_a_text_has_the_same_bits_alone_eager_or_replayed(name, enforce_eager):
    spec, backend = SPECS[name], NativeBackend(2)
    together = worker_of(spec, backend).execute(requests(spec))
    worker = worker_of(spec, backend, enforce_eager=enforce_eager)
    for request, expected in zip(requests(spec), together, strict=True):
        np.testing.assert_array_equal(worker.execute([request])[0], expected)


def test_a_token_embedding_pools_to_the_text_embedding():
    spec = SPECS["mean"]
    worker = worker_of(spec, NativeBackend(2))
    tokens = worker.execute(requests(spec, task="token_embed", activate=False))
    for rows, vector in zip(tokens, worker.execute(requests(spec, activate=False)), strict=True):
        np.testing.assert_allclose(rows.mean(axis=0), vector, atol=1e-6)


def test_probabilities_are_a_softmax_or_a_sigmoid_each():
    spec = SPECS["classes"]
    scores = worker_of(spec, NativeBackend(2)).execute(requests(spec, activate=False))[0].astype(np.float64)
    softmax = worker_of(spec, NativeBackend(2)).execute(requests(spec))[0]
    np.testing.assert_allclose(softmax, np.exp(scores) / np.exp(scores).sum(), atol=1e-6)
    apart = tiny_bert.spec(labels=spec.labels, is_multi_label=True)
    np.testing.assert_allclose(worker_of(apart, NativeBackend(2)).execute(requests(apart))[0], 1 / (1 + np.exp(-scores)), atol=1e-6)


@pytest.mark.reference
@pytest.mark.parametrize("name", SPECS)
def test_the_outputs_are_those_of_transformers(name, tmp_path):
    torch, transformers = pytest.importorskip("torch"), pytest.importorskip("transformers")
    spec = SPECS[name]
    folder = tiny_bert.write_folder(tmp_path, spec, prefix="bert." if spec.labels else "")
    kind = transformers.BertForSequenceClassification if spec.labels else transformers.BertModel
    model = kind.from_pretrained(folder).eval()
    checkpoint = open_weights(folder)
    task = "classify" if spec.labels else "token_embed"
    worker = worker_of(checkpoint.spec, ReferenceBackend(), tensors=checkpoint.tensors)
    for request, ours in zip(requests(spec), worker.execute(requests(spec, task=task, activate=False)), strict=True):
        ids = torch.tensor([request.prompt_token_ids])
        types = torch.tensor([[int(place >= request.second_start) for place in range(ids.shape[1])]])
        with torch.no_grad():
            output = model(input_ids=ids, token_type_ids=types)
        expected = (output.logits if spec.labels else output.last_hidden_state)[0].numpy()
        np.testing.assert_allclose(ours, expected, atol=3e-5)
