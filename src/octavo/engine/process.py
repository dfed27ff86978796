"""The engine as a process: `python -m octavo.engine.process SOCKET_DIR < EngineConfig as MessagePack`.

It binds the socket, starts the engine, serves until SIGTERM, a shutdown message or the parent's death, and exits: 0 when
told to stop, 1 when it could not start or go on (its clients get EngineFailed). SIGINT is the parent's to decide on.
Log lines go to stderr and hold no prompts. `service.py` does all that; here is only what must be before its imports.
"""

from __future__ import annotations

import gc
import sys
from importlib import import_module

if __name__ == "__main__":
    gc.disable()  # nothing of what imports make is garbage: looking for it takes a tenth of their time
    raise SystemExit(import_module("octavo.engine.service").main(sys.argv))
