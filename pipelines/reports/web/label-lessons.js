/* Learning from the labels: a button, how far it is, and the last models with what each of them catches. */
let lessons = { lessons: [], next: "", kept: 5 }, lesson = { version: -1, number: null, run: null };
let fetched = -1, openLesson = 0, newestLesson = 0; /* the number of the model whose details are shown, and of the newest */
const TIMES_TO_LEARN = [["", "all the time it needs"], ["720", "at most 12 minutes"], ["3600", "at most 1 hour"], ["own", "at most …"]];

/* "40 s", "3 min", "2 h 5 min" of seconds. */
function lengthText(seconds) {
  if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h" + (minutes % 60 ? " " + minutes % 60 + " min" : "");
}
const rateNumber = (rate) => (rate === 0 || rate >= 10 ? String(Math.round(rate)) : rate.toPrecision(2));
const intervalText = (edges, text) => (edges ? " [" + text(edges[0]) + ", " + text(edges[1]) + "]" : "");
const caughtText = ({ found, labels }) => (labels ? "caught " + found + " of " + labels + " (" + Math.round(found / labels * 100) + " %)" : "not labelled there");
/* "2 false alarms in 10 min: 12 an hour [1, 44]" */
function alarmsText({ false_alarms: count, rate, interval }, hours) {
  const counted = countText(count, "false alarm").replace(/^0 /, "no ") + (hours ? " in " + lengthText(hours * 3600) : "");
  return rate === null ? counted : counted + ": " + rateNumber(rate) + " an hour" + intervalText(interval, rateNumber);
}
const calledText = ({ number, name }) => "Model " + number + (name ? ": " + name : "");
const inSentence = (text) => text[0].toUpperCase() + text.slice(1);
const paragraph = (text, className = "") => make("p", className, text);

function button(text, act, className = "") {
  const one = make("button", className, text);
  one.type = "button";
  one.addEventListener("click", act);
  return one;
}
/* A command to copy; where the clipboard is closed its text is chosen instead. */
function command(text, label) {
  const line = make("div", "command"), code = make("code", "", text);
  code.tabIndex = 0;
  code.title = text;
  code.setAttribute("aria-label", label);
  line.append(code, button("Copy", async () => {
    try {
      await navigator.clipboard.writeText(text);
      tell("Copied");
    } catch {
      getSelection().selectAllChildren(code);
      tell("Chosen: copy it with ctrl C");
    }
  }));
  return line;
}

async function askLessons(deed, content = {}) {
  try {
    const answer = await fetch("/lessons/" + deed, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ project: report.project, ...content }) });
    if (answer.ok) return showLesson(await answer.json());
    const { error, hint } = await answer.json();
    tell(error + " " + hint);
  } catch {
    tell("Nothing answers: is lstr label still running?");
  }
}
/* A state from the stream of events; what has been learnt is fetched when it is another. */
async function showLesson(state) {
  if (state.version < lesson.version) return;
  lesson = state;
  showRun();
  if (state.version === fetched) return;
  fetched = state.version;
  try {
    lessons = await (await fetch("/lessons")).json();
    fetched = lessons.version;
    showLessons();
    showRun();
  } catch {
    fetched = -1; /* the next event tries again */
  }
}

