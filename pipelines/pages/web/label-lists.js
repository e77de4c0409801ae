/* Videos, actions, subjects, the labels in a list, and the fields of the chosen one. */
const ROWS_AT_ONCE = 20, MOST_ROWS = 3 * ROWS_AT_ONCE; /* of labels, around the cursor: thousands would make each key wait */
let listed = null; /* which rows are there: of which labels, from which on */
let rowsOf = new Map(); /* what stands in the list, by key: {label, item}; forgotten when an action changes, whose name and colour they have */
let rowsDirty = false;
function showRows() {
  rowsDirty = true;
  schedule();
}

function showVideos() {
  const list = $("videos");
  list.replaceChildren(...videos.map(({ id }, at) => {
    const labels = Object.keys(labelsOf(id)).length, mark = aboutOf(id).complete ? "✓ " : labels ? "… " : "";
    return option(at, mark + id + (labels ? " (" + countText(labels, "label") + ")" : ""));
  }));
  list.value = chosenVideo;
  $("video-before").disabled = chosenVideo === 0;
  $("video-after").disabled = chosenVideo === videos.length - 1;
  $("complete").checked = aboutOf().complete;
  if (document.activeElement !== $("video-comment")) $("video-comment").value = aboutOf().comment;
  const complete = videos.filter(({ id }) => aboutOf(id).complete).length, started = videos.filter(({ id }) => Object.keys(labelsOf(id)).length).length;
  $("facts").replaceChildren();
  term($("facts"), "Videos", numberText(videos.length));
  term($("facts"), "With labels", numberText(started));
  term($("facts"), "Complete", numberText(complete));
}
function showActions() {
  $("actions").replaceChildren(...actionsInOrder().map(([id, action]) => {
    const item = make("li"), key = make("input", "key"), name = make("input", "name"), remove = make("button", "", "Remove");
    key.type = name.type = "text";
    key.maxLength = 1;
    name.maxLength = 200;
    [key.value, name.value] = [action.key, action.name];
    key.setAttribute("aria-label", "Key of " + action.name);
    name.setAttribute("aria-label", "Name of " + action.name);
    const change = (changes) => ask(() => [{ kind: "action", key: id, after: { ...held.action[id], ...changes } }], () => tell("Changed"));
    key.addEventListener("change", () => change({ key: key.value.trim() }));
    name.addEventListener("change", () => change({ name: name.value.trim() }));
    remove.type = "button";
    remove.addEventListener("click", () => ask(() => [{ kind: "action", key: id, after: null }]));
    item.append(spot(action.name), key, name, remove);
    return item;
  }));
  $("label-action").replaceChildren(...[...actionsInOrder().map(([id]) => id), nothing].map((id) => option(id, nameOf(id))));
  $("subject-names").replaceChildren(...Object.keys(held.subject).sort().map((name) => option(name)));
}
function drawRows() {
  rowsDirty = false;
  const order = inOrder(), at = order.findIndex(([key]) => key === chosen);
  const middle = at >= 0 ? at : Math.max(0, order.findIndex(([, label]) => label.start >= now));
  /* in steps, so that from one label to the next the rows mostly stay */
  const wanted = Math.floor(middle / ROWS_AT_ONCE) * ROWS_AT_ONCE - ROWS_AT_ONCE;
  const first = Math.max(0, Math.min(wanted, order.length - MOST_ROWS)), last = Math.min(order.length, first + MOST_ROWS);
  if (listed && listed.first === first && listed.revision === revision && listed.video === chosenVideo) return markRow();
  listed = { first, revision, video: chosenVideo };
  $("count").textContent = order.length ? countText(order.length, "label") : "No labels yet";
  const before = rowsOf;
  rowsOf = new Map(order.slice(first, last).map(([key, label]) => {
    const old = before.get(key);
    return [key, old?.label === label ? old : { label, item: makeRow(key, label) }];
  }));
  const more = (count, where) => (count ? [make("li", "more", countText(count, "label") + " " + where)] : []);
  putRows([...more(first, "before these"), ...[...rowsOf.values()].map(({ item }) => item), ...more(order.length - last, "after these")]);
  markRow();
}
function makeRow(key, label) {
  const item = make("li"), row = make("button");
  row.type = "button";
  row.tabIndex = -1; /* the arrow keys go through labels */
  row.dataset.key = key;
  row.append(spot(nameOf(label.action), label.action === nothing ? "spot hollow" : "spot"), make("span", "cut", nameOf(label.action)), make("span", "cut subject", label.subject),
    make("span", "time", clock(label.start)), make("span", "time", label.end === null ? "open" : clock(label.end)), make("span", "cut comment", label.comment));
  item.append(row);
  return item;
}
/* Only what changes is touched: to lay out all rows anew makes a key wait. */
function putRows(items) {
  const list = $("rows"), kept = new Set(items);
  for (const item of [...list.children]) if (!kept.has(item)) item.remove();
  let at = list.firstChild;
  for (const item of items) {
    if (item === at) at = at.nextSibling;
    else list.insertBefore(item, at);
  }
}
/* Which row is chosen, and in sight. */
function markRow() {
  for (const one of $("rows").querySelectorAll('[aria-current="true"]')) one.setAttribute("aria-current", "false");
  const row = rowsOf.get(chosen)?.item.firstChild;
  if (!row) return;
  row.setAttribute("aria-current", "true");
  $("rows").scrollTop = row.offsetTop - $("rows").clientHeight / 2;
}
let edited = null, typed = null; /* the label whose values the fields have; the field in which a person is typing */
function showChosen() {
  const label = chosen && labelsOf()[chosen];
  if (edited !== chosen) typed = null;
  edited = chosen;
  $("editor").hidden = !label;
  $("none-chosen").hidden = Boolean(label);
  if (label) {
    const fields = { "label-action": label.action, "label-subject": label.subject, "label-start": label.start, "label-end": label.end ?? "", "label-comment": label.comment };
    for (const [id, value] of Object.entries(fields)) if ($(id) !== typed) $(id).value = value;
  }
  showRows();
}
function buildFields() {
  $("rows").addEventListener("click", (event) => {
    const key = event.target.closest("button")?.dataset.key, label = key && labelsOf()[key];
    if (label) { chooseLabel(key); seek(label.start); }
  });
  const snapped = (text) => {
    const time = Number(text), at = numberAt(time);
    return time >= duration - 1e-6 ? duration : times[at];
  };
  $("editor").addEventListener("input", ({ target }) => { typed = target; });
  $("editor").addEventListener("change", () => { typed = null; }, true);
  $("editor").addEventListener("focusout", () => { if (typed) { typed = null; showChosen(); } });
  $("label-comment").maxLength = $("video-comment").maxLength = report.longest;
  $("label-action").addEventListener("change", () => changeChosen({ action: $("label-action").value }));
  $("label-subject").addEventListener("change", () => { addSubject($("label-subject").value.trim()); changeChosen({ subject: $("label-subject").value.trim() }); });
  $("label-comment").addEventListener("change", () => changeChosen({ comment: $("label-comment").value }));
  for (const edge of ["start", "end"]) {
    $("label-" + edge).addEventListener("change", () => { if ($("label-" + edge).value) changeChosen({ [edge]: snapped($("label-" + edge).value) }); });
    $(edge + "-here").addEventListener("click", () => changeChosen({ [edge]: edge === "end" ? endNow() : now }));
  }
  $("delete").addEventListener("click", removeChosen);
  $("let-go").addEventListener("click", () => chooseLabel(null));
  let written = ""; /* the video whose comment is being written: what another window decides may lead to the next one */
  $("video-comment").addEventListener("focus", () => { written = videoId(); });
  $("video-comment").addEventListener("change", () => {
    const id = written, comment = $("video-comment").value;
    ask(() => [{ kind: "about", video: id, after: { ...aboutOf(id), comment } }]);
  });
  $("video-comment").addEventListener("blur", () => { if (written !== videoId()) $("video-comment").value = aboutOf().comment; });
  $("complete").addEventListener("change", () => setComplete($("complete").checked));
  $("subject").addEventListener("change", () => addSubject(subjectNow()));
  $("add-action").addEventListener("submit", (event) => {
    event.preventDefault();
    const name = $("new-action").value.trim();
    if (name) addAction(name);
    $("new-action").value = "";
    $("new-action").blur();
  });
}
