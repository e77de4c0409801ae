/* The list of detected segments, and of labels that nothing found. Only the rows in sight are elements. */
let entries = [], chosen = -1;
const drawn = new Map(); /* index to element */

const signed = (seconds) => (seconds < 0 ? "−" : "+") + Math.abs(seconds).toFixed(2) + " s";
function lateText({ item, lost }) {
  if (lost) return "missed";
  if (item.match) return item.announced === undefined ? "found" : signed(item.announced - item.match.start);
  return isFalse(item) ? "false alarm" : "–";
}
const STILL_ON = "still on when the video ended";
function spoken(entry) {
  const where = entry.label + ", " + clock(entry.start) + " to " + clock(entry.end) + (entry.still_on ? ", " + STILL_ON : "");
  if (entry.lost) return where + ", labelled, missed";
  const parts = [where, "score " + scoreText(entry.score)], { match, announced } = entry.item;
  if (announced !== undefined) parts.push("announced " + (announced - entry.start).toFixed(2) + " seconds after its start");
  if (match && announced !== undefined) parts.push(signed(announced - match.start).replace(" s", " seconds") + " from the label's start");
  if (!match) parts.push(lateText(entry) === "–" ? "not marked" : "false alarm");
  else if (!wasLabelled) parts.push("marked right");
  return parts.join(", ");
}

