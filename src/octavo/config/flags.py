"""The table of command-line flags: parsing, `--help`, the docs and the resolution of settings all read it.

A Flag sets one field of EngineConfig or ServerConfig, and only flags that are honoured stand here. Knows no command.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal

import msgspec

from octavo.config.flag_values import one_of, read_key_file, read_kv_events, read_length, read_structured_outputs
from octavo.config.schema import HASH_ALGOS, ISAS, KV_DTYPE_NAMES
from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS
from octavo.units import parse_int, parse_number

Group = Literal["Model", "Memory", "Scheduling", "Runtime", "HTTP", "Access", "Tools", "Observability"]
ENGINE_GROUPS: tuple[Group, ...] = ("Model", "Memory", "Scheduling", "Runtime")
ALL_GROUPS: tuple[Group, ...] = (*ENGINE_GROUPS, "HTTP", "Access", "Tools", "Observability")


class Flag(msgspec.Struct, frozen=True):
    """`field`: room and field of the settings, as in model.max_model_len. `parse` turns the flag's text into the field's value.

    `switch`: takes no text and has a --no- form. `repeatable`: each use adds one item to a tuple.
    """

    name: str
    field: str
    group: Group
    help: str
    metavar: str = ""
    parse: Callable[[str], Any] = str
    switch: bool = False
    repeatable: bool = False

    @property
    def option(self) -> str:
        return f"--{self.name}"

    @property
    def dest(self) -> str:
        return self.name.replace("-", "_")


FLAGS: tuple[Flag, ...] = (
    Flag(
        "model",
        "model.model",
        "Model",
        "model to load: a catalogue name, hf:ORG/REPO[@REV], a .gguf file or a safetensors folder; also the first argument",
        "MODEL",
    ),
    Flag(
        "served-model-name",
        "model.served_model_name",
        "Model",
        "name that clients use for the model; repeat for several (the first is shown in answers)",
        "NAME",
        repeatable=True,
    ),
    Flag(
        "max-model-len",
        "model.max_model_len",
        "Model",
        "longest prompt + answer, in tokens; auto or -1, as when it is not given: the model's own, less where memory is short",
        "N|auto",
        read_length,
    ),
    Flag("chat-template", "model.chat_template", "Model", "Jinja file that replaces the model's own chat template", "FILE"),
    Flag(
        "generation-config",
        "model.generation_config",
        "Model",
        "auto: sampling defaults from the model's files; octavo: none",
        "auto|octavo",
        one_of("auto", "octavo"),
    ),
    Flag(
        "logprobs-mode",
        "model.logprobs_mode",
        "Model",
        "whose logprobs answers tell: raw, the model's own; processed, of what the token was drawn from",
        "raw_logprobs|processed_logprobs",
        one_of("raw_logprobs", "processed_logprobs"),
    ),
    Flag(
        "runner",
        "model.runner",
        "Model",
        "generate: text; pooling: vectors and scores of encoders; auto: what the model does",
        "auto|generate|pooling",
        one_of("auto", "generate", "pooling"),
    ),
    Flag("seed", "model.seed", "Model", "make requests without a seed reproducible, in order of arrival", "N", parse_int),
    Flag("block-size", "cache.block_size", "Memory", "token positions in one block of KV memory: 16, 32, 64 or 128", "N", parse_int),
    Flag(
        "gpu-memory-utilization",
        "cache.gpu_memory_utilization",
        "Memory",
        "share of the device's free memory (RAM on a CPU) for weights, activations and KV memory",
        "0..1",
        parse_number,
    ),
    Flag(
        "kv-cache-memory-bytes",
        "cache.kv_cache_memory_bytes",
        "Memory",
        "exact size of the KV memory; overrides the share",
        "BYTES",
        parse_int,
    ),
    Flag(
        "kv-cache-dtype",
        "cache.kv_cache_dtype",
        "Memory",
        "how keys and values are stored: fp8 is fp8_e4m3 without a scale, int8 is int8_per_token_head, a scale for each vector; "
        "fp8_ds_mla, of latent attention alone: fp8 with a scale for 128 numbers, the rotary key in bf16; "
        "auto: bf16 where attention takes AMX tiles, f16 on other CPUs",
        "auto|f16|bf16|f32|fp8|int8|fp8_ds_mla",
        one_of("auto", *KV_DTYPE_NAMES),
    ),
    Flag("num-gpu-blocks-override", "cache.num_gpu_blocks_override", "Memory", "exact number of KV blocks; overrides both", "N", parse_int),
    Flag("enable-prefix-caching", "cache.enable_prefix_caching", "Memory", "reuse the KV memory of prompts that begin alike", switch=True),
    Flag(
        "prefix-caching-hash-algo",
        "cache.prefix_caching_hash_algo",
        "Memory",
        "hash of cached blocks: sha256 and xxhash under a secret of this start, the cbor ones the same in every process "
        "with the same PYTHONHASHSEED; xxhash needs octavo[xxhash]",
        "|".join(HASH_ALGOS),
        one_of(*HASH_ALGOS),
    ),
    Flag(
        "kv-events-config",
        "cache.kv_events",
        "Memory",
        'publish over ZeroMQ what the prefix cache stores and drops, as JSON: {"endpoint": "tcp://127.0.0.1:5557"}; see kv.md',
        "JSON",
        read_kv_events,
    ),
    Flag(
        "kv-offload-gib",
        "cache.kv_offload_gib",
        "Memory",
        "keep cached blocks beyond the pool, this many GiB of them: in --kv-offload-dir, else in host memory",
        "GIB",
        parse_number,
    ),
    Flag(
        "kv-offload-dir",
        "cache.kv_offload_dir",
        "Memory",
        "private directory for cached blocks: they survive a restart (4 GiB unless --kv-offload-gib says otherwise)",
        "DIR",
    ),
    Flag(
        "preemption-mode",
        "cache.preemption_mode",
        "Memory",
        "how a preempted request gets its KV back: computed again, from beyond the pool, or what costs less by measurement",
        "auto|recompute|swap",
        one_of("auto", "recompute", "swap"),
    ),
    Flag(
        "kv-cache-metrics", "cache.kv_cache_metrics", "Memory", "measure how long KV blocks stay in the pool; see metrics.md", switch=True
    ),
    Flag(
        "kv-cache-metrics-sample",
        "cache.kv_cache_metrics_sample",
        "Memory",
        "the share of blocks that are measured",
        "0..1",
        parse_number,
    ),
    Flag("max-num-seqs", "scheduler.max_num_seqs", "Scheduling", "most requests in one step", "N", parse_int),
    Flag("max-num-batched-tokens", "scheduler.max_num_batched_tokens", "Scheduling", "most tokens in one step", "N", parse_int),
    Flag(
        "max-num-active-seqs",
        "scheduler.max_num_active_seqs",
        "Scheduling",
        "most requests running; the buffers keep the size of max-num-seqs",
        "N",
        parse_int,
    ),
    Flag(
        "max-num-scheduled-tokens",
        "scheduler.max_num_scheduled_tokens",
        "Scheduling",
        "most tokens handed out in one step, at most max-num-batched-tokens",
        "N",
        parse_int,
    ),
    Flag(
        "performance-mode",
        "scheduler.performance_mode",
        "Scheduling",
        "defaults: throughput doubles the two sizes and cuts no prompt for a pace, interactivity halves tokens and milliseconds of a step "
        "and takes the instruction set that is fastest for single streams",
        "balanced|throughput|interactivity",
        one_of("balanced", "throughput", "interactivity"),
    ),
    Flag(
        "mixed-step-ms",
        "scheduler.mixed_step_ms",
        "Scheduling",
        "how long a step with both prompts and answers in progress should take: prompts are cut to what is known to take that long; "
        "200 where nothing is given, 0 cuts none",
        "MS",
        parse_number,
    ),
    Flag(
        "scheduling-policy",
        "scheduler.scheduling_policy",
        "Scheduling",
        "fcfs: first come, first served, tenants by turns; priority: lower values of a request's priority first",
        "fcfs|priority",
        one_of("fcfs", "priority"),
    ),
    Flag(
        "enable-chunked-prefill",
        "scheduler.enable_chunked_prefill",
        "Scheduling",
        "let a prompt be computed over several steps",
        switch=True,
    ),
    Flag(
        "long-prefill-token-threshold-adaptive",
        "scheduler.long_prefill_token_threshold_adaptive",
        "Scheduling",
        "never cap a prompt below an equal share of the step",
        switch=True,
    ),
    Flag(
        "long-prefill-token-threshold",
        "scheduler.long_prefill_token_threshold",
        "Scheduling",
        "most prompt tokens of one request in one step when it is not alone (0: half of what is left)",
        "N",
        parse_int,
    ),
    Flag(
        "watermark",
        "scheduler.watermark",
        "Scheduling",
        "share of KV blocks kept free when waiting requests are admitted",
        "0..1",
        parse_number,
    ),
    Flag(
        "max-queue-time",
        "scheduler.max_queue_s",
        "Scheduling",
        "longest time that a request may wait for its first step; it is answered 503 then",
        "SECONDS",
        parse_number,
    ),
    Flag(
        "async-scheduling",
        "scheduler.async_scheduling",
        "Scheduling",
        "plan each step while the one before it computes",
        switch=True,
    ),
    Flag(
        "backend",
        "runtime.backend",
        "Runtime",
        "native: the C++ library; reference: NumPy, slow, the definition",
        "native|reference",
        one_of("native", "reference"),
    ),
    Flag(
        "enforce-eager",
        "runtime.enforce_eager",
        "Runtime",
        "call each operation by itself instead of replaying the recorded forward pass",
        switch=True,
    ),
    Flag(
        "enable-mfu-metrics",
        "runtime.enable_mfu_metrics",
        "Runtime",
        "count the operations that steps have to do and the bytes that they read and write; see metrics.md",
        switch=True,
    ),
    Flag("threads", "runtime.threads", "Runtime", "CPU threads", "N", parse_int),
    Flag(
        "isa",
        "runtime.isa",
        "Runtime",
        "instruction set of the native library",
        "|".join(ISAS),
        one_of(*ISAS),
    ),
    Flag("host", "server.host", "HTTP", "address to listen on", "HOST"),
    Flag("port", "server.port", "HTTP", "port to listen on (0: any free one)", "PORT", parse_int),
    Flag("uds", "server.uds", "HTTP", "Unix socket to listen on, for its owner alone, instead of host and port", "PATH"),
    Flag(
        "api-server-count",
        "server.api_server_count",
        "HTTP",
        "processes that answer HTTP, on one port and one engine; its limits hold for all of them together",
        "N",
        parse_int,
    ),
    Flag("root-path", "server.root_path", "HTTP", "prefix of every path that a proxy in front of the server leaves in", "/PREFIX"),
    Flag("ssl-keyfile", "server.ssl_keyfile", "HTTP", "private key for TLS (1.2 and newer), PEM", "FILE"),
    Flag("ssl-certfile", "server.ssl_certfile", "HTTP", "certificate chain for TLS, PEM", "FILE"),
    Flag("ssl-ca-certs", "server.ssl_ca_certs", "HTTP", "clients must have a certificate that one of these has signed, PEM", "FILE"),
    Flag("enable-ssl-refresh", "server.enable_ssl_refresh", "HTTP", "read key and certificate again when their files change", switch=True),
    Flag("max-connections", "server.max_connections", "HTTP", "connections open at once; further ones are answered 503", "N", parse_int),
    Flag(
        "max-connections-per-client",
        "server.max_connections_per_client",
        "HTTP",
        "connections open at once from one address",
        "N",
        parse_int,
    ),
    Flag("max-body-bytes", "server.max_body_bytes", "HTTP", "largest request body", "BYTES", parse_int),
    Flag(
        "max-num-queued-reqs",
        "server.max_num_queued_reqs",
        "HTTP",
        "unfinished requests beyond which new ones are answered 503; a request for n answers counts n",
        "N",
        parse_int,
    ),
    Flag(
        "max-num-queued-tokens",
        "server.max_num_queued_tokens",
        "HTTP",
        "prompt tokens of requests without a first token yet, beyond which new ones are answered 503",
        "N",
        parse_int,
    ),
    Flag(
        "request-timeout",
        "server.request_timeout_s",
        "HTTP",
        "longest time for an answer; a request may ask for less in X-Request-Timeout-Ms; it is answered 504 then",
        "SECONDS",
        parse_number,
    ),
    Flag(
        "stream-interval",
        "server.stream_interval",
        "HTTP",
        "tokens of one event of a stream, where the request's own stream_interval does not say; the first token never waits",
        "N",
        parse_int,
    ),
    Flag(
        "ignore-unknown-fields",
        "server.ignore_unknown_fields",
        "HTTP",
        "leave unknown fields of a request out and name them in the header x-ignored-fields, instead of refusing the request",
        switch=True,
    ),
    Flag(
        "enable-tokenizer-info-endpoint",
        "server.enable_tokenizer_info_endpoint",
        "HTTP",
        "serve GET /tokenizer_info: the tokenizer's special tokens and chat template",
        switch=True,
    ),
    Flag(
        "enable-admin-endpoints",
        "server.enable_admin_endpoints",
        "Access",
        "serve GET /server_info, POST /reset_prefix_cache, /pause and /resume, and the planner at /ui/plan to whoever has a key",
        switch=True,
    ),
    Flag(
        "api-key",
        "server.api_key",
        "Access",
        "key that clients must send; repeatable. It shows in ps: prefer --api-key-file or OCTAVO_API_KEY",
        "KEY",
        repeatable=True,
    ),
    Flag("api-key-file", "server.api_key", "Access", "file with one key a line, mode 600", "FILE", read_key_file),
    Flag(
        "allowed-host",
        "server.allowed_hosts",
        "Access",
        "further name in the Host header that a server on loopback answers to; repeatable",
        "NAME",
        repeatable=True,
    ),
    Flag(
        "allowed-origins",
        "server.allowed_origins",
        "Access",
        "web page that may call the server from a browser (CORS), as https://name; *: all; repeatable",
        "ORIGIN",
        repeatable=True,
    ),
    Flag("allow-credentials", "server.allow_credentials", "Access", "let those pages send cookies and client certificates", switch=True),
    Flag("insecure-no-auth", "server.insecure_no_auth", "Access", "allow an address off loopback without any key", switch=True),
    Flag(
        "enable-auto-tool-choice",
        "server.enable_auto_tool_choice",
        "Tools",
        "let models call the tools of a request when they choose to",
        switch=True,
    ),
    Flag(
        "tool-call-parser",
        "server.tool_call_parser",
        "Tools",
        "how the model writes tool calls; auto: as its chat template teaches, if that is surely one of "
        f"{', '.join(sorted(TOOL_FORMATS))}; none: not at all",
        "NAME",
        one_of("auto", "none", *TOOL_FORMATS),
    ),
    Flag(
        "reasoning-parser",
        "server.reasoning_parser",
        "Tools",
        f"how the model marks its reasoning: {', '.join(sorted(REASONING_FORMATS))}; none: reasoning is left in the answer's text",
        "NAME",
        one_of("none", *REASONING_FORMATS),
    ),
    Flag(
        "structured-outputs-config",
        "server.structured_outputs",
        "Tools",
        'structured output, as JSON: {"disable_any_whitespace": true, "disable_additional_properties": true, "enable_in_reasoning": true}; '
        "see structured_outputs.md",
        "JSON",
        read_structured_outputs,
    ),
    Flag(
        "response-store-bytes",
        "server.response_store_bytes",
        "HTTP",
        "memory for the answers of /v1/responses, which previous_response_id goes on with (0: none are stored)",
        "BYTES",
        parse_int,
    ),
    Flag("metrics-prefix", "server.metrics_prefix", "Observability", "first part of every metric's name", "PREFIX"),
    Flag(
        "log-format",
        "server.log_format",
        "Observability",
        "lines for people, or one JSON object a line",
        "text|json",
        one_of("text", "json"),
    ),
    Flag("disable-log-stats", "server.disable_log_stats", "Observability", "no line of figures every ten seconds", switch=True),
    Flag(
        "log-level",
        "server.log_level",
        "Observability",
        "how much the log says",
        "debug|info|warning|error",
        one_of("debug", "info", "warning", "error"),
    ),
)


def flags_in(groups: Sequence[Group]) -> tuple[Flag, ...]:
    return tuple(flag for flag in FLAGS if flag.group in groups)
