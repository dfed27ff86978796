"""Small vocabularies of both GGUF kinds, and chat templates of the shapes that real models have."""

from octavo.specs.text import GGUFVocabulary, TextAssets
from octavo.text.tokenizer import Tokenizer

CONTROL = (
    "<|endoftext|>",
    "<|im_start|>",
    "<|im_end|>",
    "<|begin|>",
    "<|header|>",
    "<|/header|>",
    "<|eot|>",
    "[INST]",
    "[/INST]",
    "<|user|>",
    "<|assistant|>",
    "<|system|>",
    "<|end|>",
    "zzq",  # the merges below lead to it, so only the tokenizer itself keeps plain text from it
)
USER_DEFINED = ("<think>", "</think>", "<｜sep｜>")  # the last looks like a marker, so it counts as control
WORDS = ("he ll hell hello", "Ġw Ġwo or Ġwor ld Ġworld", "us er user", "im", "zz zzq", "ĠĠ ĠĠĠĠ", "ĊĊ", "<|", "|>")


def _byte_letters() -> list[str]:
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return [chr(byte) for byte in printable] + [chr(0x100 + i) for i in range(len(others))]


def _merges(words: list[str], known: set[str]) -> list[str]:
    merges = []
    for word in words:
        left = next(word[:cut] for cut in range(len(word) - 1, 0, -1) if word[:cut] in known and word[cut:] in known)
        merges.append(f"{left} {word[len(left) :]}")
        known.add(word)
    return merges


def byte_level_vocabulary(pre: str = "smollm") -> GGUFVocabulary:
    words = [word for line in WORDS for word in line.split()]
    merges = _merges(words, set(_byte_letters()))
    normal = [*_byte_letters(), *(word for word in words if word not in CONTROL)]
    tokens = (*CONTROL, *USER_DEFINED, *normal)
    kinds = (*[3] * len(CONTROL), *[4] * len(USER_DEFINED), *[1] * len(normal))
    return GGUFVocabulary("gpt2", pre, tokens, (), kinds, tuple(merges))


def byte_level_assets(template: str | None = None, **changes: object) -> TextAssets:
    values = {"add_bos": False, "bos_token_id": CONTROL.index("<|begin|>"), "eos_token_ids": (CONTROL.index("<|eot|>"),)} | changes
    return TextAssets(tokenizer_json=None, gguf_vocabulary=byte_level_vocabulary(), chat_template=template, **values)


def sentencepiece_vocabulary(*, add_space_prefix: bool = True) -> GGUFVocabulary:
    control = ("<unk>", "<s>", "</s>", "[INST]", "[/INST]")
    letters = [chr(c) for c in range(0x21, 0x7F)] + ["é", "▁"]
    words = ["he", "▁t", "▁the", "ll", "hell", "hello", "▁hello", "▁▁", "▁▁▁▁", "or", "▁w", "▁wor", "ld", "▁world", "s>", "</", "</s"]
    tokens = (*control, *(f"<0x{byte:02X}>" for byte in range(256)), *words, *letters)
    kinds = (2, *[3] * (len(control) - 1), *[6] * 256, *[1] * (len(words) + len(letters)))
    scores = (*[0.0] * (len(control) + 256), *(-float(rank) for rank in range(len(words) + len(letters))))
    return GGUFVocabulary("llama", "default", tokens, scores, kinds, (), unknown_token_id=0, add_space_prefix=add_space_prefix)


def sentencepiece_assets(*, add_space_prefix: bool = True, **changes: object) -> TextAssets:
    values = {"add_bos": True, "bos_token_id": 1, "eos_token_ids": (2,)} | changes
    vocabulary = sentencepiece_vocabulary(add_space_prefix=add_space_prefix)
    return TextAssets(tokenizer_json=None, gguf_vocabulary=vocabulary, chat_template=None, **values)


def byte_level_tokenizer() -> Tokenizer:
    return Tokenizer.from_assets(byte_level_assets())


def sentencepiece_tokenizer(*, add_space_prefix: bool = True) -> Tokenizer:
    return Tokenizer.from_assets(sentencepiece_assets(add_space_prefix=add_space_prefix))


CHATML = """\
{% for m in messages %}{% if loop.first and messages[0]['role'] != 'system' %}<|im_start|>system
Be kind.<|im_end|>
{% endif %}{{ '<|im_start|>' + m['role'] + '\n' + m['content'] + '<|im_end|>' + '\n' }}{% endfor %}
{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"""

