/* What is done with labels: an action starts and stops, edges move, one is chosen. */
let chosen = null; /* the key of a label of this video */

const actionsInOrder = () => Object.entries(held.action).sort(([, one], [, other]) => one.place - other.place || (one.name < other.name ? -1 : 1));
const nameOf = (action) => (action === nothing ? "Nothing happens" : held.action[action]?.name ?? "?");
const inOrder = () => Object.entries(labelsOf()).sort(([, one], [, other]) => one.start - other.start || (one.end ?? Infinity) - (other.end ?? Infinity));
const openLabel = (action, subject, video) => Object.entries(labelsOf(video)).find(([, label]) => label.action === action && label.subject === subject && label.end === null);
const subjectNow = () => $("subject").value.trim();
const putLabel = (video, key, after) => ({ kind: "label", video, key, after });

/* Where a label ends that is ended now: where the frame at the cursor begins; after the last frame it is all over. */
const endNow = () => (number >= times.length - 1 ? duration : now);

/* Until the frame times of this video are loaded, the cursor belongs to the previous video. */
function refusedWhileOpening() {
  if (isOpening()) notify("This video is still loading");
  return isOpening();
}
/* An answer that comes late chooses no other label below the words that a person is typing. */
const isEditing = () => document.activeElement.matches("#editor input");

/* A key starts an action at the cursor, or stops it there; going back before its start turns it round. */
function toggleAction(action) {
  if (refusedWhileOpening()) return;
  const time = now, stop = endNow(), video = videoId(), subject = action === nothing ? "" : subjectNow(), key = newKey();
  addSubject(subject);
  ask(() => {
    const open = openLabel(action, subject, video);
    if (!open) return [putLabel(video, key, { action, start: time, end: null, subject, comment: "" })];
    const [name, label] = open, [start, end] = time < label.start ? [time, label.start] : [label.start, stop];
    return [putLabel(video, name, end - start < 1e-6 ? null : { ...label, start, end })];
  }, (entry) => {
    const [change] = entry.changes, { after } = change;
    if (video === videoId() && !isEditing()) chooseLabel(after ? change.key : null, false);
    notify(after === null ? nameOf(action) + ": not started" : nameOf(action) + (after.end === null ? " starts at " + clock(time) : " ends at " + clock(after.end)));
  });
}
/* Changes the selected label; an edge never passes the other edge or the ends of the video. */
function changeChosen(changes, key = chosen) {
  if (("start" in changes || "end" in changes) && refusedWhileOpening()) return draw();
  const video = videoId();
  ask(() => {
    const label = held.label[video]?.[key];
    if (!label) return null;
    const after = { ...label, ...changes };
    const isSame = Object.keys(changes).every((name) => label[name] === after[name]);
    if (isSame) draw();
    return isSame ? null : [putLabel(video, key, after)];
  });
}
function removeChosen() {
  const video = videoId(), key = chosen;
  ask(() => (held.label[video]?.[key] ? [putLabel(video, key, null)] : null));
}
function setComplete(complete) {
  const video = videoId();
  ask(() => [{ kind: "about", video, after: { ...aboutOf(video), complete } }]);
}
function addSubject(name) {
  if (name && !held.subject[name]) ask(() => (held.subject[name] ? null : [{ kind: "subject", key: name, after: { place: Object.keys(held.subject).length } }]));
}
function freeKey(name) {
  const taken = new Set([...report.reserved, ...Object.values(held.action).map(({ key }) => key.toLowerCase())]);
  const letters = [...name.toLowerCase()].filter((letter) => /[a-z0-9]/.test(letter));
  return [...letters, ..."123456789abcdefghimopqrstuvwxyz"].find((key) => !taken.has(key)) ?? "";
}
function addAction(name) {
  const key = newKey();
  ask(() => {
    const place = Math.max(-1, ...Object.values(held.action).map((action) => action.place)) + 1;
    return [{ kind: "action", key, after: { name, key: freeKey(name), place } }];
  }, () => notify(name + " starts and stops by the key " + (held.action[key].key || "(none is free)")));
}

function chooseLabel(key, goes = true) {
  chosen = key && labelsOf()[key] ? key : null;
  const label = chosen && labelsOf()[chosen];
  if (label) leaveReview();
  if (label && goes) {
    if (now < label.start - 1e-6 || now > (label.end ?? label.start) + 1e-6) seek(label.start);
    if (label.start < view[0] || label.start > view[1]) look(label.start - (view[1] - view[0]) / 3, view[1] - view[0]);
  }
  stamp++;
  draw();
  moved = true;
  schedule();
}
function chooseBeside(way) {
  const order = inOrder(), at = order.findIndex(([key]) => key === chosen);
  const next = at >= 0 ? order[at + way] : way > 0 ? order.find(([, label]) => label.start > now - 1e-6) : order.findLast(([, label]) => label.start <= now + 1e-6);
  if (!next) return;
  chooseLabel(next[0]);
  seek(next[1].start);
}
/* The stretches of which nothing is known, as the file has them but for whole decisions. */
function unknownStretches() {
  const labels = Object.values(labelsOf()), gaps = [];
  if (aboutOf().complete) {
    const open = labels.filter(({ end }) => end === null).map(({ start }) => start);
    return open.length ? [[Math.min(...open), duration]] : [];
  }
  let reached = 0;
  for (const { start, end } of labels.filter(({ end }) => end !== null).sort((one, other) => one.start - other.start)) {
    if (start > reached + 1e-6) gaps.push([reached, start]);
    reached = Math.max(reached, end);
  }
  if (reached < duration - 1e-6) gaps.push([reached, duration]);
  return gaps;
}
