"""The planner's page by itself, with no engine: what `octavo plan --web` serves on loopback until it is interrupted."""

from __future__ import annotations

import asyncio
import signal
from collections.abc import Callable

from octavo.config.server_schema import ServerConfig
from octavo.server.app import create_app
from octavo.server.listener import open_listener
from octavo.server.plan.answer import Extra
from octavo.server.plan.endpoints import PAGE, PLAN_ENDPOINTS
from octavo.server.protocol import ConnectionLimits, make_server

HOST = "127.0.0.1"
DRAIN_S = 1.0


def serve_page(port: int, extra: Extra, on_ready: Callable[[str], None]) -> None:
    """Serve until SIGINT or SIGTERM; `on_ready` is told the page's address. Raises StartupError when the port is taken."""
    listener = open_listener(HOST, port)
    config = ServerConfig(host=HOST)
    app = create_app(None, config, PLAN_ENDPOINTS)
    app.state.plan_extra = extra
    server = make_server(app, DRAIN_S, ConnectionLimits(config.max_connections, config.max_connections_per_client))

    def stop() -> None:
        server.should_exit = True

    async def run() -> None:
        for number in (signal.SIGINT, signal.SIGTERM):
            asyncio.get_running_loop().add_signal_handler(number, stop)
        on_ready(f"http://{HOST}:{listener.getsockname()[1]}{PAGE}")
        await server.serve(sockets=[listener])

    asyncio.run(run())
