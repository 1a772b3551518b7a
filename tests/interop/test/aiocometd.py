"""aiocometd against the server, on each of its transports."""

import asyncio
import logging
import os
import unittest

from aiocometd_ng import Client, ConnectionType

PROGRAM = os.environ["INTEROP_SERVER"]
# The files of the server's certificate without their endings, if it speaks TLS. SSL_CERT_FILE lets aiohttp trust it.
CERTIFICATE = os.environ.get("INTEROP_TLS")
SCHEME = "https" if CERTIFICATE else "http"
# The limit of the time of one event, on a busy machine.
WAIT_SECONDS = 90


class Server:
    """One server on one port, through its starts and stops."""

    port = "0"

    async def start(self):
        options = ["timeout_ms=10000", "max_interval_ms=300000"]
        if CERTIFICATE:
            options += [f"tls_cert={CERTIFICATE}.pem", f"tls_key={CERTIFICATE}.key"]
        arguments = ["--port", self.port, *(word for option in options for word in ("--set", option))]
        pipe = asyncio.subprocess.PIPE
        self.process = await asyncio.create_subprocess_exec(PROGRAM, *arguments, stdin=pipe, stdout=pipe)
        scheme, _, self.port = (await self.process.stdout.readline()).decode().strip().rpartition(":")
        assert scheme == f"listening on {SCHEME}://127.0.0.1", scheme

    async def kill(self):
        self.process.kill()
        await self.process.wait()

    @property
    def url(self):
        # By its name: aiohttp sends no cookies to addresses.
        return f"{SCHEME}://localhost:{self.port}/cometd"


class Scenarios:
    transport: ConnectionType

    async def asyncSetUp(self):
        self.server = Server()
        await self.server.start()
        self.addAsyncCleanup(self.server.kill)

    def open(self):
        # With a limit of its own its receive() fails since Python 3.10, which has no argument `loop` any more.
        return Client(self.server.url, self.transport, connection_timeout=None)

    async def client(self):
        client = await self.enterAsyncContext(self.open())
        self.assertEqual(client.connection_type, self.transport)
        return client

    async def next(self, client):
        message = await asyncio.wait_for(client.receive(), WAIT_SECONDS)
        return message["channel"], message["data"]

    async def test_messages_arrive_once_and_in_order(self):
        subscriber, publisher = await self.client(), await self.client()
        await subscriber.subscribe("/news/*")
        texts = [*map(str, range(50)), "ünïcode ☄ 彗星", "x" * 60_000]
        for text in texts:
            await publisher.publish("/news/today", {"text": text})
        for text in texts:
            self.assertEqual(await self.next(subscriber), ("/news/today", {"text": text}))
        await subscriber.unsubscribe("/news/*")
        await publisher.publish("/news/today", {"text": "too late"})
        await subscriber.subscribe("/end")
        await publisher.publish("/end", {})
        self.assertEqual(await self.next(subscriber), ("/end", {}))

    async def test_a_subscription_goes_on_after_the_server_was_killed(self):
        subscriber = await self.client()
        await subscriber.subscribe("/news")
        await self.server.kill()
        await self.server.start()
        arrival = asyncio.create_task(self.next(subscriber))
        async with self.open() as publisher:
            # What is published before it has subscribed again is for nobody.
            while not arrival.done():
                await publisher.publish("/news", {"after": "the kill"})
                await asyncio.wait([arrival], timeout=0.2)
        self.assertEqual(await arrival, ("/news", {"after": "the kill"}))


class LongPolling(Scenarios, unittest.IsolatedAsyncioTestCase):
    transport = ConnectionType.LONG_POLLING


class WebSocket(Scenarios, unittest.IsolatedAsyncioTestCase):
    transport = ConnectionType.WEBSOCKET


# It reports each task that it cancels itself.
logging.getLogger("asyncio").setLevel(logging.CRITICAL)
unittest.main(verbosity=2, warnings="ignore")
