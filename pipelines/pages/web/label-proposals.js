/* What a model proposes: outlines in the lanes, a list in an order, and a review of one after the other, its clip in a loop. */
const AROUND = 1; /* seconds of a clip before and after its proposal */
let order = report.orders[0]; /* by which proposals are sorted */
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

/* Load the open proposals, repeatedly while a model searches; called when a search begins. */
async function followProposals() {
  followAgain = true;
  if (following) return;
  following = true;
  while (followAgain || search.is_running) {
    followAgain = false;
    const answer = await fetch("/proposals?order=" + encodeURIComponent(order)).then((got) => got.json()).catch(() => null);
    if (answer) {
      await reach(answer.revision);
      [proposalOrder, search] = [answer.order, answer.search];
      fillLanes();
      draw();
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
}

/* Outlines of open proposals, below the labels; dashed for near misses. */
function fillProposals() {
  const open = Object.entries(proposalsOf()).filter(([key]) => isOpen([chosenVideo, key]));
  for (const lane of lanes) lane.proposals = open.filter(([, { action }]) => action === lane.id);
}
function drawProposals(pen, lane, toX, height, ratio) {
  const colour = colourOf(lane.name);
  for (const [key, proposal] of lane.proposals) {
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
  notify(search.is_running ? "No proposals yet" : search.model ? "No open proposals" : "No proposals: start lstr label with a model (-m)");
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
  draw();
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
  draw();
  redraw();
}
/* The next open proposal, or the previous one; skipped ones come after the last. */
function reviewBeside(way) {
  const at = proposalOrder.findIndex(([video, key]) => video === reviewed.at && key === reviewed.key);
  const round = [...proposalOrder.slice(at + 1), ...proposalOrder.slice(0, Math.max(0, at))];
  const next = way > 0 ? round.find(isOpen) : round.findLast(isOpen);
  if (next) review(next);
  else if (isOpen([reviewed.at, reviewed.key])) notify("No other open proposal");
  else {
    leaveReview();
    notify(noneLeft());
  }
}
const noneLeft = () => (search.is_running ? "No open proposals; the model is still searching" : "No proposals left");
function decide(decision, action = reviewed?.draft.action) {
  if (!reviewed?.ready) return; /* another tab may have been first */
  const { at, key, draft } = reviewed, subject = subjectNow(), made = newKey();
  const label = decision === "accept" ? { ...draft, action, subject, comment: "" } : null;
  if (label) addSubject(subject);
  asked.push({
    make: () => (isOpen([at, key]) ? ["/decide", { decision, video: videos[at].id, key, label_key: made, label }] : null),
    then: () => {
      decidedIn.push(at);
      notify((label ? nameOf(action) + ": " + proposalAt([at, key]).state : nameOf(draft.action) + ": rejected") + (reviewed ? "" : ". " + noneLeft()));
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
  if (after.start >= after.end) return notify("A label must start before its end");
  reviewed.draft = after;
  fitLoop();
  draw();
  return redraw();
}
function resetDraft() {
  const { start, end } = proposalAt([reviewed.at, reviewed.key]), { draft } = reviewed;
  if (draft.start === start && draft.end === end) return leaveReview();
  return changeDraft({ start, end });
}
/* Undo in a review takes back its last decision, in whichever video that was, and shows the proposal again. */
function turnHere(deed) {
  const at = (reviewed && deed === "undo" && decidedIn.pop()) ?? chosenVideo, video = videos[at].id;
  asked.push({ make: () => ["/turn", { deed, video }], then: (entry) => {
    if (!entry) return notify(deed === "undo" ? "Nothing to undo in this video" : "Nothing to redo in this video");
    notify(deed === "undo" ? "Undone" : "Redone");
    const proposal = entry.changes.find(({ kind, after }) => kind === "proposal" && after?.state === "open");
    const label = entry.changes.find(({ kind, after }) => kind === "label" && after);
    if (reviewed && proposal) review([at, proposal.key]);
    else if (label && video === videoId() && !isEditing()) chooseLabel(label.key);
  } });
  sendNext();
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
const isOnShow = ([at, key]) => reviewed?.at === at && reviewed.key === key;
const blurred = (act) => ({ currentTarget }) => { currentTarget.blur(); act(); }; /* so that enter accepts the next one, and presses no button */
function ProposalRow({ place }) {
  const proposal = proposalAt(place), name = nameOf(proposal.action);
  return html`<li><${Button} tabindex="-1" aria-current=${isOnShow(place)} onClick=${blurred(() => review(place))}><${Spot} label=${name} /><span class="cut">${name}</span><span class="cut">${videos[place[0]].id}</span>
    <span class="time">${timeText(proposal.start)}</span><span class="time">${sureText(proposal)}</span><//></li>`;
}
function Proposals() {
  const open = openInOrder(), first = Math.max(0, open.findIndex(isOnShow) - MOST_ROWS / 2), some = open.slice(first, first + MOST_ROWS), left = open.length - first - some.length;
  return html`<section class="card" id="proposals" aria-label="Proposals" hidden=${!open.length && !search.model}>
    <div class="heading">
      <h2 id="proposal-count">${open.length ? countText(open.length, "open proposal") : "No open proposals"}</h2>
      <label>Order <select id="order" onChange=${({ target }) => { order = target.value; target.blur(); followProposals(); }}>${options(report.orders.map((name) => [name]))}</select></label>
      <div class="buttons"><${Button} id="review-them" title="Review one after another (shift R)" disabled=${!open.length} onClick=${blurred(startReview)}>Review<//></div>
    </div>
    <p class="soft" id="search" role="status">${searchText()}</p>
    <ol id="proposal-rows" class="lines">${some.map((place) => html`<${ProposalRow} key=${place.join()} place=${place} />`)}${left > 0 && html`<li class="more">${countText(left, "proposal")} after these</li>`}</ol>
  </section>`;
}
/* What is on show, below the picture. */
function Reviewing() {
  const proposal = reviewed && proposalAt([reviewed.at, reviewed.key]);
  if (!proposal) return null;
  const { draft } = reviewed, isChanged = draft.start !== proposal.start || draft.end !== proposal.end, name = nameOf(draft.action);
  const button = (id, act, title, text, key) => html`<${Button} id=${id} title=${title} onClick=${blurred(act)}>${text}${key && html`<kbd>${key}</kbd>`}<//>`;
  return html`<div id="reviewing" role="group" aria-label="Review of a proposal">
    <p id="review-what" role="status"><${Spot} label=${name} /><b>${name}?</b><span class="time">${clock(draft.start) + " – " + clock(draft.end)}</span></p>
    <p id="review-facts">${(isNearMiss(proposal) ? "Near miss: " : "") + sureText(proposal) + " · " + numberText(openInOrder().length) + " left" + (isChanged ? " · edges changed" : "")}</p>
    <div id="review-acts">
      ${button("review-accept", () => decide("accept"), "Accept (enter); an action's key accepts it as that action", "Accept", "enter")}${button("review-reject", () => decide("reject"), "Reject (delete): nothing happens here", "Reject", "del")}
      ${button("review-skip", () => reviewBeside(1), "The next proposal (↓)", "Skip", "↓")}${button("review-leave", leaveReview, "End the review (escape)", "End")}
    </div>
  </div>`;
}
function searchText() {
  const { model, is_running, done, total, video, share, failed, trouble } = search;
  if (!model) return "";
  const where = video ? ": " + video + ", " + Math.round(100 * share) + " %" : "";
  const parts = [is_running && !video && !done ? "Loading " + model : is_running ? model + " searches the videos (" + done + " of " + total + where + ")" : trouble ? "" : model + " has searched all videos that are not complete"];
  for (const [name, reason] of failed) parts.push(name + " cannot be searched: " + reason);
  return [...parts, trouble].filter(Boolean).join(". ");
}
