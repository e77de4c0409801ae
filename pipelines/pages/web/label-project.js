/* The values of the project, as the server has ordered their changes; one change after the other goes there. */
const { videos, nothing } = report;
const held = { label: report.labels, proposal: report.proposals, search: {}, about: report.abouts, action: report.actions, subject: report.subjects };
let revision = report.revision, early = new Map(); /* entries that came before their predecessors */
const asked = []; /* changes to send: functions that make them from the current values when their turn comes */
let sending = false;

const videoId = () => videos[chosenVideo].id;
const labelsOf = (id = videoId()) => held.label[id] || {};
const aboutOf = (id = videoId()) => held.about[id] || { complete: false, comment: "", subset: "" };
const byVideo = ["label", "proposal"], oneOfVideo = ["about", "search"]; /* kinds: of many values by video and key, of one */
const valueAt = ({ kind, video, key }) => (byVideo.includes(kind) ? held[kind][video]?.[key] : held[kind][oneOfVideo.includes(kind) ? video : key]) ?? null;

function putValue({ kind, video, key, after }) {
  const home = byVideo.includes(kind) ? (held[kind][video] ??= {}) : held[kind], name = oneOfVideo.includes(kind) ? video : key;
  if (after === null) delete home[name]; else home[name] = after;
}
function takeEntry(entry) {
  if (entry.revision > revision) early.set(entry.revision, entry);
  const taken = [];
  for (let next = early.get(revision + 1); next; next = early.get(revision + 1)) {
    early.delete(next.revision);
    next.changes.forEach(putValue);
    revision = next.revision;
    taken.push(...next.changes);
  }
  if (taken.length) projectChanged(taken);
}

/* Asks for changes: `make` gives [{kind, video, key, after}], or null to ask for nothing. */
function ask(make, then = () => {}) {
  asked.push({ make: () => {
    const changes = make();
    return changes && changes.length ? ["/change", { changes: changes.map((change) => ({ video: "", key: "", ...change, before: valueAt({ video: "", key: "", ...change }) })) }] : null;
  }, then });
  sendNext();
}
async function sendNext() {
  if (sending || !asked.length) return;
  sending = true;
  const job = asked[0];
  /* after a conflict with another tab the change is made again from the current values */
  for (let tries = 0, sent = job.make(); sent && (await send(...sent, job, tries < MOST_TRIES)); tries++) sent = job.make();
  asked.shift();
  sending = false;
  sendNext();
}
const MOST_TRIES = 20, pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
/* Until this page has all changes up to a revision; they come by the stream of events. */
async function reach(wanted) {
  for (let waited = 0; revision < wanted && waited < 10000; waited += 20) await pause(20);
}
/* Until the server has answered, which knows a change that comes a second time by its id; whether it was overtaken. */
async function send(address, content, job, again) {
  const body = JSON.stringify({ id: crypto.randomUUID(), ...content }), made = revision;
  for (;;) {
    try {
      const answer = await fetch(address + "?project=" + report.project, { method: "POST", headers: { "content-type": "application/json" }, body });
      if (answer.status === 403) {
        /* where the browser gets a token that holds, in another tab, this one goes on */
        showUnsaved("Not saved yet: lstr label serves other labels, or has a new token. Keep this page open, and open the printed address in another tab.");
        await pause(1000);
        continue;
      }
      const { entry, trouble, error, hint, revision: newest } = await answer.json();
      if (error && again && newest > made) {
        await reach(newest);
        return true;
      }
      showUnsaved(trouble ? "The last changes are only in the journal: " + trouble : "");
      if (error && answer.status === 500) showUnsaved("Not saved: " + inOneLine(error, hint));
      else if (error) { notify(inOneLine(error, hint)); draw(); }
      else {
        if (entry) takeEntry(entry);
        if (entry) await reach(entry.revision);
        job.then(entry);
      }
      return false;
    } catch {
      showUnsaved("Not saved yet: no answer. Is lstr label still running? Keep this page open.");
      await pause(500);
    }
  }
}
function listen() {
  const events = new EventSource("/events?since=" + revision + "&project=" + report.project);
  events.addEventListener("message", ({ data }) => takeEntry(JSON.parse(data)));
  events.addEventListener("restart", () => location.reload());
  events.addEventListener("training", ({ data }) => showTraining(JSON.parse(data)));
  events.addEventListener("open", () => { if (!asked.length) showUnsaved(""); });
  events.addEventListener("error", () => {
    showUnsaved("No answer: is lstr label still running?");
    if (events.readyState === EventSource.CLOSED) pause(1000).then(listen); /* it was refused, for good */
  });
}
let unsavedText = ""; /* why changes are not saved yet */
function showUnsaved(text) {
  if (text === unsavedText) return;
  unsavedText = text;
  draw();
}
const newKey = () => crypto.randomUUID().slice(0, 13);
