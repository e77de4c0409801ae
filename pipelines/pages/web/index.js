/* One row per video: its timeline in small, what takes most of its time, and the way to its report. */
const { videos, classes, failed } = report;
const long = videos.some(({ duration }) => duration >= 3600);
const total = (key) => videos.reduce((sum, video) => sum + video[key], 0);
const N_MOST = 3;
const isLabelled = videos.some(({ truth }) => truth);
const used = new Set(videos.flatMap(({ segments }) => segments.map(([index]) => index)));
const chosen = { sought: "", action: "", which: "", key: "", descending: false };
let told = "";
const spans = (entries) => entries.map(([index, start, end, score]) => ({ label: classes[index], start, end, score: score ?? undefined }));
const playOn = () => false; /* no video plays here */

for (const video of videos) {
  Object.assign(video, { found: null, falseAlarms: null, labelled: null, missed: 0, foundLabels: [], missedLabels: [] });
  video.detected = spans(video.segments);
  if (!video.truth) continue;
  const all = spans(video.truth), labels = all.filter(({ label }) => !UNDECIDABLE.includes(label)), pairs = judge(labels, video.detected);
  const right = new Set(pairs.map(([, detection]) => detection)), caught = new Set(pairs.map(([label]) => label));
  for (const detection of video.detected) detection.isFalse = !right.has(detection);
  video.missedLabels = labels.filter((label) => !caught.has(label));
  video.foundLabels = all.filter((label) => !video.missedLabels.includes(label));
  video.missed = video.missedLabels.length;
  [video.labelled, video.found, video.falseAlarms] = [labels.length, pairs.length, video.segments.length - pairs.length];
}

class Line extends Lane {
  draw() {
    const { pen, width, height, ratio } = fresh(this.base.firstElementChild), { duration, detected, truth, foundLabels, missedLabels } = this.props.video;
    const times = (labels) => labels.map(({ start, end }) => [start, end]);
    this.dirty = false;
    drawStrip(pen, (time) => time / duration * width, height, ratio, detected, truth && times(foundLabels), times(missedLabels));
  }
  render() { return html`<div class="line"><canvas aria-hidden="true" /></div>`; }
}
function mostOf(video) {
  const seconds = new Map();
  for (const [index, start, end] of video.segments) seconds.set(index, (seconds.get(index) || 0) + end - start);
  return [...seconds].sort((one, other) => other[1] - one[1]).slice(0, N_MOST);
}
function saveCsv(some) {
  const name = some.length === 1 ? lastPart(some[0].id) : "segments";
  download(name + ".csv", toCsv(some.map(({ id, duration, detected }) => ({ id, duration, segments: detected }))), "text/csv");
}
const saveVtt = ([{ id, detected }]) => download(lastPart(id) + ".vtt", toVtt(detected), "text/vtt");

