/* The page of a report: the video and the decision, lanes and segments, facts about the run, pointer and keys. */
function flat(values, prefix = "") {
  return Object.entries(values || {}).flatMap(([key, value]) => {
    const name = prefix + (prefix ? key : key[0].toUpperCase() + key.slice(1)).replaceAll("_", " ");
    return value && typeof value === "object" && !Array.isArray(value) ? flat(value, name + ", ") : [[name, value]];
  });
}
function videoText() {
  const copy = report.proxy ? "a small H.264 copy, for browsers do not play the original" : "";
  if (report.embedded) return "inside this page" + (copy && ", as " + copy);
  let address = report.video;
  try { address = decodeURI(address); } catch { /* a name that is not UTF-8 is shown encoded */ }
  return "linked: " + address + (copy && ", " + copy);
}
function facts() {
  const pairs = [["Duration", clock(duration, 0)], ["Decisions", numberText(timeline.decided ?? chunks)], ["Segments", numberText(segments.filter(passes).length)]];
  if (truth && verdict.labelled) pairs.push(["Labels found", verdict.found + " of " + numberText(verdict.labelled)]);
  if (truth && (verdict.labelled || verdict.falseAlarms)) pairs.push(["False alarms", numberText(verdict.falseAlarms)]);
  if (verdict.delay !== null) pairs.push(["Median delay", signed(verdict.delay)]);
  return pairs;
}
const { recipe, checkpoint, speed } = timeline;
const title = timeline.name ?? lastPart(timeline.source ?? "Action timeline");
const plainText = (text) => (typeof text === "string" ? text : JSON.stringify(text));
function runFacts() {
  const pairs = [["Source", plainText(timeline.source ?? "–"), "wide"]], add = (...pair) => pairs.push(pair);
  if (report.video || report.embedded) add("Video", videoText(), "wide");
  add("Model", plainText(checkpoint ?? "–"), "wide");
  const streamsOf = new Map(); /* one line, however many networks began so */
  for (const [stream, origin] of Object.entries(report.origins)) streamsOf.set(origin, [...(streamsOf.get(origin) || []), stream]);
  for (const [origin, streams] of streamsOf) {
    const listed = streams.slice(0, -1).join(", ") + (streams.length > 1 ? " and " : "") + streams.at(-1);
    add("Its " + listed + " network" + (streams.length > 1 ? "s" : "") + " started from", origin, "wide");
  }
  if (timeline.live?.began) add("Began", timeline.live.began.replace("T", " "), "wide");
  add("Duration", numberText(duration) + " s");
  add("Decisions", numberText(timeline.decided ?? chunks) + ", one each " + numberText(step) + " s");
  add("Classes", numberText(classes.length - 1) + " and " + (classes[0] ?? "none"));
  if (gaps.length) add("Gaps", gaps.length + ", " + numberText(gaps.reduce((sum, [start, end]) => sum + end - start, 0)) + " s");
  if (uniform) add("Thresholds", "start at " + numberText(rules.on) + ", end below " + numberText(rules.off));
  else if (timeline.thresholds) add("Thresholds", "by class");
  for (const [key, name] of [["min_length", "Shortest action"], ["merge_gap", "Gap closed"]]) if (rules[key]) add(name, numberText(rules[key]) + " s");
  if (Object.values(timeline.thresholds || {}).some((rule) => rule === true || rule?.highest)) add("One at a time", "the action with the highest score");
  const backdates = Object.entries("backdate" in rules ? { "all actions": rules } : timeline.thresholds || {}).filter(([, rule]) => rule?.backdate);
  if (backdates.length) add("Starts backdated", backdates.map(([label, { backdate }]) => label + " " + numberText(backdate) + " s").join(", "), "wide");
  return pairs;
}
function About() {
  const whole = report.recipe || (recipe && typeof recipe === "object" ? recipe : null), id = typeof recipe === "string" ? recipe : recipe && (recipe.id || recipe.recipe_id);
  const measured = [...flat(speed).map(([key, value]) => [key, numberText(value)]), ...(id ? [["Recipe of the features", id]] : [])];
  return html`<footer class="card" aria-label="About this run">
    <h2>About this run</h2>
    <dl class="terms" id="run"><${Terms} pairs=${runFacts()} /></dl>
    ${(speed || id || whole) && html`<details id="details"><summary>Speed and features</summary>
      <dl class="terms" id="speed"><${Terms} pairs=${measured} /></dl>
      ${whole && html`<pre tabindex="0" id="recipe" aria-label="The whole recipe of the features">${JSON.stringify(whole, null, 2)}</pre>`}</details>`}
    <p class="keys soft"><kbd>space</kbd> play · <kbd>←</kbd> <kbd>→</kbd> one decision · <kbd>shift</kbd> with them one second ·${" "}
      <kbd>p</kbd> <kbd>n</kbd> previous, next segment · ${truth && html`<kbd>x</kbd> next error, <kbd>shift</kbd> <kbd>x</kbd> previous error · `}<kbd>+</kbd> <kbd>−</kbd> <kbd>0</kbd> zoom · <kbd>ctrl</kbd> with the wheel zooms,${" "}
      <kbd>shift</kbd> with it moves · a class name goes to its next segment</p>
  </footer>`;
}

