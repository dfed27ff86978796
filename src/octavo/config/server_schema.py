"""The server's settings, frozen. What the engine need not know, and its process does not load; flags.py maps flags onto the fields."""

from __future__ import annotations

import re

import msgspec

from octavo.config.schema import MAX_WAIT_S, one_of
from octavo.errors import ConfigError
from octavo.parsers.formats import REASONING_FORMATS, TOOL_FORMATS

MAX_API_SERVERS = 64
_METRIC_NAME = re.compile(r"[a-zA-Z_:][a-zA-Z0-9_:]*")  # Prometheus' rule


class StructuredOutputsConfig(msgspec.Struct, frozen=True):
    """Structured output over HTTP; names are vLLM's. The first two hold for JSON where a request does not say.

    `enable_in_reasoning`: reasoning must match too, instead of only the answer behind it.
    """

    backend: str = "auto"  # auto | guidance: there is one
    disable_any_whitespace: bool = False
    disable_additional_properties: bool = False
    enable_in_reasoning: bool = False

    def __post_init__(self) -> None:
        one_of("structured_outputs_config: backend", self.backend, ("auto", "guidance"))


class ServerConfig(msgspec.Struct, frozen=True):
    host: str = "127.0.0.1"
    port: int = 8000
    uds: str | None = None  # path of a Unix socket to listen on, instead of host and port
    root_path: str = ""  # prefix of every path that a proxy in front leaves in
    ssl_keyfile: str | None = None
    ssl_certfile: str | None = None
    ssl_ca_certs: str | None = None  # clients must then have a certificate that one of these has signed
    enable_ssl_refresh: bool = False  # read key and certificate again when their files change
    api_server_count: int = 1  # processes that answer HTTP, on one port and one engine
    max_connections: int = 2048  # open at once; further ones are answered 503
    max_connections_per_client: int = 1024  # from one address
    api_key: tuple[str, ...] = ()
    allowed_hosts: tuple[str, ...] = ()  # further Host names that a server on loopback answers to
    insecure_no_auth: bool = False  # allow a bind off loopback without keys
    allowed_origins: tuple[str, ...] = ()  # web pages that may call the server (CORS); "*": all
    allow_credentials: bool = False  # let those pages send cookies and the like
    max_body_bytes: int = 8 << 20
    ignore_unknown_fields: bool = False  # leave unknown fields of a request out and say so in a header, instead of refusing it
    enable_tokenizer_info_endpoint: bool = False
    enable_admin_endpoints: bool = False  # GET /server_info, POST /reset_prefix_cache, /pause, /resume, /ui/plan
    max_num_queued_reqs: int | None = None  # unfinished requests beyond which new ones get 503
    max_num_queued_tokens: int | None = None  # likewise for prompt tokens of requests without a first token
    request_timeout_s: float | None = None  # longest time for an answer; a request may ask for less
    stream_interval: int = 1  # tokens of one event of a stream, where the request does not say
    enable_auto_tool_choice: bool = True
    tool_call_parser: str = "auto"  # auto: what the chat template teaches, if it is surely one format; none
    reasoning_parser: str = "none"
    structured_outputs: StructuredOutputsConfig = StructuredOutputsConfig()
    response_store_bytes: int = 64 << 20  # for previous_response_id and GET /v1/responses; 0: none are stored
    metrics_prefix: str = "vllm:"
    log_level: str = "info"
    log_format: str = "text"  # text | json
    disable_log_stats: bool = False  # no line every ten seconds while requests run

    def __post_init__(self) -> None:
        if not 0 <= self.port <= 65535:
            raise ConfigError(f"port is {self.port}; it must lie in 0..65535 (0: any free one)")
        if self.root_path and not re.fullmatch(r"(/[\w.~-]+)+", self.root_path):
            raise ConfigError(f"root_path is {self.root_path!r}; write /prefix, with no slash at its end")
        if (self.ssl_keyfile is None) != (self.ssl_certfile is None):
            raise ConfigError("ssl_keyfile and ssl_certfile go together; give both")
        if self.ssl_certfile is None and (self.ssl_ca_certs is not None or self.enable_ssl_refresh):
            raise ConfigError("ssl_ca_certs and enable_ssl_refresh need ssl_keyfile and ssl_certfile")
        if not 1 <= self.api_server_count <= MAX_API_SERVERS:
            raise ConfigError(f"api_server_count is {self.api_server_count}; it must lie in 1..{MAX_API_SERVERS}")
        for name in ("max_connections", "max_connections_per_client"):
            if getattr(self, name) < 1:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 1")
        for origin in self.allowed_origins:
            if origin != "*" and not re.fullmatch(r"https?://[^/\s]+", origin):
                raise ConfigError(f"allowed_origins holds {origin!r}; write https://name or https://name:port, or *")
        if "*" in self.allowed_origins and self.allow_credentials:
            raise ConfigError("allow_credentials with the origin * would let every web page act for its reader; name the origins")
        for name in ("max_num_queued_reqs", "max_num_queued_tokens"):
            if (getattr(self, name) or 0) < 0:
                raise ConfigError(f"{name} is {getattr(self, name)}; it must be at least 0")
        if self.request_timeout_s is not None and not 0 < self.request_timeout_s <= MAX_WAIT_S:
            raise ConfigError(f"request_timeout_s is {self.request_timeout_s:g}; it must be more than 0 and at most {MAX_WAIT_S:,.0f}")
        if self.stream_interval < 1:
            raise ConfigError(f"stream_interval is {self.stream_interval}; it must be at least 1")
        if self.max_body_bytes < 1024:
            raise ConfigError(f"max_body_bytes is {self.max_body_bytes}; it must be at least 1024")
        if not _METRIC_NAME.fullmatch(self.metrics_prefix + "x"):
            raise ConfigError(f"metrics_prefix is {self.metrics_prefix!r}; it must be letters, digits, _ and :, and not begin with a digit")
        if self.response_store_bytes < 0:
            raise ConfigError(f"response_store_bytes is {self.response_store_bytes}; it must be at least 0 (0: none are stored)")
        one_of("tool_call_parser", self.tool_call_parser, ("auto", "none", *TOOL_FORMATS))
        one_of("reasoning_parser", self.reasoning_parser, ("none", *REASONING_FORMATS))
        one_of("log_level", self.log_level, ("debug", "info", "warning", "error"))
        one_of("log_format", self.log_format, ("text", "json"))
