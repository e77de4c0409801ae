/* One row per video: its timeline in small, what takes most of its time, and the way to its report. */
const { videos, classes, failed } = report;
const long = videos.some(({ duration }) => duration >= 3600);
const total = (key) => videos.reduce((sum, video) => sum + video[key], 0);
const N_MOST = 3;
const isLabelled = videos.some(({ truth }) => truth);
const spans = (entries) => entries.map(([index, start, end, score]) => ({ label: classes[index], start, end, score: score ?? undefined }));
for (const video of videos) {
  video.found = video.falseAlarms = video.labelled = null;
  video.isMissed = [];
  video.missed = 0;
  if (!video.truth) continue;
  const all = spans(video.truth), labels = all.filter(({ label }) => !UNDECIDABLE.includes(label)), detected = spans(video.segments), { pairs } = judge(labels, detected);
  const right = new Set(pairs.map(([, detection]) => detection));
  video.isFalse = detected.map((detection) => !right.has(detection));
  const caught = new Set(pairs.map(([label]) => label));
  video.isMissed = all.map((label) => !caught.has(label) && !UNDECIDABLE.includes(label.label));
  video.missed = labels.length - pairs.length;
  [video.labelled, video.found, video.falseAlarms] = [labels.length, pairs.length, video.segments.length - pairs.length];
}

const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.seen = isIntersecting;
    if (isIntersecting && target.stale) drawLine(target);
  }
}, { rootMargin: "300px" });

function drawLine(line) {
  const { pen, width, height, ratio } = fresh(line.firstElementChild);
  const { duration, segments, truth } = line.video, inset = 5 * ratio;
  const toX = (time) => time / duration * width, tall = height - 2 * inset - (truth ? 4 * ratio : 0);
  const fill = (start, end, top, high) => pen.fillRect(toX(start), top, Math.max(ratio, toX(end - start)), high);
  segments.forEach(([index, start, end], place) => {
    pen.fillStyle = pen.strokeStyle = colourOf(classes[index]);
    if (line.video.isFalse && line.video.isFalse[place]) drawFalse(pen, [[start, end]], toX, inset, tall, ratio);
    else fill(start, end, inset, tall);
  });
  const times = (missed) => (truth || []).filter((_, place) => line.video.isMissed[place] === missed).map(([, start, end]) => [start, end]);
  drawLabels(pen, times(false), times(true), toX, height - inset - 2 * ratio, 3 * ratio, ratio);
  line.stale = false;
}
function mostOf(video) {
  const seconds = new Map();
  for (const [index, start, end] of video.segments) seconds.set(index, (seconds.get(index) || 0) + end - start);
  return [...seconds].sort((one, other) => other[1] - one[1]).slice(0, N_MOST);
}
function saveCsv(chosen) {
  const name = chosen.length === 1 ? lastPart(chosen[0].id) : "segments";
  download(name + ".csv", toCsv(chosen.map(({ id, duration, segments }) => ({ id, duration, segments: spans(segments) }))), "text/csv");
}
function saveVtt([{ id, segments }]) {
  download(lastPart(id) + ".vtt", toVtt(spans(segments)), "text/vtt");
}
function makeRow(video) {
  const row = make("tr"), name = make("td"), link = make("a", "", video.id);
  const line = make("div", "line"), wide = make("td", "wide"), most = make("td", "wide most-cell"), kinds = make("div", "most");
  const corrected = make("span", "soft corrected", "corrected");
  link.href = video.page;
  name.append(link, corrected);
  line.video = video;
  line.stale = true;
  line.append(make("canvas"));
  line.firstElementChild.setAttribute("aria-hidden", "true");
  near.observe(line);
  wide.append(line);
  for (const [index, seconds] of mostOf(video)) {
    const kind = make("span");
    kind.append(spot(classes[index]), make("span", "cut", classes[index]), make("span", "soft", numberText(Number(seconds.toFixed(1))) + " s"));
    kinds.append(kind);
  }
  if (!kinds.childElementCount) kinds.append(make("span", "soft", "nothing detected"));
  most.append(kinds);
  const count = make("td", "number", numberText(video.segments.length));
  count.dataset.unit = video.segments.length === 1 ? "segment" : "segments";
  const found = make("td", "number found", video.truth ? video.found + " of " + video.labelled : "–");
  const alarms = make("td", "number found", video.truth ? numberText(video.falseAlarms) : "–"), files = make("td", "files");
  if (video.truth) [found.dataset.unit, alarms.dataset.unit] = ["found", video.falseAlarms === 1 ? "false alarm" : "false alarms"];
  for (const [kind, save] of [["CSV", saveCsv], ["VTT", saveVtt]]) {
    const button = make("button", "", kind);
    button.type = "button";
    button.setAttribute("aria-label", "Download the segments of " + video.id + " as " + kind);
    button.addEventListener("click", () => save([video]));
    files.append(button);
  }
  row.append(name, wide, most, found, alarms, count, make("td", "number", clockText(video.duration, 0, long)), files);
  return { row, line, video, corrected, has: new Set(video.segments.map(([index]) => index)) };
}