/* The lanes: one for each class that the filters leave, Background last. */
let stamp = 0, rover = null; /* counts what lanes have to be drawn again for; the lane whose name the tab key reaches */
const shownIndices = () => [...names.keys()].filter((index) => !filter.hidden.has(index)).sort((one, other) => !one - !other || one - other);
function laneOf(index) {
  const label = names[index], rule = ruleOf(label), own = segments.filter((segment) => segment.label === label && passes(segment)), kept = own.filter((segment) => !isFalse(segment));
  const labels = truth && truth.filter((entry) => entry.label === label);
  return {
    colour: colourOf(label), gaps, expected: expected.filter((one) => one.label === label),
    curve: index < classes.length && { codes, first: index * chunks, count: chunks, begin, step, fullScale, missing },
    rules: rule ? [{ score: rule.on, alpha: 0.75 }, ...(tries() ? [{ score: rule.off, alpha: 0.35 }] : [])] : [],
    solid: spansOf(kept), isFalse: spansOf(own.filter(isFalse)),
    announced: kept.map(({ start, end, announced }) => [Math.max(start, Math.min(announced ?? start, end - step / 2)), end]),
    found: labels && spansOf(labels.filter((entry) => entry.found)), missed: labels && spansOf(labels.filter((entry) => !entry.found)),
  };
}
function seekNext(label) {
  const kept = segments.filter((segment) => segment.label === label && passes(segment)), starts = (kept.length ? kept : (truth || []).filter((entry) => entry.label === label)).map(({ start }) => start);
  if (starts.length) seek(starts.find((start) => start > now + 1e-3) ?? starts[0]);
}
function LaneRow({ index, shown, chunk, best }) {
  const label = names[index], code = codeAt(index, chunk), at = shown.indexOf(index);
  const rove = (event) => {
    const next = { ArrowDown: shown[at + 1], ArrowUp: shown[at - 1], Home: shown[0], End: shown.at(-1) }[event.key];
    if (next === undefined) return;
    event.preventDefault();
    $("lanes").querySelector('[data-index="' + next + '"] button').focus();
  };
  return html`<${Lane} look=${best === index ? "first" : ""} index=${index} stamp=${stamp} content=${() => laneOf(index)}>
    <${Button} tabindex=${(shown.includes(rover) ? rover : shown[0]) === index ? 0 : -1} title=${label} aria-label=${"Next segment of " + label} onClick=${() => seekNext(label)} onFocus=${() => { rover = index; draw(); }} onKeyDown=${rove}>
      <${Spot} label=${label} /><span class="cut">${label}</span><output aria-live="off">${code === missing ? "–" : scoreText(code / fullScale)}</output><//><//>`;
}
function Filters() {
  const counts = names.map((label) => segments.filter((segment) => segment.label === label).length), hidden = filter.hidden;
  const all = names.length - 1, count = names.filter((_, index) => index && !hidden.has(index)).length;
  const words = [count === all ? "All classes" : count + " of " + all + " classes", filter.score ? "from " + filter.score.toFixed(2) : ""];
  const pick = (wanted) => () => { filter.hidden = new Set([...names.keys()].filter((index) => !wanted(index))); refresh(); };
  const toggle = (index) => ({ target }) => { if (target.checked) hidden.delete(index); else hidden.add(index); refresh(); };
  return html`<details class="menu" id="class-menu"><summary>${words.filter(Boolean).join(", ")}</summary><div class="sheet">
    <input type="search" id="find-class" placeholder="Find a class" aria-label="Find a class" onInput=${({ target }) => { filter.sought = target.value.trim().toLowerCase(); draw(); }} />
    <div class="picks"><${Button} onClick=${pick((index) => index > 0)}>All<//><${Button} onClick=${pick(() => false)}>None<//><${Button} onClick=${pick((index) => index > 0 && counts[index] > 0)}>Detected<//></div>
    <label class="slider">Minimum score <input type="range" id="least" min="0" max="1" step="0.01" value=${filter.score} aria-label="Minimum score of a segment" onInput=${({ target }) => { filter.score = Number(target.value); refresh(); }} /><output for="least" aria-live="off">${filter.score.toFixed(2)}</output></label>
    <ul id="class-list" aria-label="Classes, with their number of segments">${[...names.keys()].sort((one, other) => !one - !other || one - other).map((index) => html`<li key=${index} hidden=${!names[index].toLowerCase().includes(filter.sought)}><label>
      <input type="checkbox" checked=${!hidden.has(index)} onChange=${toggle(index)} /><${Spot} label=${names[index]} /><span class="cut">${names[index]}</span><span>${index ? counts[index] || "–" : ""}</span></label></li>`)}</ul>
  </div></details>`;
}
const legend = () => [
  ["curve", "score"], timeline.thresholds && ["onset", "threshold"], ["", "detected"], expected.length > 0 && ["expected", "expected"],
  segments.some(({ announced }) => announced !== undefined) && ["waiting", "not yet announced"], segments.some(isFalse) && ["false", "false alarm"],
  truth && ["truth", "labelled"], truth && ["missed", "labelled, missed"], gaps.length > 0 && ["gap", "gap in the source"],
];
function Decision({ chunk, best }) {
  const first = best[0], end = begin + (chunk + 1) * step, labels = truth && truth.filter((label) => chunk >= 0 && label.start < end && begin + chunk * step < label.end);
  return html`<section class="card now" aria-label="Decision at the cursor">
    <h2 class="soft" id="chunk">${chunk < 0 ? "After the last decision" : (gaps.length ? "Chunk " : "Decision ") + numberText(chunk + 1) + " of " + numberText(chunks) + " · made at " + clock(end) + (isLive ? " (" + wall(end) + ")" : "")}</h2>
    <p class="decision"><${Spot} label=${first ? classes[first.index] : ""} /><span class="cut" id="decision">${first ? classes[first.index] : "No decision"}</span><output id="decision-score" aria-live="off">${first && scoreText(first.score)}</output></p>
    <ol id="top" aria-label="Highest scores">${best.map(({ index, score }) => html`<li><span class="cut">${classes[index]}</span><span class="bar"><i style=${{ ...spotStyle(classes[index]), "--part": score }} /></span><span>${scoreText(score)}</span></li>`)}</ol>
    ${labels && html`<p id="labelled">Labelled: <b>${[...new Set(labels.map(({ label }) => label))].join(", ") || "nothing"}</b></p>`}
  </section>`;
}
const peopleAt = new Map(report.people.map(({ time, people }) => [chunkAt(time - step / 2), people]));
/* The people of a decision, over the video: box, number, and what is seen of the skeleton. */
function People({ people = [] }) {
  const width = $("video")?.videoWidth || 4, height = $("video")?.videoHeight || 3;
  return html`<svg class="people" viewBox=${[0, 0, width, height].join(" ")} aria-hidden="true">${people.map(({ id, box, keypoints }) => {
    const [left, top, right, bottom] = box.map((side, at) => side * (at % 2 ? height : width)), points = keypoints.map(([x, y]) => [x * width, y * height]);
    const lines = report.limbs.filter((ends) => ends.every((at) => keypoints[at][2] > 0)).map(([from, to]) => "M" + points[from] + "L" + points[to]);
    return html`<path d=${"M" + [left, top] + "H" + right + "V" + bottom + "H" + left + "Z" + lines.join("")} /><text x=${left} y=${top} dx="4" dy="1.1em" font-size=${height / 18}>${id}</text>`;
  })}</svg>`;
}
function Transport() {
  const mute = ({ currentTarget }) => { $("video").muted = !$("video").muted; currentTarget.setAttribute("aria-pressed", String($("video").muted)); };
  return html`<div class="transport">
    <${PlayButton} plays=${playing} act=${toggle} />
    <output id="clock" aria-live="off" />
    <${Button} id="sound" aria-label="Mute" aria-pressed="false" hidden=${Boolean(film.trouble) || report.proxy} onClick=${mute}><svg width="16" height="14" viewBox="0 0 16 14" aria-hidden="true"><path d="M1 5v4h3l4 3.5v-11L4 5z" /><path d="M10 4.2v1.2a2 2 0 0 1 0 3.2v1.2a3.2 3.2 0 0 0 0-5.6zm0-2.9v1.1a5 5 0 0 1 0 9.2v1.1a6.1 6.1 0 0 0 0-11.4z" /></svg><//>
    <${SpeedMenu} act=${({ target }) => { rate = Number(target.value); $("video").playbackRate = rate; }} />
  </div>`;
}
function Page() {
  const chunk = chunkAt(now), best = ranked(chunk, 3), shown = shownIndices();
  return html`${report.index && html`<nav id="ways" aria-label="Other videos"><a href=${report.index}>← All videos</a></nav>`}
  <main>
    <div class="left">
      <section class="card" aria-label="Player"><${Film} label="The video" tabindex="-1" onClick=${toggleFilm}><${People} people=${peopleAt.get(chunk)} /><//><${Transport} /></section>
      <${Decision} chunk=${chunk} best=${best} />
    </div>
    <div class="right">
      <section class="card" id="timeline" aria-label="Timeline">
        <div class="heading"><h2>Timeline</h2><${Filters} /><${Zoom} /></div>
        <${Lanes} overview="All segments of the video" tight=${laneHeight < 40} resized=${() => { widenNames(names); draw(); }} hidden=${!shown.length} onPointerMove=${hover} onPointerLeave=${leave} onPointerCancel=${leave}
          over=${html`<div id="pointer" hidden />`}>${shown.map((index) => html`<${LaneRow} key=${index} index=${index} shown=${shown} chunk=${chunk} best=${best[0]?.index} />`)}<//>
        ${!shown.length && html`<p id="nothing">No class is shown. Choose some above.</p>`}
        <${Legend} entries=${legend()} />
        ${canTry && html`<${Rules} />`}
      </section>
      <${Segments} />
    </div>
  </main>
  <${About} />
  <div id="tip" role="presentation" hidden />`;
}
const draw = () => render(html`<${Page} />`, $("app"));
/* All that depends on segments, labels and filters. */
function refresh() {
  overview = null;
  stamp++;
  compare();
  listSegments();
  showFacts(facts());
  draw();
  redraw();
}

