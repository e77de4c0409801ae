/* Which column of a table is what: chosen above each column, with what comes of it below; then the project begins. */
const words = { video: "video", start: "start", end: "end", duration: "how long it lasts", label: "action", subject: "subject" };
const units = { seconds: "seconds, or h:mm:ss", milliseconds: "milliseconds", frames: "numbers of frames" };
const choosers = [];
let asking = 0;

function row(cells, tag) {
  const line = make("tr");
  line.append(...cells.map((cell) => (typeof cell === "string" ? make(tag, "", cell) : cell)));
  return line;
}
function buildTable() {
  const given = Object.fromEntries(Object.entries(report.guess.columns).map(([role, at]) => [at, role]));
  const head = report.header.map((name, at) => {
    const cell = make("th"), chooser = make("select");
    chooser.append(option("", "not read"), ...report.roles.map((role) => option(role, words[role])));
    chooser.value = given[at] ?? "";
    chooser.setAttribute("aria-label", "What the column " + (name || at + 1) + " is");
    chooser.addEventListener("change", () => choose(chooser));
    choosers.push(chooser);
    cell.append(chooser);
    return cell;
  });
  $("table").append(row(head, "th"), row(report.header, "th"), ...report.rows.map((cells) => row(cells, "td")));
  $("about").textContent = report.file + ": " + countText(report.count, "row") + ", and the names of its columns say nothing here. Which is what?";
  $("unit").append(...report.units.map((unit) => option(unit, units[unit])));
  $("unit").value = report.guess.unit;
}
/* A column is one thing, and one thing is one column. */
function choose(chooser) {
  for (const other of choosers) if (other !== chooser && other.value === chooser.value) other.value = "";
  look();
}
const choice = () => ({ columns: Object.fromEntries(choosers.map(({ value }, at) => [value, at]).filter(([role]) => role)), unit: $("unit").value });
async function send(address) {
  const answer = await fetch(address, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(choice()) });
  const content = await answer.json().catch(() => ({ error: "This cannot be read." }));
  return answer.ok ? content : { error: content.error || "This cannot be read.", hint: content.hint };
}
async function look() {
  const mine = ++asking;
  for (const line of $("table").rows) [...line.cells].forEach((cell, at) => cell.classList.toggle("chosen", choosers[at].value !== ""));
  $("begin").disabled = true;
  const found = await send("/columns/try").catch(() => ({ error: "Nothing answers: is lstr label still running?" }));
  if (mine === asking) show(found);
}
function show(found) {
  const rows = found.rows || [];
  $("labels").replaceChildren();
  $("doubts").replaceChildren(...[...(found.doubts || []), ...(found.notes || [])].map((text) => make("li", "", text)));
  $("rest").textContent = "";
  $("begin").disabled = Boolean(found.error) || !found.labels;
  if (found.error) {
    $("sentence").textContent = [found.error, found.hint].filter(Boolean).join(" ");
    return;
  }
  $("sentence").textContent = countText(found.labels, "label") + " of " + countText(found.actions.length, "action") + (found.actions.length ? " (" + few(found.actions) + ")" : "")
    + (found.subjects.length ? ", by " + few(found.subjects) : "") + ", in " + numberText(found.videos) + " of the " + countText(report.videos, "video") + " here";
  if (rows.length) {
    const names = ["Video", "Action", "Subject", "Start", "End"];
    $("labels").append(row(names, "th"), ...rows.map(({ video, label, subject, start, end }) => row([video, label, subject, clockText(start, 3), clockText(end, 3)], "td")));
  }
  if (found.unknown.length) $("rest").textContent = countText(found.unknown.length, "video") + " of the table " + (found.unknown.length === 1 ? "is" : "are") + " not here: " + few(found.unknown);
}
const few = (names) => names.slice(0, 6).join(", ") + (names.length > 6 ? " and " + (names.length - 6) + " more" : "");
async function begin() {
  $("begin").disabled = true;
  const found = await send("/columns/begin").catch(() => ({ error: "Nothing answers: is lstr label still running?" }));
  if (found.error) show(found);
  else location.reload();
}

buildTable();
followTheme(() => {});
$("unit").addEventListener("change", look);
$("begin").addEventListener("click", begin);
look();
