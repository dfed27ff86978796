"""Point the clients of the field at a running Octavo, all offline: the official SDKs, schemathesis, lm-eval, guidellm, aiperf.

    python tests/conformance/run_clients.py                    # a tiny random model, started and ended here
    python tests/conformance/run_clients.py --only schemathesis --examples 50
    python tests/conformance/run_clients.py --tools ~/tools/bin    # where `st`, `lm_eval`, `guidellm` and `aiperf` are, if not on PATH

    pip install schemathesis==4.32.5 "lm-eval[api]==0.4.13" guidellm==0.8.1 aiperf==0.13.0    # in an environment of their own

A client that is not installed is named and left out. The exit code is the number of clients that failed. Run it from the
repository's root with an interpreter that has Octavo and its dev dependencies.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

import anthropic
import openai

ROOT = Path(__file__).parent.parent.parent
sys.path.insert(0, str(ROOT))

from tests.fakes.served import served  # noqa: E402
from tests.fakes.tiny_chat import write_tiny_chat  # noqa: E402

HERE = Path(__file__).parent
MODEL = "tiny"
CHECKS = (
    "not_a_server_error,status_code_conformance,content_type_conformance,response_headers_conformance,"
    "response_schema_conformance,negative_data_rejection,unsupported_method,allow_header_conformance"
)
SERVER_FLAGS = ("--enable-admin-endpoints", "--enable-tokenizer-info-endpoint", "--max-body-bytes", "16384")
QUESTIONS = [("hello", ["world", "xyzzy"], 0), ("2 + 2 =", ["4", "5"], 0), ("a b c", ["d", "zz"], 0)]


def run_openai(url: str, options: argparse.Namespace, work: Path) -> bool:
    client = openai.OpenAI(base_url=f"{url}/v1", api_key="none", max_retries=0, _strict_response_validation=True)
    assert [model.id for model in client.models.list()] == [MODEL]
    messages = [{"role": "user", "content": "hi"}]
    chat = client.chat.completions.create(model=MODEL, messages=messages, max_tokens=4, logprobs=True, top_logprobs=2)
    assert len(chat.choices[0].logprobs.content) == 4
    asked = {"model": MODEL, "messages": messages, "max_tokens": 4, "temperature": 0}
    chunks = list(client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}))
    assert chunks[-1].usage.completion_tokens == 4
    streamed = "".join(choice.delta.content or "" for chunk in chunks for choice in chunk.choices)
    assert streamed == client.chat.completions.create(**asked).choices[0].message.content
    assert len(client.completions.create(model=MODEL, prompt=["a", "b"], max_tokens=2).choices) == 2
    response = client.responses.create(model=MODEL, input="hi", max_output_tokens=4)
    assert client.responses.retrieve(response.id).id == response.id
    events = client.responses.create(model=MODEL, input="hi", max_output_tokens=4, stream=True)
    assert [event.type for event in events][-1] == "response.incomplete"
    for wrong, kind in (({"model": "gpt"}, openai.NotFoundError), ({"temperature": 9}, openai.BadRequestError)):
        try:
            client.chat.completions.create(**{**asked, **wrong})
        except kind:
            continue
        raise AssertionError(f"{wrong} was not refused as {kind.__name__}")
    return True


def run_anthropic(url: str, options: argparse.Namespace, work: Path) -> bool:
    client = anthropic.Anthropic(base_url=url, api_key="none", max_retries=0)
    asked = {"model": MODEL, "max_tokens": 4, "messages": [{"role": "user", "content": "hi"}]}
    message = client.messages.create(**asked)
    assert message.usage.output_tokens == 4
    with client.messages.stream(**asked) as stream:
        assert stream.get_final_message().stop_reason == "max_tokens"
    assert client.messages.count_tokens(model=MODEL, messages=asked["messages"]).input_tokens > 0
    try:
        client.messages.create(**{**asked, "model": "claude"})
    except anthropic.NotFoundError:
        return True
    raise AssertionError("an unknown model was not refused as NotFoundError")


def run_schemathesis(url: str, options: argparse.Namespace, work: Path) -> bool:
    """Positive and negative requests to every endpoint, with no filter."""
    config = ("--config-file", str(HERE / "schemathesis.toml"))
    phases = ("--phases", options.phases, "--max-examples", str(options.examples), "--seed", "1", "--workers", "2")
    noise = ("--suppress-health-check", "all", "--continue-on-failure", "--no-shrink", "--request-timeout", "60")
    return call(["st", *config, "run", f"{url}/openapi.json", "--checks", CHECKS, *phases, *noise], options, work)


def run_lm_eval(url: str, options: argparse.Namespace, work: Path) -> bool:
    """Log-likelihoods of choices by echo and logprobs, and an answer to a chat, on local tasks."""
    rows = [{"query": query, "choices": choices, "gold": gold} for query, choices, gold in QUESTIONS]
    (work / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    data = {"dataset_path": "json", "dataset_kwargs": {"data_files": {"test": str(work / "rows.jsonl")}}, "test_split": "test"}
    choose = {"task": "local_choice", "output_type": "multiple_choice", "doc_to_text": "{{query}}", "doc_to_target": "gold"}
    say = {"task": "local_say", "output_type": "generate_until", "doc_to_text": "{{query}}", "doc_to_target": "{{choices[0]}}"}
    more = {"generation_kwargs": {"until": ["\n"], "max_gen_toks": 8}, "metric_list": [{"metric": "exact_match"}]}
    (work / "local_choice.yaml").write_text(json.dumps(data | choose | {"doc_to_choice": "choices", "metric_list": [{"metric": "acc"}]}))
    (work / "local_say.yaml").write_text(json.dumps(data | say | more))
    common = ("--include_path", str(work), "--log_samples", "--output_path", str(work / "lm_eval"))
    ids = f"model={MODEL},base_url={url}/v1/completions,num_concurrent=2,tokenizer={options.model_folder},max_length=256"
    chat = f"model={MODEL},base_url={url}/v1/chat/completions,num_concurrent=2,tokenized_requests=False"
    chooses = ["lm_eval", "run", "--model", "local-completions", "--model_args", ids, "--tasks", "local_choice", *common]
    says = ["lm_eval", "run", "--model", "local-chat-completions", "--model_args", chat, "--tasks", "local_say", "--apply_chat_template"]
    return call(chooses, options, work) and call([*says, *common], options, work)


def run_guidellm(url: str, options: argparse.Namespace, work: Path) -> bool:
    command = ["guidellm", "run", "--backend", f"kind=openai_http,target={url},model={MODEL}", "--profile", "kind=concurrent,streams=2"]
    command += ["--constraint", "kind=max_requests,count=6", "--tokenizer", f"kind=hf_auto,model={options.model_folder}"]
    command += ["--data", "kind=synthetic_text,prompt_tokens=32,output_tokens=8", "--output", f"kind=json,path={work / 'guidellm.json'}"]
    return call([*command, "--disable-console-interactive"], options, work)


def run_aiperf(url: str, options: argparse.Namespace, work: Path) -> bool:
    command = [
        "aiperf",
        "profile",
        "-m",
        MODEL,
        "-u",
        url,
        "--endpoint-type",
        "chat",
        "--streaming",
        "--tokenizer",
        str(options.model_folder),
    ]
    command += ["--isl", "32", "--osl", "8", "--concurrency", "2", "--request-count", "6", "--ui", "none"]
    return call([*command, "--artifact-dir", str(work / "aiperf")], options, work, offline=False)


Client = Callable[[str, argparse.Namespace, Path], bool]
CLIENTS: dict[str, tuple[Client, str]] = {  # and the program that must be there
    "openai": (run_openai, ""),
    "anthropic": (run_anthropic, ""),
    "schemathesis": (run_schemathesis, "st"),
    "lm-eval": (run_lm_eval, "lm_eval"),
    "guidellm": (run_guidellm, "guidellm"),
    "aiperf": (run_aiperf, "aiperf"),
}


def call(command: list[str], options: argparse.Namespace, work: Path, *, offline: bool = True) -> bool:
    """Run a program, show what it said if it failed, and return whether it did not. `offline`: tell Hugging Face's library so."""
    settings = {"HF_HUB_OFFLINE": "1"} if offline else {}  # aiperf then refuses a tokenizer that is a folder
    environment = os.environ | settings | {"HF_HOME": str(work / "hf"), "PATH": search_path(options)}
    environment.pop("PYTHONPATH", None)
    try:
        done = subprocess.run(command, capture_output=True, text=True, cwd=work, env=environment, timeout=options.timeout, check=False)
    except subprocess.TimeoutExpired:
        print(f"{command[0]} did not end within {options.timeout:.0f} s")
        return False
    if done.returncode:
        print((done.stdout + done.stderr)[-6000:])
    return done.returncode == 0


def search_path(options: argparse.Namespace) -> str:
    return os.pathsep.join([*options.tools, os.environ.get("PATH", "")])


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="+", choices=CLIENTS, default=list(CLIENTS), help="these clients")
    parser.add_argument("--tools", nargs="*", default=[], metavar="DIR", help="folders to look for programs in, before PATH")
    parser.add_argument("--examples", type=int, default=10, help="requests that schemathesis makes up for an endpoint [10]")
    parser.add_argument("--phases", default="examples,coverage,fuzzing", help="of schemathesis")
    parser.add_argument("--timeout", type=float, default=1800, metavar="S", help="for one program [1800]")
    options = parser.parse_args()
    failed = []
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        options.model_folder = work / "model"
        options.model_folder.mkdir()
        write_tiny_chat(options.model_folder)
        with served(options.model_folder, *SERVER_FLAGS) as url:
            for name in options.only:
                client, program = CLIENTS[name]
                if program and shutil.which(program, path=search_path(options)) is None:
                    print(f"{name}: not installed")
                    continue
                is_well = client(url, options, work)
                print(f"{name}: {'well' if is_well else 'FAILED'}", flush=True)
                failed += [] if is_well else [name]
    return len(failed)


if __name__ == "__main__":
    sys.exit(main())
