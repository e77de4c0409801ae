/* One row per video: its timeline in small, what takes most of its time, and the way to its report. */
const { videos, classes, failed } = report;
const long = videos.some(({ duration }) => duration >= 3600);
const total = (key) => videos.reduce((sum, video) => sum + video[key], 0);
const N_MOST = 3;
const isLabelled = videos.some(({ truth }) => truth);
const spans = (entries) => entries.map(([index, start, end, score]) => ({ label: classes[index], start, end, score: score ?? undefined }));
for (const video of videos) {
  video.found = video.falseAlarms = video.labelled = null;
  if (!video.truth) continue;
  const labels = spans(video.truth).filter(({ label }) => !UNDECIDABLE.includes(label)), detected = spans(video.segments), { pairs } = judge(labels, detected);
  const right = new Set(pairs.map(([, detection]) => detection));
  video.isFalse = detected.map((detection) => !right.has(detection));
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
  pen.fillStyle = theme.truth;
  for (const [, start, end] of truth || []) fill(start, end, height - inset - 2 * ratio, 2 * ratio);
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
  link.href = video.page;
  name.append(link);
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
  return { row, line, video, has: new Set(video.segments.map(([index]) => index)) };
}

const rows = videos.map(makeRow);
function showRows() {
  const sought = $("find").value.trim().toLowerCase(), wanted = $("class").value;
  let shown = 0;
  for (const { row, video, has } of rows) {
    row.hidden = !video.id.toLowerCase().includes(sought) || (wanted !== "" && !has.has(Number(wanted)));
    shown += !row.hidden;
  }
  $("count").textContent = shown === rows.length ? countText(shown, "video") : numberText(shown) + " of " + countText(rows.length, "video");
  $("none").hidden = shown > 0;
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
$("all-csv").addEventListener("click", () => saveCsv(rows.filter(({ row }) => !row.hidden).map(({ video }) => video)));
if (failed.length) term($("facts"), "Failed", numberText(failed.length));
warn(report.warnings);
const used = new Set(rows.flatMap(({ has }) => [...has]));
classes.forEach((label, index) => {
  if (!used.has(index)) return;
  const option = make("option", "", label);
  option.value = index;
  $("class").append(option);
});
$("failed").hidden = !failed.length;
$("failed-count").textContent = countText(failed.length, "source") + " failed";
$("failed").lastElementChild.append(...failed.map((reason) => make("li", "", reason)));
followTheme(redraw);
$("videos").append(...rows.map(({ row }) => row));
for (const button of document.querySelectorAll("th button")) button.addEventListener("click", () => sortBy(button));
$("find").addEventListener("input", showRows);
$("class").addEventListener("change", showRows);
new ResizeObserver(redraw).observe($("videos"));
showRows();
