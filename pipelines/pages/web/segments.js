/* The list of detected segments, and of labels that nothing found. Only the rows in sight are elements. */
let entries = [], chosen = -1;
let which = "", spokenError = ""; /* of which errors the list is; which error is on show, for a screen reader */

const signed = (seconds) => (seconds < 0 ? "−" : "+") + Math.abs(seconds).toFixed(2) + " s";
function lateText({ item, lost }) {
  if (lost) return "missed";
  if (item.match) return item.announced === undefined ? "found" : signed(item.announced - item.match.start);
  return isFalse(item) ? "false alarm" : "–";
}
const STILL_ACTIVE = "still active when the video ended";
function spoken(entry) {
  const where = entry.label + ", " + clock(entry.start) + " to " + clock(entry.end) + (entry.still_active ? ", " + STILL_ACTIVE : "");
  if (entry.lost) return where + ", labelled, missed";
  const parts = [where, "score " + scoreText(entry.score)], { match, announced } = entry.item;
  if (announced !== undefined) parts.push("announced " + (announced - entry.start).toFixed(2) + " seconds after its start");
  if (match && announced !== undefined) parts.push(signed(announced - match.start).replace(" s", " seconds") + " from the label's start");
  if (isFalse(entry.item)) parts.push("false alarm");
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
function listSegments() {
  const passing = segments.filter(passes), lost = (truth || []).filter((entry) => shows(entry) && !entry.found), before = entries[chosen];
  entries = [...passing.map((item) => ({ ...item, item, lost: false })), ...lost.map((item) => ({ ...item, item, lost: true }))].filter(isListed);
  const value = sortValue[sorting.key], turn = sorting.descending ? -1 : 1;
  entries.sort((one, other) => compareValues(value(one), value(other)) * turn || byStart(one, other));
  /* what was chosen stays chosen where it is still listed */
  chosen = before ? entries.findIndex(({ item }) => item === before.item || (item.label === before.label && item.start === before.start)) : -1;
}
const rowHeight = () => parseFloat(getComputedStyle(document.documentElement).getPropertyValue("--row"));
function bringRow(index) {
  const box = $("rows"), height = rowHeight(), top = index * height;
  if (top < box.scrollTop) box.scrollTop = top;
  else if (top + height > box.scrollTop + box.clientHeight) box.scrollTop = top + height - box.clientHeight;
}
function choose(index, bring = true) {
  chosen = index;
  if (bring) bringRow(index);
  draw();
}
/* Scrolls the list alone, never the page, and not under a hand that is using it. */
function followRows() {
  const box = $("rows"), current = entries.findLast(({ start, end }) => start <= now + 1e-6 && now < end - 1e-6);
  if (current && !box.matches(":hover, :focus")) bringRow(entries.indexOf(current));
}
/* A moment, of a live source on the clock of the wall with its second in the title. Nobody knows when a segment ended that was on when the video did. */
function Moment({ look, time, isOpen }) {
  return html`<span class=${look} title=${isOpen ? STILL_ACTIVE : isLive ? clock(time) : null}>${(isLive ? wall(time) : clock(time)) + (isOpen ? "…" : "")}</span>`;
}
function Row({ entry, index }) {
  const { label, start, end, lost, item, announced } = entry, isFalseAlarm = !lost && isFalse(item), isNow = start <= now + 1e-6 && now < end - 1e-6;
  return html`<div id=${"row-" + index} class=${["row", lost && "missed", isFalseAlarm && "false", isNow && "on"].filter(Boolean).join(" ")} role="option" aria-label=${spoken(entry)} aria-setsize=${entries.length}
    aria-posinset=${index + 1} aria-selected=${index === chosen} style=${{ transform: "translateY(" + index * rowHeight() + "px)" }} onClick=${() => { choose(index, false); seek(start); }}>
    <span><${Spot} label=${label} look=${lost ? "hollow" : isFalseAlarm ? "hatched" : ""} /><span class="cut">${label}</span></span>
    <${Moment} look="from" time=${start} /><${Moment} look="to" time=${end} isOpen=${entry.still_active} />
    <span class="span">${(end - start).toFixed(2)} s</span><span class="announced">${lost || announced === undefined ? "–" : signed(announced - start)}</span>
    <span class="late">${lateText(entry)}</span><span class="mean">${lost ? "–" : scoreText(entry.score)}</span>
  </div>`;
}
/* Only the rows in sight are elements. */
class Rows extends Component {
  componentDidMount() { this.componentDidUpdate(); }
  componentDidUpdate() {
    if (this.height === this.base.clientHeight) return;
    this.height = this.base.clientHeight;
    this.forceUpdate();
  }
  render() {
    const box = this.base, height = rowHeight(), last = entries.length - 1;
    const first = box ? Math.max(0, Math.floor(box.scrollTop / height) - 4) : 0, end = box ? Math.min(entries.length, Math.ceil((box.scrollTop + box.clientHeight) / height) + 4) : 0;
    const key = (event) => {
      const page = Math.max(1, Math.floor(box.clientHeight / height) - 1);
      const to = { ArrowDown: chosen + 1, ArrowUp: chosen - 1, PageDown: chosen + page, PageUp: chosen - page, Home: 0, End: last }[event.key];
      if (event.ctrlKey || event.metaKey || event.altKey || last < 0) return;
      if (event.key === "Enter" && chosen >= 0) seek(entries[chosen].start);
      else if (to !== undefined) choose(Math.max(0, Math.min(last, to)));
      else return;
      event.preventDefault();
      event.stopPropagation();
    };
    const focus = () => { if (chosen < 0 && entries.length) choose(Math.max(0, entries.findIndex(({ end: until }) => until > now))); };
    return html`<div id="rows" role="listbox" tabindex="0" aria-label="Segments: enter seeks" aria-activedescendant=${chosen < 0 ? null : "row-" + chosen}
      hidden=${!entries.length} onScroll=${() => this.forceUpdate()} onFocus=${focus} onKeyDown=${key}>
      <div id="filling" role="presentation" style=${{ height: entries.length * height + "px" }}>
        ${entries.slice(first, end).map((entry, at) => html`<${Row} key=${first + at} entry=${entry} index=${first + at} />`)}
      </div></div>`;
  }
}
const COLUMNS = [["label", "Action"], ["start", "Start"], ["end", "End"], ["span", "Length"], ["announced", "Announced"], ["late", "From label"], ["mean", "Score"]];
function sortBy(key) {
  Object.assign(sorting, { key, descending: sorting.key === key && !sorting.descending });
  refresh();
}
function Segments() {
  const { labelled, found, falseAlarms, delay } = verdict;
  const passing = segments.filter(passes).length, all = countText(segments.length, "segment"), looks = ["card", !segments.some(({ announced }) => announced !== undefined) && "unannounced", !truth && "unlabelled"];
  const saveCsv = () => download(lastPart(report.id) + ".csv", toCsv([{ id: report.id, duration: timeline.duration || duration, segments: segments.filter(passes) }]));
  return html`<section class=${looks.filter(Boolean).join(" ")} id="list" aria-label="Segments">
    <div class="heading">
      <h2 id="count">${passing === segments.length ? all : numberText(passing) + " of " + all}</h2>
      <p id="verdict" role="status" hidden=${!truth || !(labelled || falseAlarms)}><b>${numberText(found) + " of " + countText(labelled, "label")}</b> found
        ${delay !== null && html`, announced <b>${signed(delay)}</b> from their start (median)`} · <b>${countText(falseAlarms, "false alarm")}</b></p><p class="unseen" id="error" role="status">${spokenError}</p>
      <div class="buttons" id="errors" role="group" aria-label="Errors" hidden=${!truth}>
        <select id="which" aria-label="Which are listed" value=${which} onChange=${({ target }) => { which = target.value; refresh(); }}>${options([["", "All"], ["errors", "Errors"], ["missed", "Missed"], ["false", "False alarms"]])}</select>
        <${ErrorButtons} disabled=${!errorsShown().length} act=${seekError} />
      </div>
      <${Button} id="segments-csv" title="Download the segments as CSV" onClick=${saveCsv}>CSV<//>
    </div>
    <div class="row names" role="group" aria-label="Sort the list" hidden=${!entries.length}>${COLUMNS.map(([key, text]) => html`<${Button} data-key=${key}
      class=${[["span", "announced", "late", "mean"].includes(key) && key, sorting.key === key && sorting.descending && "down"].filter(Boolean).join(" ")} aria-pressed=${sorting.key === key} onClick=${() => sortBy(key)}>${text}<//>`)}</div>
    <${Rows} />
    <p id="none" hidden=${entries.length > 0}>Nothing to list.</p>
  </section>`;
}
const isError = ({ item, lost }) => lost || isFalse(item);
const isListed = (entry) => ({ errors: isError(entry), missed: entry.lost, false: !entry.lost && isFalse(entry.item) })[which] ?? true;
const errorsShown = () => entries.filter(isError).sort(byStart);
/* To the next false alarm or missed label in the order of time, or back to the one before; a screen reader names it. */
function seekError(direction) {
  const errors = errorsShown(), at = errors.indexOf(entries[chosen]);
  const after = errors.findIndex(({ start }) => start > now - 1e-3), next = after < 0 ? errors.length : after;
  const before = errors.findLastIndex(({ start }) => start < now - 1e-3);
  const to = at >= 0 ? at + direction : direction > 0 ? next : before, error = errors[to];
  spokenError = error ? "Error " + numberText(to + 1) + " of " + numberText(errors.length) + ": " + spoken(error)
    : errors.length ? "No other error" : "No error";
  draw();
  if (!error) return;
  choose(entries.indexOf(error));
  seek(error.start);
}
/* To the segment that starts after the cursor, or before it. It is chosen, so that every key acts on the same one. */
function seekSegment(direction) {
  const inOrder = [...entries].sort(byStart);
  const entry = direction > 0 ? inOrder.find(({ start }) => start > now + 1e-3) : inOrder.findLast(({ start }) => start < now - 1e-3);
  if (!entry) return;
  choose(entries.indexOf(entry));
  seek(entry.start);
}
