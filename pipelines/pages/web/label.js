/* Keys, the choice of a video, and what is drawn each time; then everything begins. */
let chosenVideo = Math.max(0, Math.min(videos.length - 1, Number(location.hash.slice(1)) || 0));
const step = 1 / 16; /* seconds, eight of which always stay in view */

function frame(tick) {
  frameAsked = false;
  if (rate) tickPlaying(tick);
  if (moved) {
    moved = false;
    $("cursor").style.transform = "translateX(" + (now - view[0]) / (view[1] - view[0]) * $("surface").clientWidth + "px)";
    $("surface").setAttribute("aria-valuenow", now.toFixed(3));
    $("surface").setAttribute("aria-valuetext", clock(now));
    for (const lane of lanes) if (lane.open) lane.dirty = true;
    drawOverview();
  }
  if (axisDirty) drawTimes($("axis").firstElementChild, view, duration);
  axisDirty = false;
  placeEdges();
  if (rowsDirty) drawRows();
  for (const lane of lanes) if (lane.seen && lane.dirty) drawLane(lane);
  if (rate) schedule();
}
const wholeSeconds = () => duration;
function viewChanged() {
  axisDirty = true;
  redraw();
}
function projectChanged(changes) {
  if (changes.some(({ kind }) => kind === "action")) { buildLanes(); rowsOf.clear(); }
  if (chosen && !labelsOf()[chosen]) chosen = null;
  fillLanes();
  showVideos();
  if (changes.some(({ kind }) => kind === "action" || kind === "subject")) showActions();
  showChosen();
  proposalsChanged(changes);
  showTrainingLabels();
  redraw();
}
async function goVideo(at) {
  if (at < 0 || at >= videos.length) return;
  if (reviewed?.at !== at) leaveReview();
  chosenVideo = at;
  chosen = null;
  history.replaceState(null, "", "#" + at);
  $("title").textContent = document.title = videos[at].id;
  showVideos();
  showChosen();
  if (!(await openVideo(at))) return;
  $("surface").setAttribute("aria-valuemax", duration.toFixed(3));
  fillLanes();
  lookAtAll();
  showChosen();
  seekFrame(0);
}

function key(event) {
  const { tagName, type } = event.target, typing = /^(INPUT|TEXTAREA)$/.test(tagName) && !["checkbox", "range"].includes(type);
  if (typing) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.altKey) return;
  if (event.ctrlKey || event.metaKey) {
    const again = event.key === "y" || (event.key.toLowerCase() === "z" && event.shiftKey);
    if (event.key.toLowerCase() !== "z" && event.key !== "y") return;
    event.preventDefault();
    return turnHere(again ? "redo" : "undo");
  }
  if (tagName === "SELECT" && !["PageUp", "PageDown"].includes(event.key)) return;
  if ([" ", "Enter"].includes(event.key) && /^(BUTTON|SUMMARY|INPUT|A)$/.test(tagName)) return;
  const action = actionsInOrder().find(([, { key }]) => key && key === event.key);
  const keys = {
    " ": toggle, j: () => shuttle(-1), k: () => setRate(0), l: () => shuttle(1), "<": () => changeSpeed(-1), ">": () => changeSpeed(1),
    ArrowLeft: () => (event.shiftKey ? (setRate(0), seek(now - 1)) : stepBy(-1)), ArrowRight: () => (event.shiftKey ? (setRate(0), seek(now + 1)) : stepBy(1)),
    ",": () => stepBy(-1), ".": () => stepBy(1), Home: () => seekFrame(0), End: () => seekFrame(times.length - 1),
    ArrowUp: () => chooseBeside(-1), ArrowDown: () => chooseBeside(1), "[": () => changeChosen({ start: now }), "]": () => changeChosen({ end: endNow() }),
    Delete: removeChosen, Backspace: removeChosen, Escape: () => chooseLabel(null), Enter: () => { if (chosen) $("label-comment").focus(); },
    n: () => toggleAction(nothing), C: () => setComplete(!aboutOf().complete),
    PageUp: () => goVideo(chosenVideo - 1), PageDown: () => goVideo(chosenVideo + 1), ...zoomKeys,
  };
  const act = reviewKey(event, action?.[0]) ?? (action ? () => toggleAction(action[0]) : keys[event.key]);
  if (!act || (event.repeat && (action || event.key === "n"))) return;
  event.preventDefault();
  act();
}

buildLanes();
fillLanes();
showActions();
buildFields();
buildZoom();
buildEdges();
buildProposals();
buildTraining();
watchFilm();
followTheme(() => { overview = null; axisDirty = true; redraw(); });
scrub($("surface"), () => view, true);
scrub($("axis"), () => view);
scrub($("overview"), () => [0, duration]);
$("plot").addEventListener("wheel", wheel, { passive: false });
$("play").addEventListener("click", toggle);
$("step-back").addEventListener("click", () => stepBy(-1));
$("step-on").addEventListener("click", () => stepBy(1));
$("rate").addEventListener("change", () => { if (rate) setRate(Math.sign(rate) * speed()); });
$("undo").addEventListener("click", () => turnHere("undo"));
$("redo").addEventListener("click", () => turnHere("redo"));
$("videos").addEventListener("change", () => { goVideo(Number($("videos").value)); $("videos").blur(); });
$("video-before").addEventListener("click", () => goVideo(chosenVideo - 1));
$("video-after").addEventListener("click", () => goVideo(chosenVideo + 1));
document.addEventListener("keydown", key);
addEventListener("beforeunload", (event) => { if (asked.length) event.preventDefault(); });
new ResizeObserver(() => { widenNames(); axisDirty = true; redraw(); }).observe($("plot"));
listen();
showUnsaved("");
goVideo(chosenVideo);
