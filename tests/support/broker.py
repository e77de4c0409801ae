"""An MQTT broker in another process: mosquitto if it is installed, otherwise amqtt."""

import shutil
import socket
import subprocess
import sys
import time
from pathlib import Path

MOSQUITTO = "listener {port} 127.0.0.1\nallow_anonymous true\n"
AMQTT = """
listeners: {{default: {{type: tcp, bind: "127.0.0.1:{port}"}}}}
plugins: {{amqtt.plugins.authentication.AnonymousAuthPlugin: {{allow_anonymous: true}}}}
"""


class Broker:
    """A broker on loopback without accounts, which can be stopped and started again on the same port."""

    def __init__(self, folder: Path):
        with socket.create_server(("127.0.0.1", 0)) as free:
            self.port = free.getsockname()[1]
        # Debian installs it to a folder of root's PATH only
        program = shutil.which("mosquitto") or shutil.which("mosquitto", path="/usr/sbin:/usr/local/sbin")
        config = folder / "broker.conf"
        config.write_text((MOSQUITTO if program else AMQTT).format(port=self.port))
        self._command = [program] if program else [sys.executable, "-m", "amqtt.scripts.broker_script"]
        self._command += ["-c", str(config)]
        self._process: subprocess.Popen | None = None
        self.start()

    def start(self) -> None:
        """Start the broker and wait until it listens."""
        self._process = subprocess.Popen(self._command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                socket.create_connection(("127.0.0.1", self.port), 1).close()
                return
            except OSError:
                time.sleep(0.02)
        raise RuntimeError("the broker does not start")

    def stop(self) -> None:
        """Kill the broker; retained messages are lost."""
        self._process.kill()
        self._process.wait()
