"""A backend behind Encke whose responses Encke holds, with Python's standard library alone.

ENCKE_URL=http://127.0.0.1:8080 ENCKE_API_KEY=… PORT=3000 python3 backend.py
"""

import json
import os
import urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

URL = os.environ.get("ENCKE_URL", "http://127.0.0.1:8080")
KEY = os.environ.get("ENCKE_API_KEY", "")


def publish(data):
    """Publishes an order on the channel /orders: this releases all responses that wait for it."""
    body = json.dumps({"channel": "/orders", "data": data}).encode()
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    urllib.request.urlopen(urllib.request.Request(f"{URL}/api/v1/publish", body, headers), timeout=10).close()


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def answer(self, status, body=b"", **headers):
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_GET(self):
        if self.path == "/orders/next":
            # Encke holds this response. Without an order for 20 seconds it is the one that the client gets.
            hold = {"Grip_Hold": "response", "Grip_Channel": "orders", "Grip_Timeout": "20"}
            self.answer(200, b"null", Content_Type="application/json", **hold)
        elif self.path == "/orders/stream":
            # Encke goes on with this response, a line for each order.
            keep_alive = r"\n; format=cstring; timeout=20"
            self.answer(200, b"orders:\n", Grip_Hold="stream", Grip_Channel="orders", Grip_Keep_Alive=keep_alive)
        else:
            self.answer(404, b"there is nothing here\n")

    def do_POST(self):
        publish(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
        self.answer(204)


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Backend).serve_forever()
