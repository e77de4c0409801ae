/* The page as a whole, keys, and the choice of a video; then everything begins. */
let chosenVideo = Math.max(0, Math.min(videos.length - 1, Number(location.hash.slice(1)) || 0));
const step = 1 / 16; /* seconds, eight of which always stay in view */

const wholeSeconds = () => duration;
const momentText = () => clock(now);
function playOn(tick) {
  if (rate) tickPlaying(tick);
  return rate !== 0;
}
function showMoment(plays) {
  for (const lane of lanes) if (lane.open && plays) lanesShown()[lane.index].dirty = true;
  drawOverview(paintOverview);
  placeEdges();
}
function projectChanged(changes) {
  if (changes.some(({ kind }) => kind === "action")) buildLanes();
  if (chosen && !labelsOf()[chosen]) chosen = null;
  fillLanes();
  draw();
  proposalsChanged(changes);
  moved = true;
  schedule();
}

function Player() {
  return html`<section class="card" aria-label="Player">
    <div class="screen" id="screen">
      <video id="video" playsinline preload="auto" tabindex="-1" aria-label="The video, playing" />
      <img id="still" alt="The frame at the cursor" />
      ${trouble && html`<p id="no-video" role="status"><b>${trouble[0]}</b>${trouble[1]}</p>`}
    </div>
    <div class="transport">
      <${Button} id="step-back" aria-label="Previous frame" title="Previous frame (←)" onClick=${() => stepBy(-1)}>‹<//>
      <${PlayButton} plays=${rate} act=${toggle} />
      <${Button} id="step-on" aria-label="Next frame" title="Next frame (→)" onClick=${() => stepBy(1)}>›<//>
      <output id="clock" aria-live="off" />
      <${SpeedMenu} act=${() => { if (rate) setRate(Math.sign(rate) * speed()); }} />
    </div>
    <p class="soft" id="playing-state" role="status">${filmText}</p>
    <${Reviewing} />
  </section>`;
}
function Timeline() {
  const handles = ["start", "end"].map((edge) => html`<div class="edge" id=${"edge-" + edge} aria-hidden="true" hidden />`);
  return html`<section class="card" id="timeline" aria-label="Timeline">
    <div class="heading">
      <h2>Timeline</h2>
      <label class="who">Subject <input type="text" id="subject" list="subject-names" autocomplete="off" maxlength="200" placeholder="optional" onChange=${() => addSubject(subjectNow())} /></label>
      <datalist id="subject-names">${options(Object.keys(held.subject).sort().map((name) => [name]))}</datalist>
      <div class="buttons"><${Button} id="undo" title="Undo (ctrl Z)" onClick=${() => turnHere("undo")}>Undo<//><${Button} id="redo" title="Redo (ctrl shift Z)" onClick=${() => turnHere("redo")}>Redo<//></div>
      <${ActionMenu} /><${Zoom} />
    </div>
    <${Lanes} overview="All labels of the video" over=${handles} resized=${() => widenNames(names)}>${lanes.map((lane) => html`<${LaneRow} key=${lane.id} lane=${lane} />`)}<//>
    <form id="add-action" onSubmit=${addNamed}><input type="text" id="new-action" maxlength="200" autocomplete="off" placeholder="Name of an action" aria-label="Name of a new action" /><button type="submit">Add action</button></form>
    <${Legend} entries=${[["", "labelled"], ["empty", "nothing happens here"], ["proposed", "proposed, here as a near miss"], ["gap", "not labelled yet: not used for training"]]} />
  </section>`;
}
const Page = () => html`
  <p class="warnings" id="unsaved" role="alert" hidden=${!unsavedText}>${unsavedText}</p>
  <${Videos} />
  <main><div class="left"><${Player} /><${Fields} /></div><div class="right"><${Timeline} /><${Proposals} /><${Labels} /><${Training} /></div></main>`;
let brought = ""; /* what of the lists was brought into sight */
function draw() {
  render(html`<${Page} />`, $("app"));
  showFacts(facts());
  const wanted = [chosenVideo, chosen, reviewed?.key, revision, proposalOrder.length].join();
  if (wanted === brought) return;
  brought = wanted;
  bringCurrent($("rows"));
  bringCurrent($("proposal-rows"));
}
async function goVideo(at) {
  if (at < 0 || at >= videos.length) return;
  if (reviewed?.at !== at) leaveReview();
  chosenVideo = at;
  chosen = null;
  history.replaceState(null, "", "#" + at);
  $("title").textContent = document.title = videos[at].id;
  draw();
  if (!(await openVideo(at))) return;
  fillLanes();
  lookAtAll();
  draw();
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
draw();
buildEdges();
watchFilm();
followProposals();
followTheme(() => { overview = null; redraw(); });
document.addEventListener("keydown", key);
addEventListener("beforeunload", (event) => {
  document.activeElement?.blur(); /* what is typed is saved when its field is left */
  if (asked.length) event.preventDefault();
});
listen();
goVideo(chosenVideo);
