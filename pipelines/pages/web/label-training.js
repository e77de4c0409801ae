/* Training on the labels: a button, the progress, and the models with their results. */
let timeLimit = "", trainSaid = ""; /* trainSaid: for a screen reader, each step once */
let training = { progress: null, warnings: [], error: "", hint: "", models: [], command: "" };
const TIME_LIMITS = [["", "no time limit"], ["720", "at most 12 minutes"], ["3600", "at most 1 hour"]];

/* "40 s", "3 min", "2 h 5 min" of seconds. */
function lengthText(seconds) {
  if (seconds < 90) return Math.max(1, Math.round(seconds)) + " s";
  const minutes = Math.round(seconds / 60);
  return minutes < 90 ? minutes + " min" : Math.floor(minutes / 60) + " h" + (minutes % 60 ? " " + minutes % 60 + " min" : "");
}
const quoted = (path) => (/^[\w@%+=:,./-]+$/.test(path) ? path : "'" + path.replaceAll("'", "'\"'\"'") + "'");
const inSentence = (text) => text[0].toUpperCase() + text.slice(1);

/* A command to copy. */
function Command({ text, label }) {
  const copy = ({ currentTarget }) => copyText(text, currentTarget.previousElementSibling, notify);
  return html`<div class="command"><code tabindex="0" aria-label=${label}>${text}</code><${Button} onClick=${copy}>Copy<//></div>`;
}
const askTraining = (deed, content = {}) => post("/training/" + deed + "?project=" + report.project, content)
  .catch((error) => notify(error instanceof TypeError ? "No answer: is lstr label still running?" : error.message)); /* fetch throws a TypeError without an answer */

/* Show a state from the stream of events. */
function showTraining(state) {
  const before = training, parts = [$("train-form"), $("train-run")], hadFocus = parts.some((part) => part.contains(document.activeElement));
  training = state;
  const { progress, models } = state;
  trainSaid = progress ? saidOf(progress) : "";
  draw();
  if (hadFocus && Boolean(progress) !== Boolean(before.progress)) $(progress ? "train-stop" : "train").focus({ preventScroll: true }); /* what had the focus is hidden now */
  if ((models[0]?.number ?? 0) !== (before.models[0]?.number ?? 0)) followProposals(); /* the latest model proposes */
}
const saidOf = ({ number, step, steps, name }) => "Model " + number + ": " + (step ? "step " + step + " of " + steps + ", " + name : name + " …");
function ModelRow({ model: { number, path, result, report: hasReport }, isLatest }) {
  return html`<li id=${"model-" + number}><p><b>Model ${number}</b>${hasReport && html` · <a href=${"/training/" + number + "/report/report.html"} target="_blank">Report</a>`}</p>
    <p>${inSentence(result[0])}</p><p class="soft">${result[1]}</p>
    ${isLatest && html`<${Command} text=${"lstr detect VIDEO -m " + quoted(path) + " -o timeline"} label=${"The command that detects with model " + number} />`}</li>`;
}
function Training() {
  const known = videos.filter(({ id }) => aboutOf(id).complete || Object.values(labelsOf(id)).some(({ end }) => end !== null));
  const count = known.reduce((sum, { id }) => sum + Object.values(labelsOf(id)).filter(({ action, end }) => action !== nothing && end !== null).length, 0);
  const { progress, error, hint, warnings, models, command } = training, percent = progress && Math.round(progress.share * 100), seconds = timeLimit ? Number(timeLimit) : null;
  const chooseTime = ({ target }) => { timeLimit = target.value; draw(); };
  return html`<section class="card" id="training" aria-label="Train">
    <div class="heading"><h2>Train a model</h2><p class="soft" id="train-from">${count ? "On " + countText(count, "label") + " in " + countText(known.length, "video") + ", as they are when you press the button." : "Label an action in a few videos first."}</p></div>
    <form id="train-form" hidden=${Boolean(progress)} onSubmit=${(event) => { event.preventDefault(); askTraining("begin", { seconds }); }}>
      <button type="submit" id="train" class="primary" title="Train a model on all labels, in the background" disabled=${!count}>Train on these labels</button>
      <select id="train-time" aria-label="Time limit" onChange=${chooseTime}>${options(TIME_LIMITS)}</select>
      <details><summary>The command that does the same</summary><${Command} text=${command + (seconds ? " --time " + seconds / 60 + "m" : "")} label="The command that trains such a model" /></details>
    </form>
    <div id="train-run" hidden=${!progress}>
      <p id="train-left">${progress && saidOf(progress) + (progress.seconds_left === null ? "" : "; about " + lengthText(progress.seconds_left) + " left in all")}</p>
      <div class="bar" role="progressbar" aria-label="Of this step" aria-valuemin="0" aria-valuemax="100" aria-valuenow=${percent}><i id="train-bar" style=${{ "--part": progress?.share ?? 0 }} /></div>
      <div class="buttons"><${Button} id="train-stop" onClick=${() => askTraining("stop")}>Cancel<//><p class="soft">You can continue to label. Finished steps are kept, and used when you train again.</p></div>
    </div>
    <p id="train-error" role="alert" hidden=${!error}>${error && "Training failed: " + error + " " + inSentence(hint || " ")}</p>
    ${warnings.length > 0 && html`<details id="train-warnings"><summary>${countText(warnings.length, "warning")}</summary><ul>${warnings.map((text) => html`<li>${text}</li>`)}</ul></details>`}
    <p class="unseen" id="train-said" role="status">${trainSaid}</p>
    <ol id="models">${models.map((model, at) => html`<${ModelRow} key=${model.number} model=${model} isLatest=${!at} />`)}</ol>
  </section>`;
}