/* The cursor: the video leads it where it plays, a clock does where it cannot. */
let rate = 1, lastTick = 0, shownChunk = -2;
function playOn(tick) {
  if (playing) now = watchable ? filmTime() : Math.min(duration, now + (lastTick ? (tick - lastTick) / 1000 * rate : 0));
  lastTick = playing ? tick : 0;
  if (playing && !watchable && now >= duration) filmPlays(false);
  return playing;
}
function showMoment() {
  const chunk = chunkAt(now);
  $("clock").textContent = clock(now) + " / " + clock(duration);
  drawOverview((pen, toX, height, ratio) => {
    hatch(pen, gaps, toX, height, ratio);
    const labels = truth ? truth.filter(shows) : [], some = (wanted) => spansOf(labels.filter((label) => Boolean(label.found) === wanted));
    drawStrip(pen, toX, height, ratio, segments.filter(passes).map((segment) => ({ ...segment, isFalse: isFalse(segment) })), truth && some(true), some(false));
  });
  if (chunk === shownChunk) return;
  shownChunk = chunk;
  draw();
  followRows();
}
const momentText = () => clock(now) + ", " + $("decision").textContent + " " + $("decision-score").textContent;
function seek(time) {
  now = Math.max(0, Math.min(duration, time));
  seekFilm();
  lookAtCursor();
}
/* The chunk that the keys step from; in the tail, one past the last. */
const stepFrom = () => (chunkAt(now) < 0 ? chunks : Math.floor((now - begin) / step + 1e-6));
function toggle() {
  if (!playing && now >= duration - 1e-3) seek(0);
  if (watchable) toggleFilm(); else filmPlays(!playing);
}
/* The address of a video that the page itself holds, or null. */
function embedded() {
  const holder = $("media");
  if (!holder) return null;
  const text = holder.textContent;
  holder.remove(); /* so that the text and the bytes are not both in memory */
  return URL.createObjectURL(new Blob([bytesOf(text)], report.embedded));
}
function openVideo() {
  const address = report.video || embedded();
  openFilm({ address, name: timeline.name ?? lastPart(timeline.source ?? "the video"), ahead: report.ahead, trouble: address ? null : ["No video next to this report", "The timeline works without it."] });
}

