/* What a model proposes: outlines in the lanes, a list in an order, and a review of one after the other, its clip in a loop. */
const AROUND = 1; /* seconds of a clip before and after its proposal */
let proposalOrder = [], search = { model: "", is_running: false }; /* [place of its video, id] each; how far the search is */
let reviewed = null; /* the proposal on show: {at, key, draft: {action, start, end}, ready} */
let following = false, followAgain = false;
const decidedIn = []; /* places of videos: decisions of this review, the last one last */

const proposalsOf = (id = videoId()) => held.proposal[id] || {};
const proposalAt = ([at, key]) => proposalsOf(videos[at].id)[key];
const isOpen = (place) => proposalAt(place)?.state === "open" && Boolean(held.action[proposalAt(place).action]);
const openInOrder = () => proposalOrder.filter(isOpen);
const draftOf = (key) => (reviewed && reviewed.key === key && reviewed.at === chosenVideo ? reviewed.draft : null);
const isNearMiss = ({ peak, threshold }) => peak < threshold;

/* Asks which proposals wait, and while a model looks for more, again and again; whoever begins a search calls it. */
async function followProposals() {
  followAgain = true;
  if (following) return;
  following = true;
  while (followAgain || search.is_running) {
    followAgain = false;
    const answer = await fetch("/proposals?order=" + encodeURIComponent($("order").value)).then((got) => got.json()).catch(() => null);
    if (answer) {
      await reach(answer.revision);
      [proposalOrder, search] = [answer.order, answer.search];
      showProposals();
    }
    if (!followAgain && (search.is_running || !answer)) await pause(answer ? 700 : 2000);
  }
  following = false;
}
function proposalsChanged(changes) {
  const wait = search.model || proposalOrder.length, isAbout = ({ kind }) => kind === "search" || kind === "proposal" || (wait && kind !== "subject");
  if (!changes.some(isAbout)) return;
  followProposals();
  if (reviewed && !isOpen([reviewed.at, reviewed.key])) reviewBeside(1);
  else showProposals();
}

/* Outlines of what waits, below the labels; of near misses broken ones. */
function fillProposals() {
  const open = Object.entries(proposalsOf()).filter(([key]) => isOpen([chosenVideo, key]));
  for (const lane of lanes) lane.proposals = open.filter(([, { action }]) => action === lane.id);
}
function drawProposals(pen, lane, toX, height, ratio) {
  const colour = colourOf(names[lane.index]);
  for (const [key, proposal] of lane.proposals ?? []) {
    const draft = draftOf(key), { start, end } = dragged?.key === key ? dragged : draft ?? proposal;
    if (end < view[0] || start > view[1]) continue;
    const left = toX(start), wide = Math.max(LEAST_BAR * ratio, toX(end) - left), inset = 3 * ratio;
    pen.beginPath();
    pen.roundRect(left, inset, wide, height - 2 * inset, 3 * ratio);
    pen.fillStyle = theme.card;
    pen.fill();
    pen.globalAlpha = draft ? 0.34 : 0.16;
    pen.fillStyle = colour;
    pen.fill();
    pen.globalAlpha = 1;
    pen.strokeStyle = draft ? theme.ink : colour;
    pen.lineWidth = (draft ? 2 : 1.5) * ratio;
    if (isNearMiss(proposal)) pen.setLineDash([4 * ratio, 3 * ratio]);
    pen.stroke();
    pen.setLineDash([]);
  }
}