/* What can be begun, or what goes on. */
function showRun() {
  const { run, number } = lesson, unfinished = lessons.lessons.find(({ state }) => state === "stopped" || state === "failed");
  const left = (id) => $(id).contains(document.activeElement), goes = run ? left("learn-new") || left("learn-unfinished") : left("learn-run");
  $("learn-new").hidden = Boolean(run);
  $("learn-run").hidden = !run;
  if (goes) $(run ? "learn-stop" : "learn").focus({ preventScroll: true }); /* what had the focus is hidden now */
  $("learn-unfinished").hidden = Boolean(run) || !unfinished;
  if (run) showProgress(run, number);
  else if (unfinished) showUnfinished(unfinished);
  else $("learn-said").textContent = "";
  showWhatIsLearnt();
}
function showWhatIsLearnt() {
  const known = videos.filter(({ id }) => aboutOf(id).complete || Object.values(labelsOf(id)).some(({ end }) => end !== null));
  const count = known.reduce((sum, { id }) => sum + Object.values(labelsOf(id)).filter(({ action, end }) => action !== nothing && end !== null).length, 0);
  $("learn-from").textContent = count ? "From " + countText(count, "label") + " in " + countText(known.length, "video") + ", as they are when you press the button."
    : "Label an action in a few videos first.";
  $("learn").disabled = !count;
}
function showProgress({ steps, number, done, total, left, told, warnings }, of) {
  const list = $("learn-steps"), now = steps[number - 1];
  list.replaceChildren(...steps.map((name, at) => {
    const item = make("li", at + 1 < number ? "over" : at + 1 === number ? "on" : "", inSentence(name));
    if (at + 1 === number) item.setAttribute("aria-current", "step");
    return item;
  }));
  const part = total ? done / total : 0;
  $("learn-bar").style.setProperty("--part", part);
  $("learn-bar").parentElement.setAttribute("aria-valuenow", Math.round(part * 100));
  $("learn-left").textContent = "Model " + of + ": " + (left === null ? told || "starting …" : "about " + lengthText(left) + " left in all" + (now && total ? "; this step " + Math.round(part * 100) + " %" : ""));
  const said = now ? "Step " + number + " of " + steps.length + ": " + now : "";
  if ($("learn-said").textContent !== said) $("learn-said").textContent = said; /* a screen reader hears each step once */
  showSentences($("learn-warnings"), warnings);
}
function showSentences(list, texts) {
  list.hidden = !texts.length;
  if (list.childElementCount !== texts.length) list.replaceChildren(...texts.map((text) => make("li", "", text)));
}
function showUnfinished({ number, state, error, hint, warnings }) {
  const stopped = state === "stopped", box = $("learn-unfinished");
  const act = (text, deed) => button(text, () => askLessons(deed, { number }));
  const buttons = make("div", "buttons");
  buttons.append(act(stopped ? "Go on" : "Try again", "go-on"), act("Remove", "remove"));
  box.replaceChildren(paragraph("Model " + number + (stopped ? " was stopped. It goes on where it was." : " could not be learnt: " + error), stopped ? "" : "wrong"));
  if (!stopped && hint && !hint.includes("[[")) box.append(paragraph(hint, "soft"));
  if (!stopped && warnings.length) box.append(make("ul", "warned"));
  if (!stopped && warnings.length) showSentences(box.lastElementChild, warnings);
  box.append(buttons, paragraph("Learning anew takes the labels of now, and removes it.", "soft"));
}

