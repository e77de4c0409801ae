/* Zones of a source: where motion counts, the rest of its frames is dimmed. They are drawn in a dialog, by pointer or by
   keys, over the latest frame; nothing changes before they are saved. Corners are fractions of width and height; where the
   sides of a zone cross, the even-odd rule says what is inside. A corner is named by its polygon (the index of a zone, or
   `open` for the one that is being drawn) and its index in it, such as `0:2`. */
const LEAST_CORNERS = 3, STEP = 0.01, FAR = 0.05; /* of the frame, that an arrow moves a corner */
const RECTANGLE = [[0.25, 0.25], [0.75, 0.25], [0.75, 0.75], [0.25, 0.75]];
const ARROWS = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
let edited = null; /* { source, zones, open, at, before, sure, message } */
let pressed = null; /* { name, x, y, moved, isDown } of the corner that was pressed last, null if it was another place */

const clamped = (value) => Math.min(1, Math.max(0, Math.round(value * 1e4) / 1e4));
const cornersOf = (polygon) => (polygon === "open" ? edited.open : edited.zones[polygon]) ?? [];
function placeOf(name) {
  const [polygon, corner] = name.split(":");
  return [polygon === "open" ? polygon : Number(polygon), Number(corner)];
}
function notifyZones(text) {
  edited.message = text;
  drawZones();
}
function placeText(name) {
  const [polygon, corner] = placeOf(name), [x, y] = cornersOf(polygon)[corner].map((value) => Math.round(value * 100) + " %");
  return "Corner " + (corner + 1) + " of " + (polygon === "open" ? "new zone" : "zone " + (polygon + 1)) + ": " + x + " from the left, " + y + " from the top";
}

/* What dims a frame of this size outside the zones, and their sides. `id` is this drawing's own. */
function Veil({ id, zones, size: [width, height], chosen = null }) {
  if (!zones.length) return null;
  const polygon = (zone, look, others = {}) => html`<polygon points=${pointsOf(zone, width, height)} fill-rule="evenodd" class=${look} ...${others} />`;
  return html`<mask id=${id} maskUnits="userSpaceOnUse" x="0" y="0" width=${width} height=${height}><rect fill="#fff" width=${width} height=${height} />
      ${zones.map((zone) => polygon(zone, "", { fill: "#000" }))}</mask>
    <rect class="dim" mask=${"url(#" + CSS.escape(id) + ")"} width=${width} height=${height} />
    ${zones.map((zone, index) => [polygon(zone, "halo"), polygon(zone, index === chosen ? "zone chosen" : "zone", { "data-zone": index })])}`;
}
const pointsOf = (corners, width, height) => corners.map(([x, y]) => (x * width).toFixed(2) + "," + (y * height).toFixed(2)).join(" ");

