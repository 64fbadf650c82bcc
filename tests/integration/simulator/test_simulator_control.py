"""Commands for the simulator go to that of the state folder."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

from core.config.model import HealthOptions
from core.paths import CHECKOUT
from ops.deployment import Running
from tests.states import claimed


def test_simulator_of_the_state_folder_is_addressed(tmp_path: Path) -> None:
    state = claimed(tmp_path)

    class Control(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = self.rfile.read(int(self.headers["Content-Length"]))
            self.send_response(200)
            self.end_headers()
            self.wfile.write(asked)

    with HTTPServer(("127.0.0.1", 0), Control) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        Running("demo", HealthOptions(port=server.server_port + 1), ()).save(state)
        environment = {**os.environ, "PLANTLOG_STATE": str(tmp_path), "PYTHONPATH": str(CHECKOUT)}
        command = [
            sys.executable,
            "-P",
            "-m",
            "ops",
            "lab",
            "simulator",
            "fault",
            "plc",
            "stop_answering",
            "--seconds",
            "20",
        ]
        run = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        server.shutdown()
    assert run.returncode == 0, run.stderr
    assert json.loads(run.stdout) == {"target": "plc", "fault": "stop_answering", "seconds": 20.0, "value": None}
