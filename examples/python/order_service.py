"""An order service beside Encke: webhooks name its traders and take orders, the HTTP API publishes trades and reads them again."""
import base64, hashlib, hmac, json, os, time, urllib.error, urllib.request
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET = base64.b64decode(os.environ["WEBHOOK_SECRET"].removeprefix("whsec_"))
API = os.environ.get("ENCKE_URL", "http://127.0.0.1:8080") + "/api/v1"


def is_signed(headers, body):
    """True if Encke signed this body at most five minutes ago."""
    event, seconds = headers.get("webhook-id", ""), headers.get("webhook-timestamp", "0")
    digest = hmac.digest(SECRET, f"{event}.{seconds}.".encode() + body, hashlib.sha256)
    expected = "v1," + base64.b64encode(digest).decode()
    signatures = headers.get("webhook-signature", "").split()
    return abs(time.time() - int(seconds)) < 300 and any(hmac.compare_digest(one, expected) for one in signatures)


def call(path, body=None, **headers):
    headers |= {"Authorization": f"Bearer {os.environ['ENCKE_API_KEY']}", "Content-Type": "application/json"}
    request = urllib.request.Request(API + path, body and json.dumps(body).encode(), headers)
    try:
        with urllib.request.urlopen(request, timeout=5) as response:
            return json.load(response)
    except urllib.error.HTTPError as error:
        if error.code != 404:
            raise
        return {"messages": []}  # A channel without messages has no history.


def answer(kind, event, data):
    channel, own = data.get("channel"), f"/orders/{data.get('user')}"
    if kind == "handshake":  # A real service checks a password or a cookie.
        name = data.get("ext", {}).get("name", "")
        return {"allow": name.isascii() and name.isalnum(), "user": name, "code": 401, "reason": "name_required"}
    if kind == "subscribe":
        return {"allow": channel in ("/trades", own), "reason": "not_yours"}
    if channel == "/service/buy":  # A retry of the event has the same id, so it publishes nothing twice.
        order = {"item": str(data["data"]["item"]), "count": int(data["data"]["count"])}
        messages = [{"channels": ["/trades"], "data": order}, {"channels": [own], "data": order}]
        published = call("/publish/batch", {"messages": messages}, **{"Idempotency-Key": event})
        return {"reply": {"order": published["positions"][-1]["offset"]}}
    if channel == "/service/orders":
        return {"reply": [each["message"]["data"] for each in call(f"/history?channel={own}")["messages"]]}
    return {"allow": False, "reason": "only_the_service_publishes"} if kind == "publish" else {}


class OrderService(BaseHTTPRequestHandler):
    def do_POST(self):
        body = self.rfile.read(int(self.headers["content-length"]))
        status, event = (200, json.loads(body)) if is_signed(self.headers, body) else (401, None)
        try:
            result = event and answer(event["type"], event["id"], event["data"])
        except (AttributeError, KeyError, TypeError, ValueError, urllib.error.HTTPError) as error:
            result = {"failure": str(error)} if event["type"] == "service" else {"allow": False, "reason": "not_valid"}
        self.send_response(status)
        self.end_headers()
        self.wfile.write(json.dumps(result).encode())


ThreadingHTTPServer(("127.0.0.1", int(os.environ.get("PORT", "3000"))), OrderService).serve_forever()
