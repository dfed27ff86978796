"""Every error that Octavo raises on purpose, in one tree.

    OctavoError
    ├── RequestError                 the caller can mend the request (4xx)
    │   ├── InvalidRequest           400  a field is wrong: `code` and `param` say which and how
    │   ├── ContextLengthExceeded    400  prompt, or prompt + max_tokens, is longer than the model takes
    │   ├── AuthenticationFailed     401
    │   ├── PermissionDenied         403
    │   ├── NotFound                 404  unknown model or route
    │   └── PayloadTooLarge          413
    ├── CapacityError                503  not now: try again after `retry_after_s`
    ├── DeadlineExceeded             504  the answer was not whole in the time that the caller or the operator gave
    ├── EngineError                  500  our fault
    │   ├── RequestFailed            500  this one request failed (NaN logits, an exception in its row)
    │   └── EngineDead               503  the engine process is gone
    └── StartupError                      the server or `LLM` cannot start
        ├── ConfigError                   a flag or a combination of flags
        ├── ModelError                    model files: missing, damaged, unsupported
        └── OutOfMemory                   the ledger does not close

An error's text gives the value, the limit and the way out. It never holds prompt text, keys, or paths of
this machine beyond those that the operator typed.
"""

from __future__ import annotations

from collections.abc import Iterable


class OctavoError(Exception):
    """Root of the tree. `status` is the HTTP status, `type`, `code` and `param` the fields of OpenAI's error object."""

    status: int = 500
    type: str = "server_error"
    code: str | None = None
    param: str | None = None

    def __init__(self, message: str, *, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        if code is not None:
            self.code = code
        if param is not None:
            self.param = param


class RequestError(OctavoError):
    status = 400
    type = "invalid_request_error"


class InvalidRequest(RequestError):
    code = "invalid_value"


class ContextLengthExceeded(RequestError):
    code = "context_length_exceeded"


class AuthenticationFailed(RequestError):
    status = 401
    code = "invalid_api_key"


class PermissionDenied(RequestError):
    status = 403
    type = "permission_error"


class NotFound(RequestError):
    status = 404
    code = "model_not_found"


class PayloadTooLarge(RequestError):
    status = 413
    code = "request_too_large"


class CapacityError(OctavoError):
    status = 503
    code = "server_overloaded"

    def __init__(self, message: str, *, retry_after_s: float = 1.0, code: str | None = None, param: str | None = None) -> None:
        super().__init__(message, code=code, param=param)
        self.retry_after_s = retry_after_s


class DeadlineExceeded(OctavoError):
    status = 504
    code = "deadline_exceeded"


class EngineError(OctavoError):
    code = "internal_error"


class RequestFailed(EngineError):
    code = "request_failed"


class EngineDead(EngineError):
    status = 503
    code = "engine_unavailable"


class StartupError(OctavoError):
    pass


class ConfigError(StartupError):
    code = "invalid_config"


class ModelError(StartupError):
    code = "invalid_model"


class OutOfMemory(StartupError):
    code = "out_of_memory"


def did_you_mean(word: str, known: Iterable[str], most: int = 1) -> str:
    """Return '; did you mean X or Y?' for an error's end: the nearest of `known`, `most` at most, or nothing when none is near."""
    import difflib  # no error, no need

    names = {name.lower(): name for name in known}
    near = difflib.get_close_matches(word.lower(), names, n=most, cutoff=0.6)
    return f"; did you mean {' or '.join(names[name] for name in near)}?" if near else ""