/* The review. */
function startReview() {
  const [first] = openInOrder();
  if (first) return review(first);
  tell(search.is_running ? "No proposal waits yet" : search.model ? "No proposal waits" : "No proposal waits: lstr label VIDEOS -m MODEL makes some");
  return null;
}
async function review([at, key]) {
  const { action, start, end } = proposalAt([at, key]), mine = { at, key, draft: { action, start, end }, ready: false };
  [reviewed, chosen, loop] = [mine, null, null];
  if (at !== chosenVideo) await goVideo(at);
  if (reviewed !== mine) return;
  mine.ready = true;
  fitLoop();
  const [from, to] = loop, span = Math.max(20, 3 * (to - from));
  if (from < view[0] || to > view[1] || view[1] - view[0] > 12 * span) look((from + to - span) / 2, span);
  setRate(0);
  seek(from);
  if (times.length > 1) setRate(speed());
  showChosen();
  showProposals();
  redraw();
}
function fitLoop() {
  const { start, end } = reviewed.draft;
  loop = [Math.max(0, start - AROUND), Math.min(duration, end + AROUND)];
}
function leaveReview() {
  if (!reviewed) return;
  reviewed = loop = null;
  decidedIn.length = 0;
  setRate(0);
  showProposals();
  redraw();
}
/* The next one that waits, or the one before; after the last come those that were passed over. */
function reviewBeside(way) {
  const at = proposalOrder.findIndex(([video, key]) => video === reviewed.at && key === reviewed.key);
  const round = [...proposalOrder.slice(at + 1), ...proposalOrder.slice(0, Math.max(0, at))];
  const next = way > 0 ? round.find(isOpen) : round.findLast(isOpen);
  if (next) review(next);
  else if (isOpen([reviewed.at, reviewed.key])) tell("No other proposal waits");
  else {
    leaveReview();
    tell(noneLeft());
  }
}
const noneLeft = () => (search.is_running ? "No proposal waits now; the model goes on looking" : "No proposal is left");
function decide(decision, action = reviewed?.draft.action) {
  if (!reviewed?.ready) return; /* another tab may have been first */
  const { at, key, draft } = reviewed, subject = subjectNow(), made = newKey();
  const label = decision === "accept" ? { ...draft, action, subject, comment: "" } : null;
  if (label) addSubject(subject);
  asked.push({
    make: () => (isOpen([at, key]) ? ["/decide", { decision, video: videos[at].id, key, label_key: made, label }] : null),
    then: () => {
      decidedIn.push(at);
      tell((label ? nameOf(action) + ": " + proposalAt([at, key]).state : nameOf(draft.action) + ": rejected") + (reviewed ? "" : ". " + noneLeft()));
    },
  });
  sendNext();
}
/* The button of a lane does what its key does: in a review it decides. */
function pressAction(action, button) {
  if (!reviewed) return toggleAction(action);
  button.blur(); /* so that enter accepts the next one, and presses no button */
  return action === nothing ? decide("reject") : decide("accept", action);
}
function changeDraft(changes) {
  if (refusedWhileOpening()) return null;
  const after = { ...reviewed.draft, ...changes };
  if (after.start >= after.end) return tell("A label starts before it ends");
  reviewed.draft = after;
  fitLoop();
  showProposals();
  return redraw();
}
function resetDraft() {
  const { start, end } = proposalAt([reviewed.at, reviewed.key]), { draft } = reviewed;
  if (draft.start === start && draft.end === end) return leaveReview();
  return changeDraft({ start, end });
}
/* Undo in a review takes back its last decision, in whichever video that was, and shows the proposal again. */
function turnHere(deed) {
  const at = (reviewed && deed === "undo" && decidedIn.pop()) ?? chosenVideo;
  turn(deed, videos[at].id, (entry) => {
    const change = entry.changes.find(({ kind, after }) => kind === "proposal" && after?.state === "open");
    if (!reviewed || !change) return false;
    review([at, change.key]);
    return true;
  });
}
function reviewKey({ key: pressed, repeat }, action) {
  if (pressed === "R" && !action) return reviewed ? leaveReview : startReview;
  if (!reviewed) return null;
  const once = (act) => (repeat ? () => {} : act), reject = once(() => decide("reject"));
  if (action) return once(() => decide("accept", action));
  const keys = {
    Enter: once(() => decide("accept")), Delete: reject, Backspace: reject, n: reject, Escape: resetDraft,
    ArrowDown: () => reviewBeside(1), ArrowUp: () => reviewBeside(-1), "[": () => changeDraft({ start: now }), "]": () => changeDraft({ end: endNow() }),
  };
  return keys[pressed] ?? null;
}

