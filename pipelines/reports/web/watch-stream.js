/* What happens is heard by server-sent events; a page that slept is told what it missed, or reads all of it anew.
   A browser has six connections to a host, and a stream keeps one for as long as its tab is open. So one tab of a browser
   listens and the others hear from it: the one that holds a lock. The lock passes on when its tab is closed, and a tab
   that somebody looks at takes it where nothing is heard, for browsers stop tabs that nobody sees. */
const QUIET = 12000; /* milliseconds; the service says something every 5 s at least */
const channel = "lstr " + new URL("stream", location).pathname;
const air = navigator.locks && self.BroadcastChannel ? new BroadcastChannel(channel) : null; /* none without https */
let stream = null, retry = 0, mark = "", kept = null, leads = !air, heardAt = Date.now(), queue = null;
const runOf = (at) => at.split("-")[0];
const tellTabs = (told) => { if (leads) air?.postMessage(told); };

/* The state of all sources: what came while it was on its way is kept, and heard after it. */
async function readAnew() {
  if (kept) return;
  kept = [];
  clearTimeout(retry);
  const answer = await fetch("state").catch(() => null), state = answer?.ok ? await answer.json().catch(() => null) : null;
  const missed = kept;
  kept = null;
  if (!state) return failed(answer?.status);
  readAll(state);
  missed.filter(({ to }) => runOf(to) === runOf(mark)).forEach(readPiece);
}
function failed(status) {
  showBroken(status);
  tellTabs({ broken: status });
  clearTimeout(retry);
  retry = setTimeout(() => { tellTabs({ anew: true }); readAnew(); }, 5000);
}
function showBroken(status) {
  $("broken").textContent = status === 403 ? "This page is no longer allowed: open the address that the service has printed."
    : "The service does not answer. This page goes on when it does.";
  $("broken").hidden = false;
}
/* Messages that end at a mark RUN-NUMBER, as the stream has them; those that are known already are passed over. */
function readPiece({ to, data }) {
  if (kept) return kept.push({ to, data });
  const messages = JSON.parse(data), missing = to.split("-")[1] - mark.split("-")[1];
  if (runOf(to) !== runOf(mark) || missing > messages.length) return readAnew();
  if (missing <= 0) return;
  mark = to;
  for (const message of messages.slice(-missing)) {
    if (message.kind === "anew") return readAnew();
    hear[message.kind](message);
  }
}
function goOn(at) {
  mark = at;
  if (leads && !stream) listen();
}
function listen() {
  const opened = stream = new EventSource("stream?after=" + encodeURIComponent(mark));
  const on = (kind, hears) => opened.addEventListener(kind, (event) => { if (opened === stream) hears(event); });
  const over = () => { opened.close(); stream = null; };
  const pass = (told) => { hearTab(told); tellTabs(told); };
  on("open", () => pass({ beat: true }));
  on("beat", () => pass({ beat: true }));
  on("message", ({ lastEventId, data }) => pass({ piece: { to: lastEventId, data } }));
  on("anew", () => { over(); pass({ anew: true }); });
  on("error", () => {
    if (opened.readyState === EventSource.CLOSED) { over(); failed(); } else pass({ broken: 0 });
  });
}
/* What the tab that listens has told. */
function hearTab({ piece, anew, broken }) {
  heardAt = Date.now();
  if (broken !== undefined) return showBroken(broken);
  $("broken").hidden = true;
  if (anew) readAnew(); else if (piece) readPiece(piece);
}
function queueUp(options) {
  let held = false;
  const lead = () => {
    held = leads = true;
    if (!kept) goOn(mark);
    return new Promise(() => {});
  };
  navigator.locks.request(channel, options, lead).catch(({ name }) => {
    if (!held && name !== "AbortError") lead(); /* this browser gives it no lock */
    if (name !== "AbortError" || !held) return;
    leads = false; /* another tab has taken it */
    stream?.close();
    stream = null;
    waitInLine();
  });
}
function waitInLine() {
  queue = new AbortController();
  queueUp({ signal: queue.signal });
}
if (air) {
  air.addEventListener("message", ({ data }) => { if (!leads) hearTab(data); });
  waitInLine();
}
/* Nothing is heard, and somebody looks: the tab that listens was stopped, or a connection is dead that nobody has closed. */
setInterval(() => {
  if (document.hidden || Date.now() - heardAt < QUIET) return;
  heardAt = Date.now();
  if (!leads) {
    queue.abort();
    queueUp({ steal: true });
  } else if (stream) {
    stream.close();
    listen();
  }
}, 1000);
