"""`make demo`: the shop app and its traffic together, until Ctrl-C."""

import argparse
import signal
import subprocess
import sys
import threading
import webbrowser
from pathlib import Path

HERE = Path(__file__).parent


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--http", default="127.0.0.1:8080")
    options.add_argument("--rate", type=int, default=200, help="clicks a second")
    given = options.parse_args()
    url = f"http://{given.http}"
    headwater = Path(sys.executable).with_name("headwater")
    # In sessions of their own: Ctrl-C reaches this process alone, which then stops them in order.
    app = subprocess.Popen([headwater, "run", HERE / "shop.py", "--http", given.http], start_new_session=True)
    traffic = subprocess.Popen(
        [sys.executable, HERE / "traffic.py", "--url", url, "--rate", str(given.rate)], start_new_session=True
    )
    stop = threading.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, lambda *_: stop.set())
    print(
        f"Open {url}/console/ and watch; Ctrl-C stops. Data stays in demo-data: the next start goes on there.",
        flush=True,
    )
    if sys.stdout.isatty():
        webbrowser.open(f"{url}/console/")
    while not stop.wait(0.2) and app.poll() is None:
        pass
    traffic.terminate()
    app.send_signal(signal.SIGINT)
    traffic.wait()
    code = app.wait()
    print("stopped" if code == 0 else f"the app ended with code {code}", flush=True)
    return code


if __name__ == "__main__":
    sys.exit(main())