/* The card with the list, and the bar below the picture. */
const timeText = (time) => clockText(time, 1, time >= 3600);
const sureText = (proposal) => proposal.peak.toFixed(2) + (isNearMiss(proposal) ? " < " : " ≥ ") + proposal.threshold.toFixed(2);
function showProposals() {
  const open = openInOrder(), isHere = ([at, key]) => reviewed?.at === at && reviewed.key === key;
  $("proposals").hidden = !open.length && !search.model;
  $("proposal-count").textContent = open.length ? countText(open.length, "proposal") : "No proposal waits";
  $("review-them").disabled = !open.length;
  $("search").textContent = searchText();
  const first = Math.max(0, open.findIndex(isHere) - MOST_ROWS / 2), some = open.slice(first, first + MOST_ROWS);
  $("proposal-rows").replaceChildren(...some.map((place) => {
    const item = make("li"), row = make("button"), proposal = proposalAt(place), name = nameOf(proposal.action);
    row.type = "button";
    row.tabIndex = -1;
    row.setAttribute("aria-current", String(isHere(place)));
    row.append(spot(name, "spot"), make("span", "cut", name), make("span", "cut", videos[place[0]].id), make("span", "time", timeText(proposal.start)), make("span", "time", sureText(proposal)));
    row.addEventListener("click", () => { row.blur(); review(place); });
    item.append(row);
    return item;
  }), ...(open.length > first + some.length ? [make("li", "more", countText(open.length - first - some.length, "proposal") + " after these")] : []));
  const row = $("proposal-rows").querySelector('[aria-current="true"]');
  if (row) $("proposal-rows").scrollTop = row.offsetTop - $("proposal-rows").clientHeight / 2;
  fillProposals();
  showReview(open.length);
}
function showReview(left) {
  const proposal = reviewed && proposalAt([reviewed.at, reviewed.key]);
  $("reviewing").hidden = !proposal;
  if (!proposal) return;
  const { draft } = reviewed, isChanged = draft.start !== proposal.start || draft.end !== proposal.end, name = nameOf(draft.action);
  $("review-what").replaceChildren(spot(name, "spot"), make("b", "", name + "?"), make("span", "time", clock(draft.start) + " – " + clock(draft.end)));
  $("review-facts").textContent = (isNearMiss(proposal) ? "Near miss: " : "") + sureText(proposal) + " · " + numberText(left) + " left" + (isChanged ? " · edges changed" : "");
}
function searchText() {
  const { model, is_running, done, total, video, share, failed, trouble } = search;
  if (!model) return "";
  const where = video ? ": " + video + ", " + Math.round(100 * share) + " %" : "";
  const parts = [is_running && !video && !done ? model + " is being loaded" : is_running ? model + " looks through the videos (" + done + " of " + total + where + ")" : trouble ? "" : model + " has looked through all videos that are not complete"];
  for (const [name, reason] of failed) parts.push("Not in " + name + ": " + reason);
  return [...parts, trouble].filter(Boolean).join(". ");
}
function buildProposals() {
  $("order").replaceChildren(...report.orders.map((name) => option(name)));
  $("order").addEventListener("change", () => { $("order").blur(); followProposals(); });
  const acts = {
    "review-them": startReview, "review-accept": () => decide("accept"), "review-reject": () => decide("reject"),
    "review-skip": () => reviewBeside(1), "review-leave": leaveReview,
  };
  for (const [id, act] of Object.entries(acts)) $(id).addEventListener("click", () => { $(id).blur(); act(); });
  showProposals();
  followProposals();
}