function Row({ video }) {
  const { id, truth, segments, falseAlarms } = video, most = mostOf(video);
  const unit = (count, noun) => (count === 1 ? noun : noun + "s");
  return html`<tr>
    <td><a href=${video.page}>${id}</a></td>
    <td class="wide"><${Line} video=${video} /></td>
    <td class="wide most-cell"><div class="most">${most.map(([index, seconds]) => html`<span><${Spot} label=${classes[index]} /><span class="cut">${classes[index]}</span><span class="soft">${numberText(Number(seconds.toFixed(1)))} s</span></span>`)}
      ${!most.length && html`<span class="soft">nothing detected</span>`}</div></td>
    <td class="number found" data-unit=${truth ? "found" : null}>${truth ? video.found + " of " + video.labelled : "–"}</td>
    <td class="number found" data-unit=${truth ? unit(falseAlarms, "false alarm") : null}>${truth ? numberText(falseAlarms) : "–"}</td>
    <td class="number" data-unit=${unit(segments.length, "segment")}>${numberText(segments.length)}</td>
    <td class="number">${clockText(video.duration, 0, long)}</td>
    <td class="files">${[["CSV", saveCsv], ["VTT", saveVtt]].map(([kind, save]) => html`<${Button} aria-label=${"Download the segments of " + id + " as " + kind} onClick=${() => save([video])}>${kind}<//>`)}</td>
  </tr>`;
}
const shareFound = ({ found, labelled }) => (labelled ? found / labelled : -1);
const compareBy = {
  id: (one, other) => one.id.localeCompare(other.id, "en", { numeric: true }),
  count: (one, other) => one.segments.length - other.segments.length,
  duration: (one, other) => one.duration - other.duration,
  found: (one, other) => shareFound(one) - shareFound(other),
  falseAlarms: (one, other) => (one.falseAlarms ?? -1) - (other.falseAlarms ?? -1),
};
const isAmong = (video, which) => ({
  errors: video.missed + video.falseAlarms > 0, missed: video.missed > 0, false: video.falseAlarms > 0,
})[which] ?? true;
const kindOfErrors = () => (["errors", "missed", "false"].includes(chosen.which) ? chosen.which : "");
function shownVideos() {
  const { sought, action, which, key, descending } = chosen;
  const shown = videos.filter((video) => video.id.toLowerCase().includes(sought) && (!action || video.segments.some(([index]) => index === Number(action))) && isAmong(video, which));
  return key ? shown.sort((one, other) => compareBy[key](one, other) * (descending ? -1 : 1)) : shown;
}
function choose(changes) {
  Object.assign(chosen, changes);
  draw();
}
function Head({ name, text, look = "number" }) {
  const sorted = chosen.key === name ? (chosen.descending ? "descending" : "ascending") : "none";
  return html`<th class=${look} aria-sort=${sorted}><${Button} data-key=${name} onClick=${() => choose({ key: name, descending: sorted === "ascending" })}>${text}<//></th>`;
}
function Index() {
  const shown = shownVideos();
  const which = [["", "All videos"], ["errors", "With errors"], ["missed", "With missed labels"], ["false", "With false alarms"]];
  return html`<main class="card">
    <div class="controls">
      <h2 id="count" role="status">${shown.length === videos.length ? countText(shown.length, "video") : numberText(shown.length) + " of " + countText(videos.length, "video")}</h2>
      <input type="search" id="find" placeholder="Find a video" aria-label="Find a video" onInput=${({ target }) => choose({ sought: target.value.trim().toLowerCase() })} />
      <select id="class" aria-label="Only videos with this action" onChange=${({ target }) => choose({ action: target.value })}>${options([["", "All actions"], ...[...classes.entries()].filter(([index]) => used.has(index))])}</select>
      ${isLabelled && html`<select id="which" aria-label="Which videos" value=${chosen.which} onChange=${({ target }) => choose({ which: target.value })}>${options(which)}</select>`}
      ${isLabelled && html`<${Button} id="error" aria-keyshortcuts="X" title="The first error of the videos shown (x)" disabled=${!shown.some((video) => isAmong(video, kindOfErrors() || "errors"))} onClick=${goToError}>First error → <kbd aria-hidden="true">x</kbd><//>`}
    </div>
    <p id="told" role="status">${told}</p>
    <table class=${isLabelled ? "" : "unlabelled"}>
      <thead><tr>
        <${Head} name="id" text="Video" look="" /><th class="wide">Timeline</th><th class="wide">Most of the time</th>
        <${Head} name="found" text="Labels found" look="number found" /><${Head} name="falseAlarms" text="False alarms" look="number found" />
        <${Head} name="count" text="Segments" /><${Head} name="duration" text="Duration" /><th class="wide files" />
      </tr></thead>
      <tbody id="videos">${shown.map((video) => html`<${Row} key=${video.id} video=${video} />`)}</tbody>
    </table>
    ${!shown.length && html`<p id="none" class="soft">No video fits the search.</p>`}
    <div class="handout">
      <span>Segments of the videos shown <${Button} id="all-csv" onClick=${() => saveCsv(shownVideos())}>CSV<//></span>
    </div>
  </main>
  ${failed.length > 0 && html`<section class="card" id="failed" aria-label="Failed"><h2>${countText(failed.length, "source")} failed</h2><ul>${failed.map((reason) => html`<li>${reason}</li>`)}</ul></section>`}`;
}
const draw = () => render(html`<${Index} />`, $("app"));

/* What a report asks for by the address of this page: the video before or after it, or one with errors. */
const errorOf = (video, error, which) => video.page + "#" + new URLSearchParams({ error, ...(which && { which }) });
function goToError() {
  const which = kindOfErrors(), video = shownVideos().find((one) => isAmong(one, which || "errors"));
  if (video) location.assign(errorOf(video, "first", which));
}
function followWay() {
  const asked = new URLSearchParams(location.hash.slice(1)), which = asked.get("which"), [[kind, id] = []] = asked;
  const from = videos.findIndex((video) => video.id === id);
  if (from < 0 || !["before", "after", "error-before", "error-after"].includes(kind)) return;
  const isBefore = kind.endsWith("before"), isError = kind.startsWith("error");
  const others = isBefore ? videos.slice(0, from).reverse() : videos.slice(from + 1);
  const next = isError ? others.find((video) => isAmong(video, which || "errors")) : others[0];
  if (next) return location.replace(isError ? errorOf(next, isBefore ? "last" : "first", which) : next.page);
  history.replaceState(null, "", location.pathname + location.search); /* so that it is not followed again */
  const noun = { missed: "missed label", false: "false alarm" }[which] ?? "error";
  told = isError ? "No other " + noun + (isBefore ? " before " : " after ") + id + "." : id + " is the " + (isBefore ? "first" : "last") + " video.";
  draw();
}

showFacts([
  ["Videos", numberText(videos.length)], ["Duration", clockText(total("duration"), 0, long)], ["Segments", numberText(videos.reduce((sum, { segments }) => sum + segments.length, 0))],
  ...(isLabelled ? [["Labels found", numberText(total("found")) + " of " + numberText(total("labelled"))], ["False alarms", numberText(total("falseAlarms"))]] : []),
  ...(failed.length ? [["Failed", numberText(failed.length)]] : []),
]);
followTheme(redraw);
document.addEventListener("keydown", (event) => {
  if (event.key === "x" && !event.ctrlKey && !event.metaKey && !event.altKey && event.target.tagName !== "INPUT") goToError();
});
draw();
new ResizeObserver(redraw).observe($("videos"));
followWay();
