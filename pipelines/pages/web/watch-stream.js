/* What happens is heard by server-sent events; a page that slept is told what it missed, or reads all of it anew. */
const QUIET = 12000; /* milliseconds; the service says something every 5 s at least */
let stream = null, retry = 0, mark = "", kept = null, heardAt = Date.now();
const runOf = (at) => at.split("-")[0];

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
  clearTimeout(retry);
  retry = setTimeout(readAnew, 5000);
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
  if (!stream) listen();
}
function listen() {
  const opened = stream = new EventSource("stream?after=" + encodeURIComponent(mark));
  const on = (kind, hears) => opened.addEventListener(kind, (event) => {
    if (opened !== stream) return;
    heardAt = Date.now();
    $("broken").hidden = true;
    hears(event);
  });
  const over = () => { opened.close(); stream = null; };
  on("open", () => {});
  on("beat", () => {});
  on("message", ({ lastEventId, data }) => readPiece({ to: lastEventId, data }));
  on("anew", () => { over(); readAnew(); });
  on("error", () => {
    if (opened.readyState === EventSource.CLOSED) { over(); failed(); } else showBroken();
  });
}
/* Nothing is heard, and somebody looks: the connection is dead, and nobody has closed it. */
setInterval(() => {
  if (document.hidden || !stream || Date.now() - heardAt < QUIET) return;
  heardAt = Date.now();
  stream.close();
  listen();
}, 1000);
