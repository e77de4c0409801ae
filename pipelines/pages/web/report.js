/* Header and footer, pointer and keys; then everything begins. */
const speedNames = {
  seconds: "Processing time, s", decisions_per_second: "Decisions per second", realtime_factor: "Times real time",
  lstr_step_ms_median: "LSTR step, median ms",
};
function flat(values, prefix = "") {
  return Object.entries(values || {}).flatMap(([key, value]) => {
    const name = prefix + (speedNames[key] || (prefix ? key : key[0].toUpperCase() + key.slice(1)).replaceAll("_", " "));
    return value && typeof value === "object" && !Array.isArray(value) ? flat(value, name + ", ") : [[name, value]];
  });
}
function videoText() {
  const copy = report.proxy ? "a small H.264 copy, for browsers do not play the original" : "";
  if (report.embedded) return "inside this page" + (copy && ", as " + copy);
  let address = report.video;
  try { address = decodeURI(address); } catch { /* a name that is not UTF-8 stays as it is */ }
  return "linked: " + address + (copy && ", " + copy);
}
function showFacts() {
  const facts = $("facts");
  facts.replaceChildren();
  term(facts, "Duration", clock(duration, 0));
  term(facts, "Decisions", numberText(timeline.decided ?? chunks));
  term(facts, "Segments", numberText(segments.length));
  if (truth && verdict.labelled) term(facts, "Labels found", verdict.found + " of " + numberText(verdict.labelled));
  if (truth && (verdict.labelled || verdict.falseAlarms)) term(facts, "False alarms", numberText(verdict.falseAlarms));
  if (verdict.delay !== null) term(facts, "Median delay", signed(verdict.delay));
}
function describe() {
  const name = timeline.name ?? lastPart(timeline.source ?? "Action timeline"), { recipe, checkpoint, speed } = timeline;
  document.title = name + " – action timeline";
  $("title").textContent = name;
  warn(timeline.warnings);

  const paths = (text) => (typeof text === "string" ? text : JSON.stringify(text));
  const whole = report.recipe || (recipe && typeof recipe === "object" ? recipe : null);
  const id = typeof recipe === "string" ? recipe : recipe && (recipe.id || recipe.recipe_id);
  const run = $("run");
  term(run, "Source", paths(timeline.source ?? "–"), "wide");
  if (report.video || report.embedded) term(run, "Video", videoText(), "wide");
  term(run, "Model", paths(checkpoint ?? "–"), "wide");
  const streamsOf = new Map(); /* one line, however many networks began so */
  for (const [stream, origin] of Object.entries(report.origins)) streamsOf.set(origin, [...(streamsOf.get(origin) || []), stream]);
  for (const [origin, streams] of streamsOf) {
    const names = streams.slice(0, -1).join(", ") + (streams.length > 1 ? " and " : "") + streams.at(-1);
    term(run, "Its " + names + " network" + (streams.length > 1 ? "s" : "") + " began with", origin, "wide");
  }
  if (timeline.live?.began) term(run, "Began", timeline.live.began.replace("T", " "), "wide");
  term(run, "Duration", numberText(duration) + " s");
  term(run, "Decisions", numberText(timeline.decided ?? chunks) + ", one each " + numberText(step) + " s");
  term(run, "Classes", numberText(classes.length - 1) + " and " + (classes[0] ?? "none"));
  if (gaps.length) term(run, "Gaps", gaps.length + ", " + numberText(gaps.reduce((sum, [start, end]) => sum + end - start, 0)) + " s");
  if (typeof rules.on === "number") term(run, "Thresholds", "on at " + numberText(rules.on) + ", off below " + numberText(rules.off));
  else if (timeline.thresholds) term(run, "Thresholds", "of each class, from validation data");
  for (const [key, name] of [["min_length", "Shortest action"], ["merge_gap", "Gap closed"]]) {
    if (rules[key]) term(run, name, numberText(rules[key]) + " s");
  }
  if (Object.values(timeline.thresholds || {}).some((rule) => rule === true || rule?.highest)) term(run, "One at a time", "the action with the highest score");
  const backdates = Object.entries(typeof rules.on === "number" ? { "all actions": rules } : timeline.thresholds || {}).filter(([, rule]) => rule?.backdate);
  if (backdates.length) term(run, "Starts backdated", backdates.map(([label, { backdate }]) => label + " " + numberText(backdate) + " s").join(", "), "wide");
  for (const [key, value] of flat(speed)) term($("speed"), key, numberText(value));
  if (id) term($("speed"), "Recipe of the features", id);
  if (whole) $("recipe").textContent = JSON.stringify(whole, null, 2);
  $("recipe").hidden = !whole;
  $("details").hidden = !speed && !id && !whole;
  $("legend-onset").hidden = !timeline.thresholds;
  $("legend-expected").hidden = !expected.length;
  $("legend-gap").hidden = !gaps.length;
}
/* All that depends on segments, labels and filters. */
function refresh() {
  overview = null;
  compare();
  fillLanes();
  showFilters();
  showFacts();
  showLanes();
  listSegments();
  showRules();
  showReview();
  $("legend-announced").hidden = !segments.some(({ announced }) => announced !== undefined);
  $("legend-false").hidden = !segments.some(isFalse);
  $("legend-truth").hidden = $("legend-missed").hidden = $("labelled").hidden = !truth;
  shown = -2; /* what is labelled at the cursor may have changed */
}

