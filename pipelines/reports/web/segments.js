/* The list of detected segments, and of labels that nothing found. Only the rows in sight are elements. */
let entries = [], chosen = -1;
const drawn = new Map(); /* index to element */

const signed = (seconds) => (seconds < 0 ? "−" : "+") + Math.abs(seconds).toFixed(2) + " s";
function lateText(segment) {
  if (!truth) return "";
  if (!segment.overlaps) return "no label";
  return segment.first && segment.announced !== undefined ? signed(segment.announced - segment.first.start) : "–";
}
function spoken(entry) {
  const where = entry.label + ", " + clock(entry.start) + " to " + clock(entry.end);
  if (entry.lost) return where + ", labelled, missed";
  const parts = [where, "score " + scoreText(entry.score)];
  if (entry.announced !== undefined) parts.push("announced " + (entry.announced - entry.start).toFixed(2) + " seconds after its start");
  if (truth && !entry.overlaps) parts.push("no label");
  else if (entry.first && entry.announced !== undefined) parts.push(signed(entry.announced - entry.first.start).replace(" s", " seconds") + " from the label's start");
  return parts.join(", ");
}

function listSegments() {
  const kept = segments.filter(passes), lost = truth ? truth.filter((entry) => shows(entry) && !entry.found) : [];
  entries = [...kept, ...lost.map((entry) => ({ ...entry, lost: true }))].sort(byStart);
  chosen = Math.min(chosen, entries.length - 1);
  const all = countText(segments.length, "segment");
  $("count").textContent = kept.length === segments.length ? all : numberText(kept.length) + " of " + all;
  $("verdict").hidden = !verdict || !verdict.labelled;
  if (verdict && verdict.labelled) {
    const words = [make("b", "", numberText(verdict.found) + " of " + countText(verdict.labelled, "label")), " found"];
    if (verdict.delay !== null) words.push(", announced ", make("b", "", signed(verdict.delay)), " from their start (median)");
    words.push(" · ", make("b", "", countText(verdict.outside, "segment")), " without a label");
    $("verdict").replaceChildren(...words);
  }
  document.querySelector(".names").hidden = !entries.length;
  $("none").hidden = entries.length > 0;
  $("rows").hidden = !entries.length;
  for (const row of drawn.values()) row.remove();
  drawn.clear();
  showRows();
}
function makeRow(index) {
  const entry = entries[index], row = make("div", entry.lost ? "row missed" : "row"), name = make("span");
  name.append(spot(entry.label, entry.lost ? "spot hollow" : "spot"), make("span", "cut", entry.label));
  row.append(name, make("span", "from", clock(entry.start)), make("span", "to", clock(entry.end)),
    make("span", "span", (entry.end - entry.start).toFixed(2) + " s"),
    make("span", "announced", entry.lost || entry.announced === undefined ? "–" : signed(entry.announced - entry.start)),
    make("span", "late", entry.lost ? "–" : lateText(entry)),
    make("span", "mean", entry.lost ? "missed" : scoreText(entry.score)));
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
}
/* Scrolls the list alone, never the page, and not under a hand that is using it. */
function followRows() {
  const box = $("rows"), current = entries.findLast(({ start, end }) => start <= now + 1e-6 && now < end - 1e-6);
  if (current && !box.matches(":hover, :focus")) bringRow(entries.indexOf(current));
  showRows();
}
function buildRows() {
  const box = $("rows");
  $("list").classList.toggle("unannounced", !announcements.length);
  $("list").classList.toggle("unlabelled", !truth);
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
/* The start of the segment before or after the cursor. */
function neighbour(direction) {
  const starts = entries.map(({ start }) => start);
  return direction > 0 ? starts.find((start) => start > now + 1e-3) : starts.findLast((start) => start < now - 1e-3);
}
