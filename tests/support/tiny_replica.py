"""A real but tiny replica program for tests of what starts and watches replicas: no model, starts in milliseconds.

It is told how to behave through its environment: TINY_FAIL (write this failure and exit 3), TINY_EXIT (exit with this
status at once), TINY_WAIT_FOR (ready once this file exists), TINY_STUBBORN (ignore SIGTERM), TINY_CHILD (start a
child in the same process group), TINY_CONCURRENCY, TINY_PRINT, TINY_SLEEP_S (how long an answer to a POST takes).
"""

import json
import os
import signal
import socketserver
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler
from pathlib import Path

folder = Path(sys.argv[1])
spec = json.loads((folder / "spec.json").read_bytes())
environ = os.environ
draining = threading.Event()


class Handler(BaseHTTPRequestHandler):
    timeout = 2  # of a connection on which nobody asks

    def do_GET(self) -> None:
        waited_for = environ.get("TINY_WAIT_FOR")
        state = "draining" if draining.is_set() else "ready"
        if waited_for and not Path(waited_for).exists():
            state = "starting"
        status = {"state": state, "detail": "waiting", "max_concurrency": int(environ.get("TINY_CONCURRENCY", "1"))}
        body = json.dumps(status | {"runtime": "tiny"}).encode()
        self.send_response(200 if state == "ready" else 503)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("content-length", "0")))
        time.sleep(float(environ.get("TINY_SLEEP_S", "0")))
        body = json.dumps({"predictions": [os.getpid()]}).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def address_string(self) -> str:
        return "unix"

    def log_message(self, *_: object) -> None:
        pass


class Server(socketserver.ThreadingMixIn, socketserver.UnixStreamServer):
    request_queue_size = 128


def end(*_: object) -> None:
    draining.set()
    threading.Thread(target=server.shutdown).start()


def follow_lifeline() -> None:
    os.read(int(environ["STEELYARD_LIFELINE_FD"]), 1)
    end()


print(environ.get("TINY_PRINT", f"tiny replica {spec['id']}"), flush=True)
if "TINY_FAIL" in environ:
    (folder / "failure.json").write_text(json.dumps({"code": "MODEL_LOAD_FAILED", "message": environ["TINY_FAIL"]}))
    sys.exit(3)
if "TINY_EXIT" in environ:
    sys.exit(int(environ["TINY_EXIT"]))
if "TINY_CHILD" in environ:
    subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
server = Server(spec["address"].removeprefix("unix:"), Handler)
signal.signal(signal.SIGTERM, signal.SIG_IGN if "TINY_STUBBORN" in environ else end)
if int(environ.get("STEELYARD_LIFELINE_FD", "-1")) >= 0:
    threading.Thread(target=follow_lifeline, daemon=True).start()
server.serve_forever(poll_interval=0.05)
server.server_close()  # waits for what is being answered