const rows = videos.map(makeRow);
function showRows() {
  const sought = $("find").value.trim().toLowerCase(), wanted = $("class").value, which = $("which").value;
  let shown = 0;
  for (const { row, video, has } of rows) {
    row.hidden = !video.id.toLowerCase().includes(sought) || (wanted !== "" && !has.has(Number(wanted))) || !isAmong(video, which);
    shown += !row.hidden;
  }
  $("count").textContent = shown === rows.length ? countText(shown, "video") : numberText(shown) + " of " + countText(rows.length, "video");
  $("none").hidden = shown > 0;
  $("error").disabled = !rows.some(({ row, video }) => !row.hidden && isAmong(video, kindOfErrors() || "errors"));
}
const isAmong = (video, which) => ({
  errors: video.missed + video.falseAlarms > 0, missed: video.missed > 0, false: video.falseAlarms > 0,
  corrected: Boolean(video.kept), uncorrected: !video.kept,
})[which] ?? true;
const kindOfErrors = () => (["errors", "missed", "false"].includes($("which").value) ? $("which").value : "");
const shownVideos = () => rows.filter(({ row }) => !row.hidden).map(({ video }) => video);

/* What was corrected in the reports, as the browser keeps it. */
function readCorrections() {
  for (const { video, corrected } of rows) {
    video.kept = readKept(keptName(video.page, video.given));
    corrected.hidden = !video.kept;
  }
  const count = videos.filter(({ kept }) => kept).length;
  $("labels").hidden = !isLabelled && !count;
  $("corrected").textContent = countText(labelledVideos().length, "video") + ", " + numberText(count) + " corrected";
  $("which").hidden = !isLabelled && !count;
  showRows();
}
/* Videos without labels that nobody has corrected are left out: nobody knows what happens in them. */
const labelledVideos = () => videos.filter(({ kept, truth }) => kept || truth).map(({ kept, truth, id, subset, duration }) => ({
  id, subset: subset ?? "training", duration, segments: spans(truth || []), ...(kept && kept.labels),
}));

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
  $("told").textContent = isError ? "No other " + noun + (isBefore ? " before " : " after ") + id + "." : id + " is the " + (isBefore ? "first" : "last") + " video.";
}
const shareFound = ({ found, labelled }) => (labelled ? found / labelled : -1);
const compareBy = {
  id: (one, other) => one.video.id.localeCompare(other.video.id, "en", { numeric: true }),
  count: (one, other) => one.video.segments.length - other.video.segments.length,
  duration: (one, other) => one.video.duration - other.video.duration,
  found: (one, other) => shareFound(one.video) - shareFound(other.video),
  falseAlarms: (one, other) => (one.video.falseAlarms ?? -1) - (other.video.falseAlarms ?? -1),
};
function sortBy(button) {
  const head = button.parentElement, descending = head.getAttribute("aria-sort") === "ascending";
  for (const other of document.querySelectorAll("th[aria-sort]")) other.setAttribute("aria-sort", "none");
  head.setAttribute("aria-sort", descending ? "descending" : "ascending");
  rows.sort((one, other) => compareBy[button.dataset.key](one, other) * (descending ? -1 : 1));
  $("videos").append(...rows.map(({ row }) => row));
}
function redraw() {
  for (const { line } of rows) {
    line.stale = true;
    if (line.seen) drawLine(line);
  }
}

term($("facts"), "Videos", numberText(videos.length));
term($("facts"), "Duration", clockText(total("duration"), 0, long));
term($("facts"), "Segments", numberText(videos.reduce((sum, { segments }) => sum + segments.length, 0)));
if (isLabelled) {
  term($("facts"), "Labels found", numberText(total("found")) + " of " + numberText(total("labelled")));
  term($("facts"), "False alarms", numberText(total("falseAlarms")));
}
document.querySelector("table").classList.toggle("unlabelled", !isLabelled);
$("all-csv").addEventListener("click", () => saveCsv(shownVideos()));
$("labels-json").addEventListener("click", () => {
  const chosen = labelledVideos(), named = new Set([...classes, ...chosen.flatMap(({ segments }) => segments.map(({ label }) => label))]);
  download("labels.json", toActivityNet([...named], chosen), "application/json");
});
$("labels-csv").addEventListener("click", () => download("labels.csv", toCsv(labelledVideos()), "text/csv"));
$("error").hidden = !isLabelled;
$("error").addEventListener("click", goToError);
if (failed.length) term($("facts"), "Failed", numberText(failed.length));
warn(report.warnings);
const used = new Set(rows.flatMap(({ has }) => [...has]));
classes.forEach((label, index) => {
  if (used.has(index)) $("class").append(option(index, label));
});
$("failed").hidden = !failed.length;
$("failed-count").textContent = countText(failed.length, "source") + " failed";
$("failed").lastElementChild.append(...failed.map((reason) => make("li", "", reason)));
followTheme(redraw);
$("videos").append(...rows.map(({ row }) => row));
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortBy(button));
$("find").addEventListener("input", showRows);
for (const id of ["class", "which"]) $(id).addEventListener("change", showRows);
document.addEventListener("keydown", (event) => {
  if (event.key === "x" && !event.ctrlKey && !event.metaKey && !event.altKey && event.target.tagName !== "INPUT") goToError();
});
addEventListener("pageshow", readCorrections); /* also when somebody comes back from a report */
addEventListener("storage", readCorrections);
new ResizeObserver(redraw).observe($("videos"));
readCorrections();
followWay();
