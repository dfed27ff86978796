"""Writes minilm.npz and minilm_texts.json: the vectors of all-MiniLM-L6-v2 for 50 texts by transformers, float32.

Mean over a text's tokens, scaled to length 1, texts cut at 256 tokens: what the model's own sentence-transformers files say.
Run it with torch and transformers at hand:  python tests/golden/make_minilm_golden.py MODEL_FOLDER
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

import numpy as np
import torch
from transformers import AutoModel, AutoTokenizer

TEXTS = [
    "A man is eating food.",
    "A man is eating a piece of bread.",
    "The girl is carrying a baby.",
    "a",
    ".",
    " ",
    "",
    "\n\t\r\n",
    "42",
    "3.14159265358979",
    "What is the capital of France?",
    "Paris is the capital and most populous city of France.",
    "PARIS IS THE CAPITAL AND MOST POPULOUS CITY OF FRANCE.",
    "Berlin ist die Hauptstadt und größte Stadt Deutschlands.",
    "La tour Eiffel a été construite en 1889 à l'occasion de l'exposition universelle.",
    "El perro persigue al gato por el jardín de la abuela.",
    "Il treno per Milano parte dal binario dodici alle otto e mezza.",
    "O gato preto dorme em cima do telhado quente.",
    "Съешь же ещё этих мягких французских булок, да выпей чаю.",
    "Η γρήγορη καφέ αλεπού πηδάει πάνω από το τεμπέλικο σκυλί.",
    "敏捷的棕色狐狸跳过了懒狗。",
    "吾輩は猫である。名前はまだ無い。",
    "다람쥐 헌 쳇바퀴에 타고파.",
    "صباح الخير، كيف حالك اليوم؟",
    "שלום עולם, מה שלומך?",
    "नमस्ते दुनिया, आप कैसे हैं?",
    "สวัสดีชาวโลก",
    "Cà phê sữa đá là thức uống phổ biến ở Việt Nam.",
    "🙂🙃🚀 emoji only, then some words 🎉",
    "👩‍👩‍👧‍👦",
    "caf\u00e9 cafe\u0301",
    "ﬁne ﬂuﬀy ligatures and ½ fractions ① ②",
    "[brackets] and {braces} written by a user, <angles> too",
    "control\x00characters\x07in\x1bthe\u200bmiddle",
    "def fib(n):\n    return n if n < 2 else fib(n - 1) + fib(n - 2)",
    "SELECT name, COUNT(*) FROM users WHERE age > 30 GROUP BY name;",
    '{"id": 7, "tags": ["x", "y"], "nested": {"ok": true}}',
    "https://example.com/a/very/long/path?with=query&and=fragment#section-2",
    "user@example.com wrote on 2024-02-29T23:59:59Z",
    "supercalifragilisticexpialidocious pneumonoultramicroscopicsilicovolcanoconiosis",
    "x" * 99,
    "y" * 101,
    "don't can't won't it's I'm you're",
    "The mitochondrion is the powerhouse of the cell; it makes most of the adenosine triphosphate that the cell uses.",
    "Stock markets fell sharply on Monday as investors weighed the central bank's unexpected decision to raise rates.",
    "To be, or not to be, that is the question: whether 'tis nobler in the mind to suffer the slings and arrows. " * 3,
    "word " * 253,
    "word " * 254,
    "word " * 255,
    "The quick brown fox jumps over the lazy dog. " * 60,
]


@torch.no_grad()
def vectors(folder: str) -> np.ndarray:
    """Return the texts' vectors [50, 384] float32."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder).eval()
    rows = []
    for text in TEXTS:
        inputs = tokenizer(text, truncation=True, max_length=256, return_tensors="pt")
        mean = model(**inputs).last_hidden_state[0].mean(dim=0)
        rows.append(torch.nn.functional.normalize(mean, dim=0).numpy())
    return np.stack(rows)


if __name__ == "__main__":
    here = Path(__file__).parent
    np.savez(here / "minilm.npz", vectors=vectors(sys.argv[1]))
    (here / "minilm_texts.json").write_text(json.dumps(TEXTS, indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
