/* Videos, actions, subjects, the labels in a list, and the fields of the chosen one. */
const ROWS_AT_ONCE = 20, MOST_ROWS = 3 * ROWS_AT_ONCE; /* of labels, around the cursor: thousands would make each key wait */
let typed = null; /* the field in which a person is typing: what comes from elsewhere leaves it */
const unlessTyping = (id, value) => (typed === id ? undefined : String(value));

function Videos() {
  const text = ({ id }) => {
    const labels = Object.keys(labelsOf(id)).length;
    return (aboutOf(id).complete ? "✓ " : labels ? "… " : "") + id + (labels ? " (" + countText(labels, "label") + ")" : "");
  };
  return html`<nav id="ways" aria-label="Videos">
    <select id="videos" aria-label="Video" value=${chosenVideo} onChange=${({ target }) => { goVideo(Number(target.value)); target.blur(); }}>${options(videos.map((video, at) => [at, text(video)]))}</select>
    <${Button} id="video-before" title="Previous video (page up)" disabled=${chosenVideo === 0} onClick=${() => goVideo(chosenVideo - 1)}>← Previous<//>
    <${Button} id="video-after" title="Next video (page down)" disabled=${chosenVideo === videos.length - 1} onClick=${() => goVideo(chosenVideo + 1)}>Next →<//>
    <label id="complete-box" title="Every action is labelled: the rest is background (shift C)"><input type="checkbox" id="complete" checked=${aboutOf().complete} onChange=${({ target }) => setComplete(target.checked)} /> Complete</label>
  </nav>`;
}
const facts = () => [
  ["Videos", numberText(videos.length)], ["With labels", numberText(videos.filter(({ id }) => Object.keys(labelsOf(id)).length).length)],
  ["Complete", numberText(videos.filter(({ id }) => aboutOf(id).complete).length)],
];
function ActionMenu() {
  const change = (id, changes) => ask(() => [{ kind: "action", key: id, after: { ...held.action[id], ...changes } }], () => notify("Changed"));
  return html`<details class="menu" id="action-menu"><summary>Actions</summary><div class="sheet"><ul id="actions">${actionsInOrder().map(([id, { name, key }]) => html`<li key=${id}><${Spot} label=${name} />
    <input type="text" class="key" maxlength="1" aria-label=${"Key of " + name} value=${key} onChange=${({ target }) => change(id, { key: target.value.trim() })} />
    <input type="text" class="name" maxlength="200" aria-label=${"Name of " + name} value=${name} onChange=${({ target }) => change(id, { name: target.value.trim() })} />
    <${Button} onClick=${() => ask(() => [{ kind: "action", key: id, after: null }])}>Remove<//></li>`)}</ul></div></details>`;
}
function addNamed(event) {
  const field = $("new-action"), name = field.value.trim();
  event.preventDefault();
  if (name) addAction(name);
  field.value = "";
  field.blur();
}

/* The labels, some around the chosen one or the cursor; in steps, so that from one to the next the rows mostly stay. */
function Labels() {
  const order = inOrder(), at = order.findIndex(([key]) => key === chosen);
  const middle = at >= 0 ? at : Math.max(0, order.findIndex(([, label]) => label.start >= now));
  const wanted = Math.floor(middle / ROWS_AT_ONCE) * ROWS_AT_ONCE - ROWS_AT_ONCE;
  const first = Math.max(0, Math.min(wanted, order.length - MOST_ROWS)), last = Math.min(order.length, first + MOST_ROWS);
  const more = (count, where) => count > 0 && html`<li key=${where} class="more">${countText(count, "label") + " " + where}</li>`;
  return html`<section class="card" id="list" aria-label="Labels">
    <div class="heading"><h2 id="count">${order.length ? countText(order.length, "label") : "No labels yet"}</h2><p class="soft" id="saved" role="status">${unsavedText ? "" : "All saved in " + lastPart(report.file)}</p></div>
    <ol id="rows" class="lines">${more(first, "above")}${order.slice(first, last).map(([key, label]) => html`<${LabelRow} key=${key} id=${key} label=${label} />`)}${more(order.length - last, "below")}</ol>
  </section>`;
}
function LabelRow({ id, label }) { /* without the tab key: the arrow keys go through labels */
  const name = nameOf(label.action);
  return html`<li><${Button} tabindex="-1" data-key=${id} aria-current=${id === chosen} onClick=${() => { chooseLabel(id); seek(label.start); }}>
    <${Spot} label=${name} look=${label.action === nothing ? "hollow" : ""} /><span class="cut">${name}</span><span class="cut subject">${label.subject}</span><span class="time">${clock(label.start)}</span>
    <span class="time">${label.end === null ? "open" : clock(label.end)}</span><span class="cut comment">${label.comment}</span><//></li>`;
}

/* The fields of the chosen label. */
function Fields() {
  const label = chosen && labelsOf()[chosen], actions = [...actionsInOrder().map(([id]) => id), nothing].map((id) => [id, nameOf(id)]);
  const snapped = (text) => (Number(text) >= duration - 1e-6 ? duration : times[numberAt(Number(text))]);
  const field = (name, value, change, others) => html`<input type="text" id=${"label-" + name} value=${unlessTyping("label-" + name, value)} autocomplete="off" onChange=${({ target }) => { typed = null; change(target.value); }} ...${others} />`;
  const edge = (name, text, key) => html`<span><label>${text} ${field(name, label[name] ?? "", (value) => { if (value) changeChosen({ [name]: snapped(value) }); else draw(); }, { type: "number", min: 0, step: "any" })} s</label>${" "}
    <${Button} id=${name + "-here"} title=${text + " at the cursor (" + key + ")"} onClick=${() => changeChosen({ [name]: name === "end" ? endNow() : now })}>at cursor<//></span>`;
  return html`<section class="card" id="edit-card" aria-label="The chosen label">
    ${!label && html`<p class="soft" id="none-chosen">No label is selected. The key of an action starts it at the cursor, and stops it there.</p>`}
    ${label && html`<div key=${chosen} id="editor" role="group" aria-label="Label" onInput=${({ target }) => { typed = target.id; }} onfocusout=${() => { if (typed) { typed = null; draw(); } }}>
      <label>Action <select id="label-action" value=${label.action} onChange=${({ target }) => { typed = null; changeChosen({ action: target.value }); }}>${options(actions)}</select></label>
      <label>Subject ${field("subject", label.subject, (value) => { addSubject(value.trim()); changeChosen({ subject: value.trim() }); }, { list: "subject-names", maxlength: 200 })}</label>
      ${edge("start", "Start", "[")}${edge("end", "End", "]")}
      <label class="wide">Comment ${field("comment", label.comment, (value) => changeChosen({ comment: value }), { maxlength: report.longest })}</label>
      <span><${Button} id="delete" title="Delete the label (delete)" onClick=${removeChosen}>Delete<//> <${Button} id="let-go" title="Select none (escape)" onClick=${() => chooseLabel(null)}>Done<//></span>
    </div>`}
    <${VideoComment} key=${videoId()} id=${videoId()} />
  </section>`;
}
/* Of one video: what another window decides may lead to the next one while it is being written. */
function VideoComment({ id }) {
  const about = aboutOf(id), isTyping = document.activeElement?.id === "video-comment";
  return html`<label class="wide">About this video <input type="text" id="video-comment" autocomplete="off" placeholder="Comment" maxlength=${report.longest} value=${isTyping ? undefined : about.comment}
    onChange=${({ target }) => { const comment = target.value; ask(() => [{ kind: "about", video: id, after: { ...aboutOf(id), comment } }]); }} /></label>`;
}
