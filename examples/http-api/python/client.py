"""Publishes over Encke's HTTP API and reads the history, with Python's standard library alone.

ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… python3 client.py
"""

import http.client
import json
import os
import time
import urllib.parse
import uuid

URL = urllib.parse.urlparse(os.environ.get("ENCKE_URL", "http://127.0.0.1:8080"))
KEY = os.environ["ENCKE_API_KEY"]


class Encke:
    """A client on one connection, which stays open."""

    def __init__(self):
        self.connection = http.client.HTTPConnection(URL.hostname, URL.port, timeout=10)

    def call(self, method, path, body=None, **headers):
        headers |= {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
        for attempt in range(5):
            self.connection.request(method, "/api/v1" + path, body and json.dumps(body), headers)
            response = self.connection.getresponse()
            answer = json.load(response)
            if response.status == 200:
                return answer
            if response.status != 503:
                raise RuntimeError(f"{answer['title']}: {answer['detail']} {answer.get('errors', '')}")
            time.sleep(int(response.headers.get("Retry-After", 1)) * (attempt + 1))
        raise RuntimeError("the server is busy")

    def publish(self, channel, data):
        # With a separate key, a message that is sent again is not published twice.
        key = {"Idempotency-Key": str(uuid.uuid4())}
        return self.call("POST", "/publish", {"channel": channel, "data": data}, **key)


encke = Encke()
channel = f"/history/python-{uuid.uuid4().hex[:8]}"
print("publish:", encke.publish(channel, {"price": 42}))
messages = [{"channels": [channel, "/news"], "data": number} for number in range(2)]
print("batch:", encke.call("POST", "/publish/batch", {"messages": messages}))
history = encke.call("GET", "/history?" + urllib.parse.urlencode({"channel": channel}))
print("history:", len(history["messages"]), "messages")
print("channels:", encke.call("GET", "/channels?limit=10")["channels"])