/* By what the list is sorted. */
const sorting = { key: "start", descending: false };
const sortValue = {
  label: (entry) => entry.label, start: (entry) => entry.start, end: (entry) => entry.end, span: (entry) => entry.end - entry.start,
  announced: (entry) => (entry.announced === undefined ? Infinity : entry.announced - entry.start),
  late: (entry) => (entry.lost ? 2e9 : !entry.item.match ? 1e9 : (entry.announced ?? 0) - entry.item.match.start),
  mean: (entry) => entry.score ?? -1,
};
function sortEntries() {
  const value = sortValue[sorting.key], turn = sorting.descending ? -1 : 1;
  entries.sort((one, other) => {
    const [first, second] = [value(one), value(other)];
    const order = typeof first === "string" ? first.localeCompare(second, "en", { numeric: true }) : first === second ? 0 : first - second;
    return order * turn || byStart(one, other);
  });
  for (const button of document.querySelectorAll(".names button")) {
    const chosenHere = button.dataset.key === sorting.key;
    button.classList.toggle("down", chosenHere && sorting.descending);
    button.setAttribute("aria-pressed", String(chosenHere));
  }
}
function listSegments() {
  const passing = segments.filter(passes), lost = (truth || []).filter((entry) => shows(entry) && !entry.found), before = entries[chosen];
  entries = [...passing.map((item) => ({ ...item, item, lost: false })), ...lost.map((item) => ({ ...item, item, lost: true }))].filter(isListed);
  sortEntries();
  /* what was chosen stays chosen where it is still listed */
  chosen = before ? entries.findIndex(({ item }) => item === before.item || (item.label === before.label && item.start === before.start)) : -1;
  const all = countText(segments.length, "segment");
  $("count").textContent = passing.length === segments.length ? all : numberText(passing.length) + " of " + all;
  const { labelled, found, falseAlarms, falseSeconds, delay } = verdict;
  $("verdict").hidden = !truth || !(labelled || falseAlarms);
  const words = [make("b", "", numberText(found) + " of " + countText(labelled, "label")), " found"];
  if (delay !== null) words.push(", announced ", make("b", "", signed(delay)), " from their start (median)");
  words.push(" · ", make("b", "", countText(falseAlarms, "false alarm")));
  if (falseSeconds > 0.005) words.push(" · ", make("b", "", falseSeconds.toFixed(1) + " s"), " detected outside labels");
  $("verdict").replaceChildren(...words);
  $("list").classList.toggle("unannounced", !segments.some(({ announced }) => announced !== undefined));
  $("list").classList.toggle("unlabelled", !truth && !wrongs.length);
  document.querySelector(".names").hidden = !entries.length;
  $("none").hidden = entries.length > 0;
  $("rows").hidden = !entries.length;
  for (const row of drawn.values()) row.remove();
  drawn.clear();
  showRows();
}
/* When a segment ended; of one that was on when the video ended nobody knows. */
function makeEnd(entry) {
  const end = makeMoment("to", entry.end);
  if (entry.still_on) { end.textContent += "…"; end.title = STILL_ON; }
  return end;
}
/* Of a live source on the clock of the wall, its second in the title. */
function makeMoment(look, time) {
  const moment = make("span", look, isLive ? wall(time) : clock(time));
  if (isLive) moment.title = clock(time);
  return moment;
}
function makeRow(index) {
  const entry = entries[index], row = make("div", entry.lost ? "row missed" : isFalse(entry.item) ? "row false" : "row"), name = make("span"), marks = make("span", "marks");
  name.append(spot(entry.label, entry.lost ? "spot hollow" : isFalse(entry.item) ? "spot hatched" : "spot"), make("span", "cut", entry.label));
  for (const [look, kind, act] of [["yes", "right", markRight], ["no", "wrong", markWrong]]) {
    const button = make("button", look);
    button.type = "button";
    button.tabIndex = -1; /* the keys r and w, and the buttons above the list, do the same */
    button.title = kind === "right" ? "Right (r)" : "Wrong (w)";
    button.setAttribute("aria-hidden", "true");
    button.classList.toggle("on", kind === markOf(entry));
    button.addEventListener("click", (event) => {
      event.stopPropagation();
      choose(index, false);
      act(entry);
    });
    marks.append(button);
  }
  row.append(name, makeMoment("from", entry.start), makeEnd(entry),
    make("span", "span", (entry.end - entry.start).toFixed(2) + " s"),
    make("span", "announced", entry.lost || entry.announced === undefined ? "–" : signed(entry.announced - entry.start)),
    make("span", "late", lateText(entry)), make("span", "mean", entry.lost ? "–" : scoreText(entry.score)), marks);
  row.id = "row-" + index;
  row.setAttribute("role", "option");
  row.setAttribute("aria-label", spoken(entry));
  row.setAttribute("aria-setsize", entries.length);
  row.setAttribute("aria-posinset", index + 1);
  row.addEventListener("click", () => { choose(index, false); seek(entry.start); });
  return row;
}
const rowHeight = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
function showRows() {
  const box = $("rows"), height = rowHeight();
  $("filling").style.height = entries.length * height + "px";
  const first = Math.max(0, Math.floor(box.scrollTop / height) - 4);
  const last = Math.min(entries.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + 4);
  for (const [index, row] of drawn) {
    if (index >= first && index < last) continue;
    row.remove();
    drawn.delete(index);
  }
  for (let index = first; index < last; index++) {
    if (!drawn.has(index)) {
      drawn.set(index, makeRow(index));
      $("filling").append(drawn.get(index));
    }
    const row = drawn.get(index), { start, end } = entries[index];
    row.style.transform = "translateY(" + index * height + "px)";
    row.classList.toggle("on", start <= now + 1e-6 && now < end - 1e-6);
    row.setAttribute("aria-selected", String(index === chosen));
  }
}
function bringRow(index) {
  const box = $("rows"), height = rowHeight(), top = index * height;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
}
function choose(index, bring = true) {
  chosen = index;
  if (bring) bringRow(index);
  showRows();
  $("rows").setAttribute("aria-activedescendant", "row-" + index);
  showChosen();
}
/* Scrolls the list alone, never the page, and not under a hand that is using it. */
function followRows() {
  const box = $("rows"), current = entries.findLast(({ start, end }) => start <= now + 1e-6 && now < end - 1e-6);
  if (current && !box.matches(":hover, :focus")) bringRow(entries.indexOf(current));
  showRows();
}
function buildRows() {
  const box = $("rows");
  for (const button of document.querySelectorAll(".names button")) button.addEventListener("click", () => {
    sorting.descending = sorting.key === button.dataset.key && !sorting.descending;
    sorting.key = button.dataset.key;
    listSegments();
  });
  box.addEventListener("scroll", showRows, { passive: true });
  box.addEventListener("focus", () => {
    if (chosen < 0 && entries.length) choose(Math.max(0, entries.findIndex(({ end }) => end > now)));
  });
  box.addEventListener("keydown", (event) => {
    const page = Math.max(1, Math.floor(box.clientHeight / rowHeight()) - 1), last = entries.length - 1;
    const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: last }[event.key];
    if (event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
    if (event.key === "Enter" && chosen >= 0) seek(entries[chosen].start);
    else if (to !== undefined) choose(Math.max(0, Math.min(last, to)));
    else return;
    event.preventDefault();
    event.stopPropagation();
  });
}
const isError = ({ item, lost }) => lost || isFalse(item);
const isListed = (entry) => ({ errors: isError(entry), missed: entry.lost, false: !entry.lost && isFalse(entry.item) })[$("which").value] ?? true;
const errorsShown = () => entries.filter(isError).sort(byStart);
/* To the next false alarm or missed label in the order of time, or back to the one before; it is told to a screen reader.
   After the last one of a video come those of the next video. */
function seekError(direction) {
  const errors = errorsShown(), at = errors.indexOf(entries[chosen]);
  const after = errors.findIndex(({ start }) => start > now - 1e-3), next = after < 0 ? errors.length : after;
  const before = errors.findLastIndex(({ start }) => start < now - 1e-3);
  const to = at >= 0 ? at + direction : direction > 0 ? next : before, error = errors[to];
  $("error").textContent = error ? "Error " + numberText(to + 1) + " of " + numberText(errors.length) + ": " + spoken(error)
    : errors.length ? "No other error" : "No error";
  if (!error) return go(direction > 0 ? "error-after" : "error-before");
  choose(entries.indexOf(error));
  seek(error.start);
}
/* The start of the segment before or after the cursor. */
function neighbour(direction) {
  const starts = entries.map(({ start }) => start).sort((one, other) => one - other);
  return direction > 0 ? starts.find((start) => start > now + 1e-3) : starts.findLast((start) => start < now - 1e-3);
}
