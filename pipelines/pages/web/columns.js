/* Which column of a table is what: chosen above each column, with the result below; then the project begins. */
const words = { video: "video", start: "start", end: "end", duration: "duration", label: "action", subject: "subject" };
const units = { seconds: "seconds, or h:mm:ss", milliseconds: "milliseconds", frames: "numbers of frames" };
const roles = report.header.map((_, at) => Object.keys(report.guess).find((role) => report.guess[role] === at) ?? ""); /* of each column */
let unit = "seconds", asking = 0, found = {}, isReady = false;

/* A column has one role, and a role has one column. */
function choose(at, role) {
  roles.forEach((other, place) => { if (other === role) roles[place] = ""; });
  roles[at] = role;
  look();
}
function send(address) {
  const columns = Object.fromEntries(roles.map((role, at) => [role, at]).filter(([role]) => role));
  return post(address, { columns, unit }).catch((error) => ({ error: explain(error) }));
}
async function look() {
  const mine = ++asking;
  isReady = false;
  draw();
  const answer = await send("/columns/try");
  if (mine === asking) show(answer);
}
function show(answer) {
  found = answer;
  isReady = !found.error && found.labels > 0;
  draw();
}
async function begin() {
  isReady = false;
  draw();
  const answer = await send("/columns/begin");
  if (answer.error) show(answer);
  else location.reload();
}
const few = (names) => names.slice(0, 6).join(", ") + (names.length > 6 ? " and " + (names.length - 6) + " more" : "");
function sentence() {
  if (found.error || !found.actions) return found.error;
  const actions = countText(found.actions.length, "action") + (found.actions.length ? " (" + few(found.actions) + ")" : "");
  const subjects = found.subjects.length ? ", by " + few(found.subjects) : "";
  return countText(found.labels, "label") + " of " + actions + subjects + ", in " + numberText(found.videos) + " of the " + countText(report.videos, "video") + " here";
}
const Row = ({ cells, tag = "td" }) => html`<tr>${cells.map((cell, at) => html`<${tag} class=${roles[at] ? "chosen" : ""}>${cell}<//>`)}</tr>`;
function Columns() {
  const chooser = (name, at) => html`<select aria-label=${"What the column " + (name || at + 1) + " is"} value=${roles[at]} onChange=${({ target }) => choose(at, target.value)}>
    ${options([["", "not read"], ...report.roles.map((role) => [role, words[role]])])}</select>`;
  const { rows = [], notes = [] } = found;
  return html`<main id="form">
    <section class="card" aria-label="The table">
      <div class="heading"><h2>${report.file + ": " + countText(report.count, "row")}, and the names of its columns say nothing here. Which is what?</h2></div>
      <div class="scroll"><table id="table"><${Row} cells=${report.header.map(chooser)} tag="th" /><${Row} cells=${report.header} tag="th" />
        ${report.rows.map((cells) => html`<${Row} cells=${cells} />`)}</table></div>
      <p class="choice"><label>Times are <select id="unit" value=${unit} onChange=${({ target }) => { unit = target.value; look(); }}>${options(report.units.map((name) => [name, units[name]]))}</select></label></p>
    </section>
    <section class="card" aria-label="The result">
      <div class="heading"><h2>The result</h2></div>
      <div id="outcome" aria-live="polite">
        <p id="sentence">${sentence()}</p>
        <ul id="doubts">${notes.map((text) => html`<li>${text}</li>`)}</ul>
        <div class="scroll"><table id="labels">${rows.length > 0 && html`<tr>${["Video", "Action", "Subject", "Start", "End"].map((name) => html`<th>${name}</th>`)}</tr>`}
          ${rows.map(({ video, label, subject, start, end }) => html`<tr>${[video, label, subject, clockText(start, 3), clockText(end, 3)].map((cell) => html`<td>${cell}</td>`)}</tr>`)}</table></div>
      </div>
      <p class="choice"><${Button} id="begin" disabled=${!isReady} onClick=${begin}>Begin with these labels<//></p>
    </section>
  </main>`;
}
const draw = () => render(html`<${Columns} />`, $("app"));

followTheme(() => {});
look();