/* The models, each a line that opens. */
function showLessons() {
  const learnt = lessons.lessons.filter(({ state }) => state === "learnt"), recent = learnt.slice(0, lessons.kept), older = learnt.slice(lessons.kept);
  const newest = learnt[0]?.number ?? 0, focused = document.activeElement.id;
  if (newest !== newestLesson) {
    openLesson = newestLesson = newest;
    followProposals(); /* the newest model proposes */
  }
  showCommand();
  $("models").replaceChildren(...recent.map(modelCard));
  if (older.length) {
    const fold = make("details", "older");
    fold.append(make("summary", "", countText(older.length, "older model")), ...older.map(modelCard));
    $("models").append(fold);
  }
  if (focused && document.activeElement === document.body) $(focused)?.focus();
}
function showCommand() {
  const seconds = secondsToLearn(), time = seconds ? " --time " + seconds / 60 + "m" : "";
  $("learn-command").replaceChildren(command(lessons.next + time, "The command that does the same"));
}
function secondsToLearn() {
  const chosen = $("learn-time").value;
  return chosen === "own" ? Number($("learn-minutes").value) * 60 : chosen ? Number(chosen) : null;
}
function modelCard(one) {
  const { number, begun, measured: { together, hours } } = one, card = make("details", "model"), line = make("summary");
  card.dataset.number = number;
  const when = new Date(begun * 1000).toLocaleString("en", { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", hour12: false });
  line.append(make("b", "", calledText(one)), make("span", "soft", when + (one.used ? " · in use" : "")), make("span", "result", inSentence(caughtText(together)) + ", " + alarmsText(together, hours)));
  card.append(line);
  line.id = "model-" + number;
  card.open = number === openLesson;
  const fill = () => { if (card.open && card.childElementCount === 1) card.append(modelDetails(one)); };
  line.addEventListener("click", () => { openLesson = card.open ? 0 : number; }); /* before it opens or closes */
  card.addEventListener("toggle", fill);
  fill();
  return card;
}
function modelDetails(one) {
  const { number, name, model, measured, differences, warnings, used } = one, box = make("div", "details");
  const precision = measured.mAP === null ? "" : "; frame by frame (mAP) " + scoreText(measured.mAP) + intervalText(measured.interval, scoreText);
  box.append(paragraph("Learnt from " + countText(one.labels, "label") + " in " + countText(one.videos, "video") + "; " + measured.split + precision + ".", "soft"));
  box.append(actionTable(measured));
  box.append(paragraph("In brackets: where the true figure is with 95 % certainty. Few minutes of video leave it wide.", "soft"));
  if (warnings.length) {
    const fold = make("details"), list = make("ul", "warned");
    showSentences(list, warnings);
    fold.append(make("summary", "", countText(warnings.length, "remark") + " on the labels"), list);
    box.append(fold);
  }
  const before = lessons.lessons.find((other) => other.state === "learnt" && other.number < number);
  if (differences) box.append(differenceBox(differences, number));
  else if (before) box.append(paragraph("Not compared with model " + before.number + ": what one was measured on, the other has learnt from.", "soft"));
  const buttons = make("div", "buttons"), field = make("input");
  field.type = "text";
  field.maxLength = 200;
  field.placeholder = "Name, to keep it";
  field.value = name;
  field.setAttribute("aria-label", "Name of model " + number);
  field.id = "model-name-" + number;
  field.addEventListener("change", () => askLessons("name", { number, name: field.value.trim() }));
  if (one.report) {
    const link = make("a", "", "Report");
    link.href = "/lessons/" + number + "/report/report.html";
    link.target = "_blank";
    buttons.append(link);
  }
  const use = button(used ? "In use" : "Use this one", () => askLessons("use", { number }));
  use.title = "Let lstr detect take it where no model is named";
  use.disabled = used;
  use.id = "use-model-" + number;
  buttons.append(use, field);
  box.append(buttons, command("lstr detect VIDEO -m " + quoted(model) + " -o timeline", "The command that detects with model " + number));
  const fold = make("details");
  fold.append(make("summary", "", "The command that makes the same model"), command(one.command, "The command that makes model " + number));
  box.append(fold);
  return box;
}
const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : "'" + path.replaceAll("'", "'\"'\"'") + "'");

function actionTable({ actions, hours }) {
  const shown = Object.entries(actions).filter(([, one]) => one.labels || one.false_alarms).sort(([, one], [, other]) => other.labels - one.labels);
  const table = make("table"), head = make("tr");
  for (const text of ["Action", "Caught", "False alarms", "An hour"]) head.append(make("th", "", text));
  table.append(head, ...shown.map(([name, one]) => {
    const row = make("tr"), action = make("th");
    action.scope = "row";
    action.append(spot(name), make("span", "", name));
    row.append(action, make("td", "", one.labels ? one.found + " of " + one.labels : "–"), make("td", "", String(one.false_alarms)),
      make("td", "", hours ? rateNumber(one.rate) + intervalText(one.interval, rateNumber) : "–"));
    return row;
  }));
  return table;
}

/* What is better and worse than the model before, each moment a button that goes there. */
function differenceBox({ verdict, old, caught, missed, gone, come, actions, left_out: leftOut, videos: compared }, number) {
  const box = make("div", "differences"), groups = [
    ["yes", "caught now, missed before", caught], ["no", "missed now, caught before", missed],
    ["yes", countText(gone.length, "false alarm").split(" ").slice(1).join(" ") + " gone", gone], ["no", "new " + countText(come.length, "false alarm").split(" ").slice(1).join(" "), come],
  ];
  const sum = (name) => Object.values(actions).reduce((whole, one) => whole + one[name], 0), then = (before, after) => (before === after ? String(after) : after + ", before " + before);
  box.append(make("h3", "", "Better or worse than model " + old),
    paragraph("Of " + countText(sum("labels"), "label") + " it catches " + then(sum("found_old"), sum("found_new")) + "; false alarms: " + then(sum("false_old"), sum("false_new")) + "."),
    paragraph(inSentence(verdict.sentence), "soft"));
  for (const [sign, text, moments] of groups) {
    if (!moments.length) continue;
    const fold = make("details", "moments"), list = make("ul");
    fold.open = moments.length <= 12;
    fold.append(make("summary", sign, moments.length + " " + text + " (" + byAction(moments) + ")"), list);
    const rows = moments.slice(0, 200).map((moment) => {
      const item = make("li"), go = button("", () => goMoment(moment));
      go.append(spot(moment.action), make("span", "cut", moment.action), make("span", "cut soft", moment.video), make("span", "time", clockText(moment.start, 1) + " – " + clockText(moment.end, 1)));
      item.append(go);
      return item;
    });
    list.append(...rows);
    if (moments.length > rows.length) list.append(make("li", "soft", "and " + (moments.length - rows.length) + " more"));
    box.append(fold);
  }
  if (!groups.some(([, , moments]) => moments.length)) box.append(paragraph("Both catch the same, with the same false alarms."));
  const changed = Object.entries(actions).filter(([, one]) => one.found_old !== one.found_new || one.false_old !== one.false_new);
  if (changed.length) {
    const table = make("table"), head = make("tr");
    for (const text of ["Action", "Labels", "Caught", "False alarms"]) head.append(make("th", "", text));
    const arrow = (before, after) => (before === after ? String(after) : before + " → " + after);
    table.append(head, ...changed.map(([name, one]) => {
      const row = make("tr"), action = make("th");
      action.scope = "row";
      action.append(spot(name), make("span", "", name));
      row.append(action, make("td", "", String(one.labels)), make("td", "", arrow(one.found_old, one.found_new)), make("td", "", arrow(one.false_old, one.false_new)));
      return row;
    }));
    box.append(table);
  }
  const about = "On the " + countText(compared.length, "video") + (compared.length === 1 ? " that was" : " that were") + " held out for both or new to model " + old + ", judged by the labels that model " + number + " has learnt from.";
  box.append(paragraph(about + (leftOut.length ? " Left out, for only one of the two knows it: " + leftOut.join(", ") + "." : ""), "soft"));
  return box;
}
function byAction(moments) {
  const counts = new Map();
  for (const { action } of moments) counts.set(action, (counts.get(action) ?? 0) + 1);
  return [...counts].map(([action, count]) => action + (counts.size > 1 ? " " + count : "")).join(", ");
}
async function goMoment({ video, start, end }) {
  const at = videos.findIndex(({ id }) => id === video);
  if (at < 0) return tell(video + " is not among these videos");
  if (at !== chosenVideo) await goVideo(at);
  setRate(0);
  look(start - Math.max(2, end - start), 3 * Math.max(2, end - start));
  seek(start);
  $("timeline").scrollIntoView({ block: "nearest" });
  $("surface").focus({ preventScroll: true });
}

function buildLessons() {
  const times = $("learn-time");
  times.replaceChildren(...TIMES_TO_LEARN.map(([value, text]) => Object.assign(make("option", "", text), { value })));
  times.addEventListener("change", () => {
    $("learn-own").hidden = times.value !== "own";
    if (times.value === "own") $("learn-minutes").focus();
    showCommand();
  });
  $("learn-minutes").addEventListener("input", showCommand);
  $("learn-form").addEventListener("submit", (event) => {
    event.preventDefault();
    askLessons("begin", { seconds: secondsToLearn() });
  });
  $("learn-stop").addEventListener("click", () => askLessons("stop"));
  showRun();
}
