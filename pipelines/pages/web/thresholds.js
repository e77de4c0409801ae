/* Other thresholds, by the sliders below the lanes. As --on and --off they hold for all classes. */
const tried = { on: null, off: null, min_length: null, merge_gap: null };
const rules = sharedRules(timeline.thresholds || {});
const canTry = Boolean(timeline.thresholds) && codes.some((code) => code !== missing);
const uniform = "on" in rules && "off" in rules;
const storedRule = (label) => (typeof timeline.thresholds.on === "number" ? rules : timeline.thresholds[label]) || {};
const tries = () => Object.values(tried).some((value) => value !== null);
const isDecided = (label) => classOf.get(label) < classes.length && !UNDECIDABLE.includes(label);
const ruleOf = (label) => (timeline.thresholds && isDecided(label) ? changedRules(storedRule(label), tried) : null);
/* The only rule, or of rules by class what is the same for all actions, as a minimum length that `lstr learn` chooses. */
function sharedRules(stored) {
  if (typeof stored.on === "number") return stored;
  const [first, ...others] = classes.filter((label) => !UNDECIDABLE.includes(label)).map((label) => stored[label] || {});
  return Object.fromEntries(Object.entries(first || {}).filter(([key, value]) => others.every((rule) => rule[key] === value)));
}
const hundredths = (value) => Math.round(value * 100) / 100;
let offWanted = uniform ? rules.off : DEFAULT_RULES.off; /* comes back when `on` has been moved below it and up again */

function tryOn(on) {
  tried.on = Math.max(0.01, Math.min(1, hundredths(on)));
  tried.off = Math.min(offWanted, tried.on);
  redecide();
}
function tryOff(off) {
  offWanted = tried.off = hundredths(off);
  tried.on = Math.max(tried.on ?? (uniform ? rules.on : DEFAULT_RULES.on), offWanted);
  redecide();
}
function trySeconds(name, seconds) {
  if (!(seconds >= 0)) return;
  tried[name] = seconds;
  redecide();
}
function asDetected() {
  for (const name of Object.keys(tried)) tried[name] = null;
  offWanted = uniform ? rules.off : DEFAULT_RULES.off;
  redecide();
}

let redeciding = false;
function redecide() {
  if (!redeciding) requestAnimationFrame(() => { redeciding = false; decideAll(); });
  redeciding = true;
}
/* Without changes the run's own segments return: their scores are not rounded. */
function decideAll() {
  const actions = [...classes.keys()].filter((index) => !UNDECIDABLE.includes(classes[index]));
  const found = classes.map((label, index) => {
    const rule = tries() ? ruleOf(label) : null, curve = codes.subarray(index * chunks, (index + 1) * chunks);
    const counts = rule?.highest ? highestOf(codes, chunks, index, actions) : undefined;
    return { rule, runs: rule ? decideRuns(curve, { fullScale, missing, step, begin }, rule, counts) : [] };
  });
  const named = (run, at) => ({ ...run, label: classes[at], score: Math.round(run.score * 1e4) / 1e4 });
  segments = tries() ? backdated(found, { step, begin }).flatMap((runs, at) => runs.map((run) => named(run, at))).sort(byStart) : detected;
  refresh();
}

/* What to type for these thresholds; empty where each class has its own. */
function commandWords() {
  const words = [], say = (option, value) => words.push(option + " " + Number(value.toFixed(4)));
  if (tried.on !== null || uniform) {
    say("--on", tried.on ?? rules.on);
    say("--off", tried.off ?? rules.off);
  }
  for (const [name, option] of [["min_length", "--min-length"], ["merge_gap", "--merge-gap"]]) {
    const value = tried[name] ?? (uniform ? rules[name] : null);
    if (value !== null && (value || tried[name] !== null)) say(option, value);
  }
  return words.join(" ");
}
function Rules() {
  const shown = changedRules(uniform ? rules : {}, tried), own = !uniform && tried.on === null, words = commandWords();
  const slider = (name, text, label, least, act) => html`<label class="slider" for=${name}>${text} <input type="range" id=${name} min=${least} max="1" step="0.01" aria-label=${label} value=${shown[name]} onInput=${({ target }) => act(Number(target.value))} />
    <output for=${name} aria-live="off">${own ? "by class" : shown[name].toFixed(2)}</output></label>`;
  const seconds = (name, text, label) => html`<label>${text} <input type="number" id=${name} min="0" step="0.25" aria-label=${label} value=${unlessTyping(name, tried[name] ?? rules[name] ?? (uniform ? 0 : ""))}
    onInput=${({ target }) => { if (target.value !== "") trySeconds(name, Number(target.value)); }} /> s</label>`;
  return html`<div id="rules" role="group" aria-label="Thresholds of all classes">
    ${slider("on", "Start threshold", "Start threshold: score at which an action starts", "0.01", tryOn)}${slider("off", "End threshold", "End threshold: score below which an action ends", "0", tryOff)}
    ${seconds("min_length", "Minimum length", "Minimum length of an action in seconds")}${seconds("merge_gap", "Join gaps up to", "Maximum gap that is joined, in seconds")}
    <${Button} id="as-detected" disabled=${!tries()} onClick=${asDetected}>Reset<//>
    <${Button} id="copy" title="Copy the options for lstr detect" disabled=${!words} onClick=${copyWords}><code id="words">${words || "thresholds by class"}</code><b>Copy</b><//>
    <span id="copied" role="status">${copied}</span>
  </div>`;
}
/* A field in which a person is typing keeps its text. */
const unlessTyping = (id, value) => (document.activeElement?.id === id ? undefined : value);
let copied = "";
function copyWords() {
  const say = (text) => { copied = text; draw(); };
  copyText(commandWords(), $("words"), say);
  setTimeout(say, 2000, "");
}
