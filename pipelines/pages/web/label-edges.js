/* Edges that are dragged, by mouse or finger: they go from frame to frame, and the picture follows them. */
let dragged = null; /* {key, edge, start, end} */

const frameEnd = (at) => (at + 1 < times.length ? times[at + 1] : duration);
/* The moment that a pointer means: the start of a frame; the end of the video where it is nearer. */
function momentAt(x) {
  const time = timeAt($("surface"), x, view), at = numberAt(time), after = frameEnd(at);
  return time - times[at] < after - time ? times[at] : after;
}
function beginDrag(event, key, edge) {
  if (refusedWhileOpening()) return;
  const draft = draftOf(key), label = draft ?? labelsOf()[key], surface = $("surface");
  event.preventDefault();
  event.stopImmediatePropagation();
  surface.focus({ preventScroll: true });
  setRate(0);
  if (!draft && chosen !== key) chooseLabel(key, false);
  dragged = { key, edge, start: label.start, end: endOf(label) };
  const target = event.target;
  target.setPointerCapture(event.pointerId);
  const move = (moved) => {
    const time = momentAt(moved.clientX);
    if (edge === "start" && (label.end === null || time < label.end)) dragged.start = time;
    if (edge === "end" && time > label.start) dragged.end = time;
    seek(dragged[edge]);
    redraw();
  };
  const stop = (ended) => {
    for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) target.removeEventListener(kind, act);
    const time = dragged[edge];
    if (ended.type === "pointerup" && time !== label[edge]) (draft ? changeDraft : changeChosen)({ [edge]: time }, key);
    /* until the server has ordered it, the bar stays where it was let go */
    ask(() => { dragged = null; redraw(); return null; });
  };
  for (const [kind, act] of [["pointermove", move], ["pointerup", stop], ["pointercancel", stop]]) target.addEventListener(kind, act);
}
function buildEdges() {
  const surface = $("surface");
  surface.addEventListener("pointerdown", (event) => {
    document.activeElement.blur(); /* what is typed there is of the label that is chosen still */
    if (event.button || event.target !== surface) return;
    const hit = barAt(event.clientX, event.clientY);
    if (hit?.edge && event.pointerType !== "touch") beginDrag(event, hit.key, hit.edge);
    else if (hit) chooseLabel(hit.key, false);
    else if (chosen) chooseLabel(null);
  }, true);
  surface.addEventListener("pointermove", (event) => {
    if (!event.buttons) surface.style.cursor = barAt(event.clientX, event.clientY)?.edge ? "ew-resize" : "";
  });
  for (const edge of ["start", "end"]) $("edge-" + edge).addEventListener("pointerdown", (event) => { if (!event.button) beginDrag(event, chosen ?? reviewed.key, edge); }, true);
}
/* The handles of the chosen label, or of the proposal on show, wide enough for a finger. */
function placeEdges() {
  const draft = !chosen && draftOf(reviewed?.key), lane = lanes.find(({ id, bars }) => (draft ? id === draft.action : bars.some(({ key }) => key === chosen)));
  const bar = draft ? { key: reviewed.key, label: draft, level: 0 } : lane?.bars.find(({ key }) => key === chosen);
  for (const edge of ["start", "end"]) {
    if (!bar || (bar.label.end === null && edge === "end")) placeHandle($("edge-" + edge), null, 0, 0);
    else {
      const box = lanesShown()[lane.index].base.getBoundingClientRect(), [y, tall] = placeOf(draft ? { deep: 1 } : lane, bar.level, box.height, 1);
      placeHandle($("edge-" + edge), shownSpan(bar)[edge === "start" ? 0 : 1], box.top - $("surface").getBoundingClientRect().top + y - 3, tall + 6);
    }
  }
}
