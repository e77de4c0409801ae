/* One row per video: its timeline in small, what takes most of its time, and a link to its report. */
const { videos, classes, failed } = report;
const long = videos.some(({ duration }) => duration >= 3600), isLabelled = videos.some(({ truth }) => truth);
const N_MOST = 3; /* actions that a row names */
const used = new Set(videos.flatMap(({ segments }) => segments.map(([index]) => index)));
const filter = { sought: "", action: "", which: "", key: "", descending: false };
const spans = (entries) => entries.map(([index, start, end, score]) => ({ label: classes[index], start, end, score: score ?? undefined }));
const total = (key) => videos.reduce((sum, video) => sum + video[key], 0);
const playOn = () => false; /* no video plays here */

for (const video of videos) {
  Object.assign(video, { detected: spans(video.segments), count: video.segments.length, found: null, falseAlarms: null, labelled: null, missed: [], caught: [] });
  if (!video.truth) continue;
  const all = spans(video.truth), labels = all.filter(({ label }) => !UNDECIDABLE.includes(label)), pairs = judge(labels, video.detected);
  const right = new Set(pairs.map(([, detection]) => detection)), found = new Set(pairs.map(([label]) => label));
  for (const detection of video.detected) detection.isFalse = !right.has(detection);
  video.missed = labels.filter((label) => !found.has(label));
  video.caught = all.filter((label) => !video.missed.includes(label));
  [video.labelled, video.found, video.falseAlarms] = [labels.length, pairs.length, video.count - pairs.length];
}

class Line extends Lane {
  draw() {
    const { pen, width, height, ratio } = fresh(this.base.firstElementChild), { duration, detected, truth, caught, missed } = this.props.video;
    this.dirty = false;
    drawStrip(pen, (time) => time / duration * width, height, ratio, detected, truth && spansOf(caught), spansOf(missed));
  }
  render() { return html`<div class="line"><canvas aria-hidden="true" /></div>`; }
}
function Row({ video }) {
  const { id, truth, segments, count, falseAlarms } = video, seconds = new Map();
  for (const [index, start, end] of segments) seconds.set(index, (seconds.get(index) || 0) + end - start);
  const most = [...seconds].sort((one, other) => other[1] - one[1]).slice(0, N_MOST);
  const unit = (number, noun) => (number === 1 ? noun : noun + "s");
  return html`<tr>
    <td><a href=${video.page}>${id}</a></td>
    <td class="wide"><${Line} video=${video} /></td>
    <td class="wide"><div class="most">${most.map(([index, time]) => html`<span><${Spot} label=${classes[index]} /><span class="cut">${classes[index]}</span><span class="soft">${numberText(Number(time.toFixed(1)))} s</span></span>`)}
      ${!most.length && html`<span class="soft">nothing detected</span>`}</div></td>
    <td class="number found" data-unit=${truth ? "found" : null}>${truth ? video.found + " of " + video.labelled : "–"}</td>
    <td class="number found" data-unit=${truth ? unit(falseAlarms, "false alarm") : null}>${truth ? numberText(falseAlarms) : "–"}</td>
    <td class="number" data-unit=${unit(count, "segment")}>${numberText(count)}</td>
    <td class="number">${clockText(video.duration, 0, long)}</td>
  </tr>`;
}
const sortValue = {
  id: ({ id }) => id, count: ({ count }) => count, duration: ({ duration }) => duration,
  found: ({ found, labelled }) => (labelled ? found / labelled : -1), falseAlarms: ({ falseAlarms }) => falseAlarms ?? -1,
};
const isKept = { errors: (video) => video.missed.length + video.falseAlarms > 0, missed: (video) => video.missed.length > 0, false: (video) => video.falseAlarms > 0 };
function shownVideos() {
  const { sought, action, which, key, descending } = filter;
  const shown = videos.filter((video) => video.id.toLowerCase().includes(sought) && (!action || video.segments.some(([index]) => index === Number(action))) && (isKept[which]?.(video) ?? true));
  return key ? shown.sort((one, other) => compareValues(sortValue[key](one), sortValue[key](other)) * (descending ? -1 : 1)) : shown;
}
function choose(changes) {
  Object.assign(filter, changes);
  draw();
}
function Head({ name, text, look = "number" }) {
  const sorted = filter.key === name ? (filter.descending ? "descending" : "ascending") : "none";
  return html`<th class=${look} aria-sort=${sorted}><${Button} data-key=${name} onClick=${() => choose({ key: name, descending: sorted === "ascending" })}>${text}<//></th>`;
}
function Index() {
  const shown = shownVideos(), which = [["", "All videos"], ["errors", "With errors"], ["missed", "With missed labels"], ["false", "With false alarms"]];
  const saveCsv = () => download("segments.csv", toCsv(shown.map(({ id, duration, detected }) => ({ id, duration, segments: detected }))));
  return html`<main class="card">
    <div class="controls">
      <h2 id="count" role="status">${shown.length === videos.length ? countText(shown.length, "video") : numberText(shown.length) + " of " + countText(videos.length, "video")}</h2>
      <input type="search" id="find" placeholder="Find a video" aria-label="Find a video" onInput=${({ target }) => choose({ sought: target.value.trim().toLowerCase() })} />
      <select id="class" aria-label="Only videos with this action" onChange=${({ target }) => choose({ action: target.value })}>${options([["", "All actions"], ...[...classes.entries()].filter(([index]) => used.has(index))])}</select>
      ${isLabelled && html`<select id="which" aria-label="Which videos" value=${filter.which} onChange=${({ target }) => choose({ which: target.value })}>${options(which)}</select>`}
      <${Button} id="all-csv" title="Download the segments of the videos shown" onClick=${saveCsv}>CSV<//>
    </div>
    <table class=${isLabelled ? "" : "unlabelled"}>
      <thead><tr>
        <${Head} name="id" text="Video" look="" /><th class="wide">Timeline</th><th class="wide">Top actions</th>
        <${Head} name="found" text="Labels found" look="number found" /><${Head} name="falseAlarms" text="False alarms" look="number found" />
        <${Head} name="count" text="Segments" /><${Head} name="duration" text="Duration" />
      </tr></thead>
      <tbody id="videos">${shown.map((video) => html`<${Row} key=${video.id} video=${video} />`)}</tbody>
    </table>
    ${!shown.length && html`<p id="none">No video fits the search.</p>`}
  </main>
  ${failed.length > 0 && html`<section class="card" id="failed" aria-label="Failed"><h2>${countText(failed.length, "source")} failed</h2><ul>${failed.map((reason) => html`<li>${reason}</li>`)}</ul></section>`}`;
}
const draw = () => render(html`<${Index} />`, $("app"));

showFacts([
  ["Videos", numberText(videos.length)], ["Duration", clockText(total("duration"), 0, long)], ["Segments", numberText(total("count"))],
  ...(isLabelled ? [["Labels found", numberText(total("found")) + " of " + numberText(total("labelled"))], ["False alarms", numberText(total("falseAlarms"))]] : []),
  ...(failed.length ? [["Failed", numberText(failed.length)]] : []),
]);
followTheme(redraw);
draw();
new ResizeObserver(redraw).observe($("videos"));