TRIMMING = """\
{{- bos_token }}
{%- if messages[0].role == 'system' %}{% set system = messages[0].content | trim %}{% set rest = messages[1:] %}
{%- else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{{- '<|header|>system<|/header|>\n\n' }}{{- 'Today: ' + (date | default('unknown')) + '\n' + system + '<|eot|>' }}
{%- if tools %}{%- for tool in tools %}{{- tool | tojson(indent=4) }}{{- '\n\n' }}{%- endfor %}{%- endif %}
{%- for m in rest %}
    {%- if m.tool_calls %}
        {{- '<|header|>assistant<|/header|>\n\n{"name": "' + m.tool_calls[0].function.name + '", "parameters": ' }}
        {{- m.tool_calls[0].function.arguments | tojson }}{{- '}<|eot|>' }}
    {%- else %}
        {{- '<|header|>' ~ m['role'] ~ '<|/header|>\n\n' ~ (m['content'] | trim) ~ '<|eot|>' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|header|>assistant<|/header|>\n\n' }}{%- endif %}"""

THINKING = """\
{%- set ns = namespace(last=messages | length - 1) %}
{%- for m in messages[::-1] %}
    {%- if m.role == 'user' and not (m.content.startswith('<result>') and m.content.endswith('</result>')) %}
        {%- set ns.last = messages | length - 1 - loop.index0 %}{% break %}
    {%- endif %}
{%- endfor %}
{%- for m in messages %}
    {%- if m.role == 'assistant' %}
        {%- set content = m.content %}
        {%- if '</think>' in content %}
            {%- set thought = content.split('</think>')[0].rstrip('\n').split('<think>')[-1].lstrip('\n') %}
            {%- set content = content.split('</think>')[-1].lstrip('\n') %}
            {%- if loop.index0 > ns.last %}{%- set content = '<think>\n' + thought + '\n</think>\n\n' + content %}{%- endif %}
        {%- endif %}
        {{- '<|im_start|>assistant\n' + content }}
        {%- for call in m.tool_calls or [] %}
            {{- '\n<call>\n{"name": "' ~ call.function.name ~ '", "arguments": ' }}
            {%- if call.function.arguments is string %}{{- call.function.arguments }}
            {%- else %}{{- call.function.arguments | tojson }}{%- endif %}{{- '}\n</call>' }}
        {%- endfor %}{{- '<|im_end|>\n' }}
    {%- elif m.role == 'tool' %}
        {%- if loop.first or loop.previtem.role != 'tool' %}{{- '<|im_start|>user' }}{%- endif %}
        {{- '\n<result>\n' + m.content + '\n</result>' }}
        {%- if loop.last or loop.nextitem.role != 'tool' %}{{- '<|im_end|>\n' }}{%- endif %}
    {%- else %}
        {{- '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}{{- '<|im_start|>assistant\n' }}
    {%- if think is defined and think is false %}{{- '<think>\n\n</think>\n\n' }}{%- endif %}{%- endif %}"""

ALTERNATING = """\
{{ bos_token }}{% if messages[0]['role'] == 'system' %}{% set system = messages[0]['content'] + '\n\n' %}{% set rest = messages[1:] %}
{% else %}{% set system = '' %}{% set rest = messages %}{% endif %}
{%- for m in rest %}
{%- if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('roles must alternate user/assistant') }}{% endif %}
{%- if m['role'] == 'user' %}{{ '[INST] ' + (system if loop.last else '') + m['content'] + ' [/INST]' }}
{%- else %}{{ ' ' + m['content'] + eos_token }}{% endif %}{% endfor %}"""

ROLE_AS_TOKEN = """\
{% for m in messages %}{{ '<|' + m['role'] + '|>\n' + m['content'] + '<|end|>\n' }}{% endfor %}
{% if add_generation_prompt %}<|assistant|>
{% endif %}"""

MACROS = """\
{% macro turn(role, body) -%}<|header|>{{ role }}<|/header|>{{ caller() if caller else body }}
    {{- '<|eot|>' }}{%- endmacro %}
{%- set shout %}{{ bos_token }}{{ ['<|im_start|>', 'go', '<|im_end|>'] | join(' ') }}{% endset %}{{ shout }}
{%- for m in messages if m.content -%}
    {% generation %}{{ turn(m.role, m.content | replace('\n', ' ') | upper) }}{% endgeneration %}
{%- endfor -%}
{% if add_generation_prompt %}{{ '<|header|>' }}{{ '%s' % 'assistant' }}<|/header|>{% endif %}"""

PARTS = """\
{% for m in messages %}<|im_start|>{{ m.role }}
{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %}<|im_end|>
{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""

TEMPLATES = {
    "chatml": CHATML,
    "trimming": TRIMMING,
    "thinking": THINKING,
    "alternating": ALTERNATING,
    "role_as_token": ROLE_AS_TOKEN,
    "macros": MACROS,
    "parts": PARTS,
}