function hover(event) {
  if (event.pointerType === "touch") return;
  const surface = $("surface"), tip = $("tip"), time = timeAt(surface, event.clientX, view), chunk = chunkAt(time);
  const best = ranked(chunk, 3).map(({ index, score }) => {
    const line = make("div");
    line.append(spot(classes[index]), make("span", "cut", classes[index]), make("span", "", scoreText(score)));
    return line;
  });
  tip.replaceChildren(make("b", "", clock(time)), ...(best.length ? best : [make("div", "soft", "no decision")]));
  tip.hidden = $("pointer").hidden = false;
  $("pointer").style.transform = "translateX(" + (event.clientX - surface.getBoundingClientRect().left) + "px)";
  const box = tip.getBoundingClientRect();
  const left = event.clientX + 16 + box.width > innerWidth ? event.clientX - 16 - box.width : event.clientX + 16;
  const top = Math.min(event.clientY + 14, innerHeight - box.height - 8);
  tip.style.transform = "translate(" + Math.max(4, left) + "px," + Math.max(4, top) + "px)";
}
function leave() { $("tip").hidden = $("pointer").hidden = true; }
function key(event) {
  if (reviewKey(event)) return event.preventDefault();
  if (event.ctrlKey || event.metaKey || event.altKey) return;
  const { tagName, type } = event.target;
  if (tagName === "SELECT" || ["search", "range", "text", "number"].includes(type)) return;
  if (event.key === " " && /^(BUTTON|SUMMARY|INPUT|A)$/.test(tagName)) return;
  if (tagName === "PRE" && event.key !== " ") return;
  const actions = {
    " ": toggle,
    ArrowLeft: () => seek(event.shiftKey ? now - 1 : begin + (Math.ceil((now - begin) / step - 1e-6) - 1) * step),
    ArrowRight: () => seek(event.shiftKey ? now + 1 : begin + (stepFrom() + 1) * step),
    x: () => seekError(1), X: () => seekError(-1),
    n: () => seek(neighbour(1) ?? now), p: () => seek(neighbour(-1) ?? now), N: () => go("after"), P: () => go("before"),
    ...zoomKeys,
  };
  if (event.target === $("surface")) {
    Object.assign(actions, { Home: () => seek(0), End: () => seek(duration), PageUp: () => seek(now + 10), PageDown: () => seek(now - 10) });
  }
  if (!actions[event.key]) return;
  event.preventDefault();
  actions[event.key]();
}

describe();
buildLanes();
buildRules();
buildRows();
buildReview();
buildFilters();
buildZoom();
followTheme(() => { overview = null; axisDirty = true; redraw(); });
buildWays();
refresh();
lookAtAll();
followWay();
$("surface").setAttribute("aria-valuemax", duration.toFixed(2));
scrub($("surface"), () => view, true);
scrub($("axis"), () => view);
scrub($("overview"), () => [0, duration]);
$("surface").addEventListener("pointermove", hover);
for (const kind of ["pointerleave", "pointercancel"]) $("surface").addEventListener(kind, leave);
$("plot").addEventListener("wheel", wheel, { passive: false });
$("play").addEventListener("click", toggle);
$("error-before").addEventListener("click", () => seekError(-1));
$("error-after").addEventListener("click", () => seekError(1));
$("which").addEventListener("change", refresh);
$("sound").addEventListener("click", () => {
  video.muted = !video.muted;
  $("sound").setAttribute("aria-pressed", String(video.muted));
});
$("rate").addEventListener("change", () => { video.playbackRate = Number($("rate").value); });
document.addEventListener("keydown", key);
new ResizeObserver(() => { widenNames(); axisDirty = true; redraw(); showRows(); }).observe($("plot"));
/* an embedded video stands after this script, so that the page is there before it */
document.addEventListener("DOMContentLoaded", openVideo);