function hover(event) {
  if (event.pointerType === "touch") return;
  const surface = $("surface"), tip = $("tip"), time = timeAt(surface, event.clientX, view), best = ranked(chunkAt(time), 3);
  render(html`<b>${clock(time)}</b>${best.map(({ index, score }) => html`<div><${Spot} label=${classes[index]} /><span class="cut">${classes[index]}</span><span>${scoreText(score)}</span></div>`)}${!best.length && html`<div class="soft">no decision</div>`}`, tip);
  tip.hidden = $("pointer").hidden = false;
  $("pointer").style.transform = "translateX(" + (event.clientX - surface.getBoundingClientRect().left) + "px)";
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - box.height - 8);
  tip.style.transform = "translate(" + Math.max(4, left) + "px," + Math.max(4, top) + "px)";
}
function leave() { $("tip").hidden = $("pointer").hidden = true; }
onKeys((event) => {
  leave();
  return {
    " ": toggle,
    ArrowLeft: () => seek(event.shiftKey ? now - 1 : begin + (Math.ceil((now - begin) / step - 1e-6) - 1) * step),
    ArrowRight: () => seek(event.shiftKey ? now + 1 : begin + (stepFrom() + 1) * step),
    x: () => seekError(1), X: () => seekError(-1),
    n: () => seekSegment(1), p: () => seekSegment(-1),
    ...zoomKeys,
    ...(event.target === $("surface") && { Home: () => seek(0), End: () => seek(duration), PageUp: () => seek(now + 10), PageDown: () => seek(now - 10) }),
  };
});

const laneHeight = names.length <= 9 ? 50 : names.length <= 21 ? 40 : 30;
document.title = title + " – action timeline";
$("title").textContent = title;
document.documentElement.style.setProperty("--lane", laneHeight + "px");
followTheme(() => { overview = null; redraw(); });
refresh();
widenNames(names);
lookAtAll();
$("plot").addEventListener("wheel", leave);
/* an embedded video stands after this script, so that the page is there before it */
document.addEventListener("DOMContentLoaded", openVideo);
