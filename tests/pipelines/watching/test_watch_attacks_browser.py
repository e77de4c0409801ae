"""What other pages of a browser, and names that somebody chose, can do to the page of a watching service: nothing."""

import http.server
import threading
from contextlib import contextmanager

import pytest

from lstr.pipelines.watching.recorder import Snooze
from tests.pipelines.watching.test_watch_browser import Service, begin, tab  # noqa: F401
from tests.support.browser import until
from tests.support.watching import HOSTILE, Camera

pytestmark = pytest.mark.long

CLASSES = (
    "Background",
    HOSTILE,
    '"><script>alert(2)</script>',
    "</script><script>alert(3)</script>",
    "{{data}}",
    "\u202e\u2028",
)


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path) as opened:
        yield opened


def test_names_run_nothing(tab, service):  # noqa: F811
    """`tab` fails at the first dialog, word on the console, or request elsewhere."""
    service.dashboard.update_source(
        "hall", address=f"rtsp://x/{HOSTILE}", trouble=f"{HOSTILE}<script>alert(4)</script>"
    )
    camera = Camera(service.dashboard, HOSTILE, CLASSES)
    for _ in range(4):
        camera.show(*(0.1 * k for k in range(len(CLASSES))))
    service.dashboard.show_snoozes([Snooze(HOSTILE, HOSTILE, None)])
    for action in CLASSES[1:]:
        begin(service, HOSTILE, action=action, model=HOSTILE)
    page = tab()
    until(page, f"document.querySelectorAll('.event').length === {len(CLASSES) - 1}")
    until(page, "document.querySelectorAll('.source')[1].querySelectorAll('.lane').length === 5")
    for name in ("by-action", "by-source"):
        page.select_option(f"#{name}", HOSTILE)
    until(page, "document.querySelectorAll('.event').length === 1")
    page.locator(".event .yes").click()
    page.locator(".yes[aria-pressed=true]").wait_for()
    page.locator(".event").focus()
    page.keyboard.press("c")
    page.locator(".menu summary").nth(1).click()
    page.wait_for_timeout(500)
    assert page.locator("main script, main img[onerror]").count() == 0
    assert page.evaluate("document.querySelector('#snoozes li').textContent").startswith(HOSTILE)


@contextmanager
def another_site(text: str):
    """A page on another port of this machine, to which a browser sends the cookies of this one."""

    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(text.encode())

        def log_message(self, *_):
            pass

    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), Page) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/"
        server.shutdown()


def test_another_site_does_nothing_and_sees_nothing(chromium, service):
    own = f"http://127.0.0.1:{service.server.port}"
    event = begin(service)
    page_of = f"""<!doctype html><iframe name=sink></iframe>
<form id=a method=post enctype=text/plain target=sink action="{own}/source/hall/pause">
  <input name='{{"a":"' value='"}}'></form>
<form id=b method=post target=sink action="{own}/event/{event.id}/verdict"><input name=verdict value=right></form>
<iframe id=framed src="{own}/"></iframe><img id=seen src="{own}/picture/hall">"""
    context = chromium.new_context()
    page = context.new_page()
    page.goto(service.server.address)
    until(page, "document.querySelector('.source img')?.naturalWidth === 64")
    with another_site(page_of) as address:
        other = context.new_page()
        changes = []
        other.on("response", lambda answer: changes.append(answer) if answer.request.method == "POST" else None)
        other.goto(address)
        other.evaluate("for (const form of document.forms) form.submit()")
        tried = other.evaluate(
            f"""async () => {{
              const json = {{ "Content-Type": "application/json" }}, cookie = {{ credentials: "include" }};
              const tries = [
                fetch("{own}/source/hall/pause", {{ method: "POST", body: "{{}}", headers: json, ...cookie }}),
                fetch("{own}/snooze", {{ method: "POST", body: "{{}}", mode: "no-cors", ...cookie }}),
                fetch("{own}/state", cookie), fetch("{own}/metrics"),
              ];
              const found = await Promise.allSettled(tries);
              return found.map(({{ status, value }}) => status === "fulfilled" && value.type !== "opaque");
            }}"""
        )
        heard = other.evaluate(
            f"""() => new Promise((done) => {{
              const stream = new EventSource("{own}/stream?after=x", {{ withCredentials: true }});
              stream.onerror = () => done("nothing");
              stream.onopen = () => done("all");
            }})"""
        )
        assert tried == [False] * 4 and heard == "nothing"
        assert other.evaluate("document.querySelector('#seen').naturalWidth") == 0
        assert not [frame for frame in other.frames if frame.url.startswith(own) and "hall" in frame.content()]
    assert service.calls.done == [] and service.dashboard.history.find(event.id).verdict == ""
    assert changes and all(answer.status == 403 for answer in changes)
    context.close()
