/* Training on the labels: a button, the progress, and the models with their results. */
let training = { progress: null, warnings: [], error: "", hint: "", models: [], command: "" }, latestModel = 0;
const TIME_LIMITS = [["", "no time limit"], ["720", "at most 12 minutes"], ["3600", "at most 1 hour"], ["own", "at most …"]];

/* "40 s", "3 min", "2 h 5 min" of seconds. */
function lengthText(seconds) {
  if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h" + (minutes % 60 ? " " + minutes % 60 + " min" : "");
}
const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : "'" + path.replaceAll("'", "'\"'\"'") + "'");
const inSentence = (text) => text[0].toUpperCase() + text.slice(1);

/* Show a command to copy. */
function showCommand(line, text, label) {
  const code = make("code", "", text), copy = make("button", "", "Copy");
  code.tabIndex = 0;
  code.setAttribute("aria-label", label);
  copy.type = "button";
  copy.addEventListener("click", () => copyText(text, code, tell));
  line.replaceChildren(code, copy);
}
function timeLimit() {
  const chosen = $("train-time").value;
  return chosen === "own" ? Number($("train-minutes").value) * 60 : chosen ? Number(chosen) : null;
}
function showTrainCommand() {
  const seconds = timeLimit();
  showCommand($("train-command"), training.command + (seconds ? " --time " + seconds / 60 + "m" : ""), "The command that trains such a model");
}

async function askTraining(deed, content = {}) {
  try {
    const answer = await fetch("/training/" + deed, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ project: report.project, ...content }) });
    if (answer.ok) return;
    const { error, hint } = await answer.json();
    tell(error + " " + hint);
  } catch {
    tell("Nothing answers: is lstr label still running?");
  }
}

/* Show a state from the stream of events. */
function showTraining(state) {
  const { progress, warnings, error, hint, models } = state, before = training;
  training = state;
  const form = $("train-form"), run = $("train-run"), focus = [form, run].some((part) => part.contains(document.activeElement));
  const changes = Boolean(progress) !== Boolean(before.progress);
  form.hidden = Boolean(progress);
  run.hidden = !progress;
  if (focus && changes) $(progress ? "train-stop" : "train").focus({ preventScroll: true }); /* what had the focus is hidden now */
  if (progress) showProgress(progress);
  else $("train-said").textContent = "";
  $("train-error").hidden = !error;
  $("train-error").textContent = error && "Training failed: " + error + " " + inSentence(hint || " ");
  $("train-warnings").hidden = !warnings.length;
  if (warnings.length !== before.warnings.length) {
    const [summary, list] = $("train-warnings").children;
    summary.textContent = countText(warnings.length, "warning");
    list.replaceChildren(...warnings.map((text) => make("li", "", text)));
  }
  if (state.command !== before.command) showTrainCommand();
  if (JSON.stringify(models) !== JSON.stringify(before.models)) showModels(models);
}
function showProgress({ number, step, steps, name, share, seconds_left: left }) {
  $("train-bar").style.setProperty("--part", share);
  $("train-bar").parentElement.setAttribute("aria-valuenow", Math.round(share * 100));
  const said = "Model " + number + ": " + (step ? "step " + step + " of " + steps + ", " + name : name + " …");
  $("train-left").textContent = said + (left === null ? "" : "; about " + lengthText(left) + " left in all");
  if ($("train-said").textContent !== said) $("train-said").textContent = said; /* a screen reader hears each step once */
}
function showModels(models) {
  const latest = models[0]?.number ?? 0;
  if (latest !== latestModel) followProposals(); /* the latest model proposes */
  latestModel = latest;
  $("models").replaceChildren(...models.map((one, at) => {
    const item = make("li"), line = make("p");
    item.id = "model-" + one.number;
    line.append(make("b", "", "Model " + one.number));
    if (one.report) {
      const link = Object.assign(make("a", "", "Report"), { href: "/training/" + one.number + "/report/report.html", target: "_blank" });
      line.append(" · ", link);
    }
    item.append(line, make("p", "", inSentence(one.result[0])), make("p", "soft", one.result[1]));
    if (!at) {
      const detect = make("div", "command");
      showCommand(detect, "lstr detect VIDEO -m " + quoted(one.path) + " -o timeline", "The command that detects with model " + one.number);
      item.append(detect);
    }
    return item;
  }));
}
function showTrainingLabels() {
  const known = videos.filter(({ id }) => aboutOf(id).complete || Object.values(labelsOf(id)).some(({ end }) => end !== null));
  const count = known.reduce((sum, { id }) => sum + Object.values(labelsOf(id)).filter(({ action, end }) => action !== nothing && end !== null).length, 0);
  $("train-from").textContent = count ? "On " + countText(count, "label") + " in " + countText(known.length, "video") + ", as they are when you press the button."
    : "Label an action in a few videos first.";
  $("train").disabled = !count;
}

function buildTraining() {
  const times = $("train-time");
  times.replaceChildren(...TIME_LIMITS.map(([value, text]) => option(value, text)));
  times.addEventListener("change", () => {
    $("train-own").hidden = times.value !== "own";
    if (times.value === "own") $("train-minutes").focus();
    showTrainCommand();
  });
  $("train-minutes").addEventListener("input", showTrainCommand);
  $("train-form").addEventListener("submit", (event) => {
    event.preventDefault();
    askTraining("begin", { seconds: timeLimit() });
  });
  $("train-stop").addEventListener("click", () => askTraining("stop"));
  showTrainingLabels();
}
