"""The programs of the field against a running server: schemathesis, lm-eval, guidellm, aiperf. The commands, and what to look at after.

Each gives the command lines to run in a work folder, one after the other; none of them needs a network.
"""

from __future__ import annotations

import json
import shutil
from pathlib import Path

MODEL = "tiny"
SETTINGS = Path(__file__).parent / "schemathesis.toml"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance"
)
QUESTIONS = [("hello", ["world", "xyzzy"], 0), ("2 + 2 =", ["4", "5"], 0), ("a b c", ["d", "zz"], 0)]

Commands = list[list[str]]


def schemathesis(url: str, examples: int, *only: str) -> Commands:
    """Positive and negative requests to every endpoint (or to those whose path fits `only`), with no filter on what is sent."""
    settings = ["--checks", CHECKS, "--phases", "examples,coverage,fuzzing,stateful", "--max-examples", str(examples), "--seed", "1"]
    noise = ["--suppress-health-check", "all", "--continue-on-failure", "--no-shrink", "--request-timeout", "60", "--workers", "2"]
    paths = [word for pattern in only for word in ("--include-path-regex", pattern)]
    return [["st", "--config-file", str(SETTINGS), "run", f"{url}/openapi.json", *settings, *noise, *paths]]


def lm_eval(url: str, folder: Path, work: Path) -> Commands:
    """Log-likelihoods of choices by echo and logprobs, and an answer to a chat, on local tasks."""
    rows = [{"query": query, "choices": choices, "gold": gold} for query, choices, gold in QUESTIONS]
    (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(work / "rows.jsonl")}}, "test_split": "test"}
    choose = {"task": "local_choice", "output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_target": "gold"}
    say = {"task": "local_say", "output_type": "generate_until", "doc_to_text": "{{query}}", "doc_to_target": "{{choices[0]}}"}
    more = {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 8}, "metric_list": [{"metric": "exact_match"}]}
    (work / "local_choice.yaml").write_text(json.dumps(data | choose | {"doc_to_choice": "choices", "metric_list": [{"metric": "acc"}]}))
    (work / "local_say.yaml").write_text(json.dumps(data | say | more))
    common = ["--include_path", str(work), "--log_samples", "--output_path", str(work / "lm_eval")]
    ids = f"model={MODEL},base_url={url}/v1/completions,num_concurrent=2,tokenizer={folder},max_length=256"
    chat = f"model={MODEL},base_url={url}/v1/chat/completions,num_concurrent=2,tokenized_requests=False"
    return [
        ["lm_eval", "run", "--model", "local-completions", "--model_args", ids, "--tasks", "local_choice", *common],
        [
            "lm_eval",
            "run",
            "--model",
            "local-chat-completions",
            "--model_args",
            chat,
            "--tasks",
            "local_say",
            "--apply_chat_template",
            *common,
        ],
    ]


def guidellm(url: str, folder: Path, work: Path) -> Commands:
    backend = ["--backend", f"kind=openai_http,target={url},model={MODEL}", "--tokenizer", f"kind=hf_auto,model={folder}"]
    load = ["--profile", "kind=concurrent,streams=2", "--constraint", "kind=max_requests,count=6"]
    data = ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8"]
    output = ["--output", f"kind=json,path={work / 'guidellm.json'}", "--disable-console-interactive"]
    return [["guidellm", "run", *backend, *load, *data, *output]]


def check_guidellm(work: Path) -> None:
    (run,) = json.loads((work / "guidellm.json").read_text())["benchmarks"]
    totals = run["metrics"]["request_totals"]
    assert (totals["successful"], totals["errored"]) == (6, 0), totals


def aiperf(url: str, folder: Path, work: Path) -> Commands:
    """Offline it takes no tokenizer that is a folder, only one that lies in the cache of the hub's client."""
    cached = work / "hf" / "hub" / "models--local--tiny"
    commit = "0" * 40
    (cached / "refs").mkdir(parents=True)
    (cached / "refs" / "main").write_text(commit)
    shutil.copytree(folder, cached / "snapshots" / commit)
    model = ["-m", MODEL, "-u", url, "--endpoint-type", "chat", "--streaming", "--tokenizer", "local/tiny"]
    load = ["--isl", "32", "--osl", "8", "--concurrency", "2", "--request-count", "6"]
    exact = ["--extra-inputs", "ignore_eos:true", "--use-server-token-count"]
    return [["aiperf", "profile", *model, *load, *exact, "--ui", "none", "--artifact-dir", str(work / "aiperf")]]


def check_aiperf(work: Path) -> None:
    figures = json.loads((work / "aiperf" / "profile_export_aiperf.json").read_text())
    assert figures["request_count"]["avg"] == 6, figures["request_count"]
    assert figures["output_sequence_length"]["avg"] == 8, figures["output_sequence_length"]
    assert not figures.get("error_summary"), figures["error_summary"]
