"""Eight tabs of one browser hear what happens by one stream, whichever of them is closed or stopped."""

from contextlib import closing

import pytest

from tests.pipelines.watching.test_watch_browser import Service, begin
from tests.support.browser import until

pytestmark = pytest.mark.long

QUIET = 12_000  # milliseconds after which a tab that hears nothing listens itself
NEWEST = "[...sources.values()][0].newest"


@pytest.fixture
def service(tmp_path):
    with Service(tmp_path) as opened:
        yield opened


@pytest.fixture
def tabs(chromium, service):
    """Eight open tabs of the service's page."""
    with closing(chromium.new_context()) as context:
        pages = [context.new_page() for _ in range(8)]
        for page in pages:
            page.goto(service.server.address, timeout=10_000)
        yield pages


def all_go_on(pages, event: str) -> None:
    """Each shows new decisions, pictures and an event."""
    for page in pages:
        newest = page.evaluate(NEWEST)
        until(page, f"{NEWEST} > {newest + 3}")
        until(page, "document.querySelector('.source img').naturalWidth === 64")
        until(page, f"document.querySelectorAll('[data-id=\"{event}\"]').length === 1")


def leader_of(pages):
    (leader,) = [page for page in pages if page.evaluate("leads")]
    return leader


@pytest.mark.slow
def test_one_tab_listens_for_eight(tabs, service):
    all_go_on(tabs, begin(service).id)
    assert service.site.streams.open == 1
    leader = leader_of(tabs)
    leader.close()
    tabs.remove(leader)
    all_go_on(tabs, begin(service).id)
    assert service.site.streams.open == 1 and leader_of(tabs)


@pytest.mark.slow
def test_a_tab_that_the_browser_stopped_hands_it_over(tabs, service):
    """It holds the lock still, and says no more."""
    leader = leader_of(tabs)
    leader.evaluate("(Object.defineProperty(document, 'hidden', { value: true }), stream.close())")
    leader.wait_for_timeout(QUIET)
    all_go_on([page for page in tabs if page is not leader], begin(service).id)
    until(leader, "!leads")
    assert leader_of(tabs) is not leader and service.site.streams.open == 1
    newest = leader.evaluate(NEWEST)
    until(leader, f"{NEWEST} > {newest}")


@pytest.mark.slow
def test_a_dead_connection_is_opened_again(chromium, service):
    """Its other end is gone without a word, as after a machine slept."""
    with closing(chromium.new_context()) as context:
        page = context.new_page()
        page.goto(service.server.address)
        until(page, "leads && stream !== null")
        page.evaluate("stream.close()")
        newest = page.evaluate(NEWEST)
        page.wait_for_timeout(QUIET)
        until(page, f"{NEWEST} > {newest + 3}")


def test_a_browser_without_locks_listens_in_each_tab(chromium, service):
    with closing(chromium.new_context()) as context:
        context.add_init_script("Object.defineProperty(navigator, 'locks', { value: undefined })")
        pages = [context.new_page() for _ in range(2)]
        for page in pages:
            page.goto(service.server.address)
        all_go_on(pages, begin(service).id)
        assert service.site.streams.open == 2