function editZones(source) {
  if (!source.size) return notify("No frame of " + source.name + " has arrived yet.");
  edited = { source, zones: structuredClone(source.zones), open: null, at: null, before: JSON.stringify(source.zones), sure: false, message: "" };
  $("zones").showModal();
  drawZones();
  paintZones(source);
  drawZones(); /* again, with the size of the shapes */
}
/* The latest frame below the zones. */
function paintZones(source) {
  if (edited?.source !== source) return;
  const { image, size } = source, canvas = $("zones-image");
  [canvas.width, canvas.height] = size;
  if (image.naturalWidth) canvas.getContext("2d").drawImage(image, 0, 0);
}
function leaveZones(source) {
  if (edited?.source === source) $("zones").close();
}
function ZoneEditor() {
  const { source, zones, open, at, message } = edited, chosen = at === null ? null : placeOf(at)[0], corners = at === null ? [] : cornersOf(chosen);
  const { width, height } = $("zones-shapes")?.getBoundingClientRect() ?? { width: 1, height: 1 }, isFull = zones.length >= report.most_zones;
  const knobs = (polygon) => cornersOf(polygon).map(([x, y], corner) => {
    const name = polygon + ":" + corner;
    return html`<g key=${name} class=${name === at ? "corner chosen" : "corner"} data-corner=${name} tabindex="0" role="button" aria-label=${placeText(name)}
      transform=${"translate(" + x * width + " " + y * height + ")"}><circle class="reach" /><circle class="knob" /></g>`;
  });
  const tool = (id, act, text, disabled) => html`<${Button} id=${id} disabled=${disabled} onClick=${act}>${text}<//>`;
  return html`
  <div class="heading"><h2 id="zones-title">Where motion counts in ${source.name}</h2></div>
  <div class="ground"><div id="stage" style=${{ "--ratio": source.size[0] / source.size[1] }} onfocusin=${({ target }) => { edited.at = target.dataset.corner ?? edited.at; drawZones(); }}>
    <canvas id="zones-image" aria-hidden="true" />
    <svg id="zones-shapes" role="group" aria-label="Corners of the zones" class=${open ? "drawing" : ""} viewBox=${"0 0 " + width + " " + height}
      onPointerDown=${pressZones} onPointerMove=${dragZones} onPointerUp=${releaseZones} onPointerCancel=${releaseZones} onClick=${clickZones}>
      <${Veil} id="veil-edited" zones=${zones} size=${[width, height]} chosen=${chosen} />
      ${open && ["halo", "zone"].map((look) => html`<polyline class=${look + " open"} points=${pointsOf(open, width, height)} />`)}
      ${zones.map((_, polygon) => knobs(polygon))}${knobs("open")}
    </svg></div></div>
  <p id="zones-status" role="status">${message}</p>
  <div class="tools">
    ${tool("zone-new", beginZone, "New zone", isFull || Boolean(open))}${tool("zone-close", closeZone, "Close the zone", (open?.length ?? 0) < LEAST_CORNERS)}
    ${tool("zone-rectangle", addRectangle, "Add a rectangle", isFull)}${tool("corner-add", addCorner, "Add a corner", at === null || chosen === "open" || corners.length >= report.most_corners)}
    ${tool("corner-delete", deleteCorner, "Delete the corner", at === null || (chosen !== "open" && corners.length <= LEAST_CORNERS))}${tool("zone-delete", deleteZone, "Delete the zone", at === null)}
  </div>
  <p class="keys soft">Press the frame for each corner of a zone, the first one again to close it; drag a corner to move it. Motion outside all zones does not count; without a zone all of the frame does.</p>
  <p class="keys soft by-keys"><kbd>tab</kbd> the next corner: <kbd>←</kbd> <kbd>↑</kbd> <kbd>↓</kbd> <kbd>→</kbd> move it, with <kbd>shift</kbd> farther, <kbd>+</kbd> adds one after it, <kbd>delete</kbd> removes it · <kbd>esc</kbd> cancels</p>
  <div class="tools ends">
    <${Button} id="zones-file" hidden=${!source.drawn} onClick=${() => sendZones(null)}>As in the configuration<//>
    <${Button} id="zones-cancel" class="last" onClick=${giveUp}>Cancel<//><${Button} id="zones-save" onClick=${() => { closeZone(); sendZones(edited.zones); }}>Save<//>
  </div>`;
}
const drawZones = () => { if (edited) render(html`<${ZoneEditor} />`, $("zones")); };
function chooseCorner(name, text = edited.message) {
  edited.at = name;
  notifyZones(text);
  if (name !== null) $("zones-shapes").querySelector('[data-corner="' + name + '"]')?.focus({ preventScroll: true });
}

