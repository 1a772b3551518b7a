"""An application beside Encke in Python: names users, protects channels, changes messages and answers a service."""
import base64, hashlib, hmac, json, os, re, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

KEY = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))


def is_signed(headers, body):
    """True if Encke signed this body at most five minutes ago."""
    event, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
    digest = hmac.new(KEY, f"{event}.{seconds}.".encode() + body, hashlib.sha256).digest()
    expected = "v1," + base64.b64encode(digest).decode()
    signatures = headers.get("webhook-signature", "").split(" ")
    return abs(time.time() - int(seconds)) < 300 and any(hmac.compare_digest(one, expected) for one in signatures)


def answer(kind, data):
    user, channel = data.get("user", ""), data.get("channel", "")
    if kind == "handshake":  # The client sends its name in `ext`. A real application checks a password or a cookie here.
        name = data.get("ext", {}).get("name", "")
        return {"allow": bool(re.fullmatch(r"\w+", name)), "user": name, "code": 401, "reason": "name_required"}
    if kind == "subscribe":  # Everyone may read /public/…, and each user one private channel.
        if channel.startswith("/public/") or channel == f"/private/{user}":
            return {"allow": True}
        return {"allow": False, "reason": "not_yours"}
    if kind == "publish":  # Adds the publisher to each message.
        return {"allow": True, "data": {"text": data["data"]["text"], "by": user}}
    if kind == "service":  # Answers the caller, and publishes to everyone.
        return {"reply": {"hello": user}, "actions": [{"publish": {"channel": "/public/greeted", "data": {"user": user}}}]}
    print(kind, data["session"], user, data.get("reason", ""), flush=True)
    return {}


class Backend(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # Keeps connections open.
    disable_nagle_algorithm = True

    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        signed = is_signed(self.headers, body)
        event = json.loads(body) if signed else {}
        text = json.dumps(answer(event["type"], event["data"])).encode() if signed else b""
        self.send_response(200 if signed else 401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *_):
        pass


server = ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), Backend)
print(f"listening on http://127.0.0.1:{server.server_port}/", flush=True)
server.serve_forever()
