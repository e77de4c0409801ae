/* Which column of a table is what: chosen above each column, with the result below; then the project begins. */
const words = { video: "video", start: "start", end: "end", duration: "how long it lasts", label: "action", subject: "subject" };
const units = { seconds: "seconds, or h:mm:ss", milliseconds: "milliseconds", frames: "numbers of frames" };
const NOT_HERE = { error: "Nothing answers: is lstr label still running?" };
const roles = report.header.map((_, at) => Object.entries(report.guess.columns).find(([, column]) => column === at)?.[0] ?? ""); /* of each column */
let unit = report.guess.unit, asking = 0, found = {}, isReady = false;

/* A column is one thing, and one thing is one column. */
function choose(at, role) {
  roles.forEach((other, place) => { if (other === role) roles[place] = ""; });
  roles[at] = role;
  look();
}
function send(address) {
  const columns = Object.fromEntries(roles.map((role, at) => [role, at]).filter(([role]) => role));
  return fetch(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify({ columns, unit }) }).then(async (answer) => {
    const content = await answer.json().catch(() => ({ error: "This cannot be read." }));
    return answer.ok ? content : { error: content.error || "This cannot be read.", hint: content.hint };
  }, () => NOT_HERE);
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
  if (found.error) return [found.error, found.hint].filter(Boolean).join(" ");
  if (!found.actions) return "";
  return countText(found.labels, "label") + " of " + countText(found.actions.length, "action") + (found.actions.length ? " (" + few(found.actions) + ")" : "")
    + (found.subjects.length ? ", by " + few(found.subjects) : "") + ", in " + numberText(found.videos) + " of the " + countText(report.videos, "video") + " here";
}
const Cells = ({ cells, tag }) => html`<tr>${cells.map((cell, at) => html`<${tag} class=${roles[at] ? "chosen" : ""}>${cell}<//>`)}</tr>`;
function Columns() {
  const chooser = (name, at) => html`<select aria-label=${"What the column " + (name || at + 1) + " is"} value=${roles[at]} onChange=${({ target }) => choose(at, target.value)}>
    ${options([["", "not read"], ...report.roles.map((role) => [role, words[role]])])}</select>`;
  const { rows = [], unknown = [] } = found.error ? {} : found, notes = [...(found.doubts || []), ...(found.notes || [])];
  return html`<main id="form">
    <section class="card" aria-label="The table">
      <div class="heading"><h2>${report.file + ": " + countText(report.count, "row")}, and the names of its columns say nothing here. Which is what?</h2></div>
      <div class="scroll"><table id="table"><${Cells} cells=${report.header.map(chooser)} tag="th" /><${Cells} cells=${report.header} tag="th" />
        ${report.rows.map((cells) => html`<${Cells} cells=${cells} tag="td" />`)}</table></div>
      <p class="choice"><label>Times are <select id="unit" value=${unit} onChange=${({ target }) => { unit = target.value; look(); }}>${options(report.units.map((name) => [name, units[name]]))}</select></label></p>
    </section>
    <section class="card" aria-label="The result">
      <div class="heading"><h2>The result</h2></div>
      <div id="outcome" aria-live="polite">
        <p id="sentence">${sentence()}</p>
        <ul id="doubts">${notes.map((text) => html`<li>${text}</li>`)}</ul>
        <div class="scroll"><table id="labels">${rows.length > 0 && html`<tr>${["Video", "Action", "Subject", "Start", "End"].map((name) => html`<th>${name}</th>`)}</tr>`}
          ${rows.map(({ video, label, subject, start, end }) => html`<tr>${[video, label, subject, clockText(start, 3), clockText(end, 3)].map((cell) => html`<td>${cell}</td>`)}</tr>`)}</table></div>
        <p class="soft" id="rest">${unknown.length > 0 && countText(unknown.length, "video") + " of the table " + (unknown.length === 1 ? "is" : "are") + " not here: " + few(unknown)}</p>
      </div>
      <p class="choice"><${Button} id="begin" disabled=${!isReady} onClick=${begin}>Begin with these labels<//></p>
    </section>
  </main>`;
}
const draw = () => render(html`<${Columns} />`, $("app"));

followTheme(() => {});
look();