/* What can be done to them. */
function beginZone() {
  edited.open = [];
  chooseCorner(null, "Press the places of its corners; the first one again closes it.");
}
function addRectangle() {
  edited.open = null;
  const name = edited.zones.push(structuredClone(RECTANGLE)) - 1 + ":0";
  chooseCorner(name, placeText(name) + ". Arrows move it.");
}
function putCorner(x, y) {
  const open = edited.open;
  if (open.length >= report.most_corners) return notifyZones("A zone has at most " + report.most_corners + " corners: close it.");
  open.push([clamped(x), clamped(y)]);
  chooseCorner(null, open.length < LEAST_CORNERS ? "At least " + countText(LEAST_CORNERS - open.length, "more corner") + "." : "The first corner again closes the zone.");
}
function closeZone() {
  if ((edited.open?.length ?? 0) < LEAST_CORNERS) return;
  const n = edited.zones.push(edited.open);
  edited.open = null;
  chooseCorner(n - 1 + ":0", "Zone " + n + " is closed.");
}
function moveCorner(name, x, y) {
  const [polygon, corner] = placeOf(name);
  cornersOf(polygon)[corner] = [clamped(x), clamped(y)];
  notifyZones(placeText(name));
}
function addCorner() {
  const [polygon, corner] = placeOf(edited.at), corners = cornersOf(polygon), next = corners[(corner + 1) % corners.length], name = polygon + ":" + (corner + 1);
  if (polygon === "open" || corners.length >= report.most_corners) return;
  corners.splice(corner + 1, 0, [0, 1].map((axis) => clamped((corners[corner][axis] + next[axis]) / 2)));
  chooseCorner(name, placeText(name));
}
function deleteCorner() {
  const [polygon, corner] = placeOf(edited.at), corners = cornersOf(polygon);
  if (polygon !== "open" && corners.length <= LEAST_CORNERS) return deleteZone();
  corners.splice(corner, 1);
  chooseCorner(corners.length ? polygon + ":" + Math.min(corner, corners.length - 1) : null, "");
}
function deleteZone() {
  const [polygon] = placeOf(edited.at);
  if (polygon === "open") edited.open = null;
  else edited.zones.splice(polygon, 1);
  chooseCorner(null, edited.zones.length ? countText(edited.zones.length, "zone") + " left." : "No zone: motion counts everywhere.");
  $("zone-rectangle").focus();
}
/* Cancel the zone that is being drawn, else close the dialog; with unsaved changes only when asked twice. */
function giveUp() {
  if (edited.open) {
    edited.open = null;
    return chooseCorner(null, "");
  }
  if (JSON.stringify(edited.zones) === edited.before || edited.sure) return $("zones").close();
  edited.sure = true;
  return notifyZones("Nothing is saved yet: cancel again to lose the changes.");
}
function sendZones(zones) {
  const { source } = edited;
  post(pathOf(source, "zones"), { zones }).then(() => leaveZones(source), (error) => notifyZones(error.message));
}

/* By pointer. */
function fractionsOf(event) {
  const box = $("zones-shapes").getBoundingClientRect();
  return [(event.clientX - box.left) / box.width, (event.clientY - box.top) / box.height];
}
function pressZones(event) {
  const name = event.target.closest("[data-corner]")?.dataset.corner;
  pressed = name === undefined ? null : { name, x: event.clientX, y: event.clientY, moved: false, isDown: true };
  edited.sure = false;
  if (!pressed) return;
  event.preventDefault(); /* the focus goes to the corner */
  chooseCorner(name);
  $("zones-shapes").setPointerCapture(event.pointerId);
}
function dragZones(event) {
  if (!pressed?.isDown) return;
  pressed.moved ||= Math.hypot(event.clientX - pressed.x, event.clientY - pressed.y) > SLIP;
  if (pressed.moved) moveCorner(pressed.name, ...fractionsOf(event));
}
/* The first corner again closes the zone, and so does the last one, as by a double click. */
function releaseZones() {
  if (!pressed?.isDown) return;
  const [polygon, corner] = placeOf(pressed.name);
  pressed.isDown = false;
  if (polygon === "open" && !pressed.moved && (corner === 0 || corner === edited.open.length - 1)) closeZone();
  else notifyZones(placeText(pressed.name));
}
function clickZones(event) {
  if (pressed) return;
  const zone = event.target.dataset.zone, place = fractionsOf(event);
  if (!edited.open && zone !== undefined) return chooseCorner(zone + ":0");
  if (!edited.open && edited.zones.length >= report.most_zones) return notifyZones("There are at most " + countText(report.most_zones, "zone") + ".");
  if (!edited.open) beginZone();
  putCorner(...place);
}

/* By keys, wherever a click has left the focus. */
document.addEventListener("keydown", (event) => {
  if (!edited || event.ctrlKey || event.metaKey || event.altKey) return;
  const name = event.target.closest("[data-corner]")?.dataset.corner, arrow = ARROWS[event.key];
  if (event.key !== "Escape") edited.sure = false;
  if (event.key === "Escape") giveUp();
  else if (!name) return;
  else if (arrow) {
    const [polygon, corner] = placeOf(name), [x, y] = cornersOf(polygon)[corner], far = event.shiftKey ? FAR : STEP;
    moveCorner(name, x + far * arrow[0], y + far * arrow[1]);
  } else if (event.key === "+" || event.key === "Insert") addCorner();
  else if (event.key === "Delete" || event.key === "Backspace") deleteCorner();
  else if (event.key === "Enter" && edited.open) closeZone();
  else return;
  event.preventDefault();
});
$("zones").addEventListener("close", () => { edited = pressed = null; });
addEventListener("resize", drawZones);
