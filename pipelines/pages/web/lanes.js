/* Lanes of a timeline, for all pages: a name and a canvas each, the axis and an overview above them, cursor, zoom and pointer.
   A page has `step` (seconds of a decision), `wholeSeconds()`, `seek(time)`, `playOn(tick)`, which moves the cursor while
   something plays and says whether it does, and `showMoment(plays)`, which shows what is at the cursor. */
const LEAST_DECISIONS = 8; /* that stay in view */
const SLIP = 8; /* pixels that a tap may move */
let view = [0, 1], now = 0; /* seconds in view, and the cursor */
let moved = true, axisDirty = true, frameAsked = false, zoomButtons = null, lastStep = -1;

function schedule() {
  if (!frameAsked) requestAnimationFrame(frame);
  frameAsked = true;
}
function redraw() {
  for (const lane of lanesShown()) lane.dirty = true;
  moved = axisDirty = true;
  schedule();
}
const lanesShown = () => [...document.querySelectorAll(".lane, .line")].map((row) => row.lane);
function frame(tick) {
  frameAsked = false;
  const plays = playOn(tick), surface = $("surface"), span = view[1] - view[0];
  if (plays && (now > view[1] || now < view[0])) look(now - 0.08 * span, span);
  if (surface && (moved || plays)) {
    moved = false;
    showMoment(plays);
    $("cursor").style.transform = "translateX(" + placeOnSurface(now) + "px)";
    if (!plays || Math.floor(now / step) !== lastStep) { /* a screen reader hears of each step, but not of each frame */
      surface.setAttribute("aria-valuenow", now.toFixed(3));
      surface.setAttribute("aria-valuetext", momentText());
    }
    lastStep = Math.floor(now / step);
  }
  if (surface && axisDirty) drawTimes($("axis").firstElementChild, view, wholeSeconds());
  axisDirty = false;
  for (const lane of lanesShown()) if (lane.seen && lane.dirty) lane.draw();
  if (plays) schedule();
}

/* Which part is in view. */
function look(start, span) {
  const whole = wholeSeconds();
  span = Math.max(Math.min(whole, LEAST_DECISIONS * step), Math.min(whole, span));
  start = Math.max(0, Math.min(whole - span, start));
  view = [start, start + span];
  zoomButtons?.forceUpdate();
  redraw();
}
function zoom(factor, centre = now) {
  const [start, end] = view;
  look(centre - (centre - start) * factor, (end - start) * factor);
}
const lookAtAll = () => look(0, wholeSeconds());
/* So that the cursor is in view. */
function lookAtCursor() {
  const span = view[1] - view[0];
  if (now < view[0] || now > view[1]) look(now - span / 2, span);
  moved = true;
  schedule();
}
const zoomKeys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: lookAtAll };
class Zoom extends Component {
  componentDidMount() { zoomButtons = this; }
  render() {
    const whole = wholeSeconds(), span = view[1] - view[0], isWhole = span >= whole;
    return html`<div class="zoom" role="group" aria-label="Zoom">
      <button type="button" id="out" aria-label="Zoom out" title="Zoom out (-)" disabled=${isWhole} onClick=${zoomKeys["-"]}>−</button>
      <button type="button" id="fit" aria-label="Show the whole video" title="Show everything (0)" disabled=${isWhole} onClick=${lookAtAll}>Fit</button>
      <button type="button" id="in" aria-label="Zoom in" title="Zoom in (+)" disabled=${span <= Math.min(whole, LEAST_DECISIONS * step)} onClick=${zoomKeys["+"]}>+</button>
    </div>`;
  }
}

const spansOf = (entries) => entries.map(({ start, end }) => [start, end]);
/* A lane: `children` are its name, `content()` is what its canvas shows, drawn only while it is in sight. */
const near = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) {
    target.lane.seen = isIntersecting;
    if (isIntersecting) schedule();
  }
}, { rootMargin: "200px" });
class Lane extends Component {
  componentDidMount() {
    Object.assign(this, { seen: false, dirty: true });
    this.base.lane = this;
    near.observe(this.base);
  }
  /* `stamp` says whether the canvas has to be drawn again; without one it always has. */
  componentDidUpdate({ stamp }) {
    if (stamp !== undefined && stamp === this.props.stamp) return;
    this.dirty = true;
    schedule();
  }
  componentWillUnmount() { near.unobserve(this.base); }
  draw() {
    const { content, range = view } = this.props;
    this.dirty = false;
    drawLane(this.base.querySelector("canvas"), content(), range);
  }
  render({ children, index, look: classes = "" }) {
    return html`<div class=${("lane " + classes).trim()} data-index=${index}>${children}<div class="plot"><canvas aria-hidden="true" /></div></div>`;
  }
}
/* All lanes of a video below their axis. overview: the name of the strip above, which shows all of it. */
class Lanes extends Component {
  componentDidMount() {
    scrub($("surface"), () => view, true);
    scrub($("axis"), () => view);
    if ($("overview")) scrub($("overview"), () => [0, wholeSeconds()]);
    $("plot").addEventListener("wheel", wheel, { passive: false });
    new ResizeObserver(() => { this.props.resized?.(); redraw(); }).observe($("plot"));
  }
  render({ children, overview, over, tight = false, ...others }) {
    return html`<div id="plot">
      ${overview && html`<div class="strip" id="overview"><canvas aria-label=${overview} role="img" /></div>`}
      <div class="axis"><div class="strip" id="axis"><canvas aria-hidden="true" /></div></div>
      <div id="lanes" class=${tight ? "tight" : ""}>
        <div id="surface" role="slider" tabindex="0" aria-label="Time" aria-valuemin="0" aria-valuemax=${wholeSeconds().toFixed(3)} ...${others}><div id="cursor" />${over}</div>
        ${children}
      </div>
    </div>`;
  }
}
/* What the marks of lanes mean: [look, text] of each, where there is one. */
const Legend = ({ entries, children }) => html`<div id="legend">${entries.filter(Boolean).map(([look, text]) => html`<span key=${text}><i class=${look} />${text}</span>`)}${children}</div>`;
/* The buttons of a list of errors, which the keys x and shift x press as well. */
const ErrorButtons = ({ disabled, act }) => html`
  <${Button} id="error-before" aria-keyshortcuts="Shift+X" title="Previous error (shift x)" disabled=${disabled} onClick=${() => act(-1)}>← Previous error<//>
  <${Button} id="error-after" aria-keyshortcuts="X" title="Next error (x)" disabled=${disabled} onClick=${() => act(1)}>Next error → <kbd aria-hidden="true">x</kbd><//>`;
/* The column of names takes what the longest needs, within reason. */
function widenNames(names) {
  const pen = document.createElement("canvas").getContext("2d"), wide = innerWidth > 820;
  pen.font = "650 14px " + getComputedStyle(document.body).fontFamily;
  const longest = Math.max(0, ...names.map((name) => pen.measureText(name).width));
  const room = wide ? Math.min(260, Math.max(120, longest + 74)) : Math.min(132, Math.max(86, longest + 26));
  document.documentElement.style.setProperty("--names", Math.round(room) + "px");
}

/* The pointer. */
const placeOnSurface = (time) => (time - view[0]) / (view[1] - view[0]) * $("surface").clientWidth;
function timeAt(element, x, [start, end]) {
  const box = element.getBoundingClientRect();
  return start + Math.max(0, Math.min(1, (x - box.left) / box.width)) * (end - start);
}
/* A handle at an edge in time, over a part of the lanes; hidden where it is out of view. */
function placeHandle(handle, time, top, height) {
  const x = time === null ? -2 : placeOnSurface(time);
  handle.hidden = x < -1 || x > $("surface").clientWidth + 1;
  handle.style.transform = "translate(" + x + "px," + top + "px)";
  handle.style.height = height + "px";
}
/* The mouse seeks at once; a finger by a tap or sideways, for up and down it scrolls; two fingers zoom and move. */
function scrub(element, range, pinches = false) {
  const fingers = new Map();
  let before = null, from = null, held = false;
  const spread = () => {
    const [one, other] = [...fingers.values()];
    return { apart: Math.max(24, Math.abs(one - other)), centre: (one + other) / 2 };
  };
  const go = (event) => seek(timeAt(element, event.clientX, range()));
  element.addEventListener("pointerdown", (event) => {
    if (event.button) return;
    element.setPointerCapture(event.pointerId);
    fingers.set(event.pointerId, event.clientX);
    before = pinches && fingers.size === 2 ? spread() : null;
    held = event.pointerType !== "touch";
    from = fingers.size === 1 ? event.clientX : null;
    if (held) go(event);
  });
  element.addEventListener("pointermove", (event) => {
    if (!fingers.has(event.pointerId)) return;
    fingers.set(event.pointerId, event.clientX);
    if (before && fingers.size === 2) {
      const after = spread(), time = timeAt(element, before.centre, view), span = (view[1] - view[0]) * before.apart / after.apart;
      const box = element.getBoundingClientRect();
      look(time - (after.centre - box.left) / box.width * span, span);
      before = after;
    } else if (from !== null) {
      held ||= Math.abs(event.clientX - from) > SLIP;
      if (held) go(event);
    }
  });
  const release = (event) => {
    if (event.type === "pointerup" && from !== null && !held && fingers.has(event.pointerId)) go(event);
    fingers.delete(event.pointerId);
    from = null;
  };
  for (const kind of ["pointerup", "pointercancel"]) element.addEventListener(kind, release);
}
function wheel(event) {
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), timeAt($("surface"), event.clientX, view));
  else if (sideways && view[1] - view[0] < wholeSeconds()) look(view[0] + sideways / $("surface").clientWidth * (view[1] - view[0]), view[1] - view[0]);
  else return;
  event.preventDefault();
}

/* What a lane shows of a part [from, to] of the video: `gaps`, then what `paint` draws itself, or a `curve` of scores with
   `rules` at scores, `expected` starts, detections ([start, end] of `solid`, `faint` and false ones, and those that are pale
   until they are `announced`), and labels that were `found` or `missed` below them. */
function drawLane(canvas, content, [from, to]) {
  const { pen, width, height, ratio } = fresh(canvas), toX = (time) => (time - from) / (to - from) * width;
  const { colour, gaps = [], paint: paintOwn, curve, rules = [], expected = [], solid = [], announced, isFalse = [], faint = [], found, missed } = content;
  hatch(pen, gaps, toX, height, ratio);
  pen.fillStyle = pen.strokeStyle = colour;
  if (paintOwn) return paintOwn(pen, { toX, width, height, ratio });
  const small = height / ratio < 39, barHeight = Math.round((small ? 5 : 8) * ratio), round = 2 * ratio;
  const truthHeight = found ? Math.round((small ? 3 : 5) * ratio) : 0, space = Math.round((small ? 2 : 3) * ratio);
  const truthY = height - truthHeight - space, barY = truthY - barHeight - (found ? Math.round(ratio * (small ? 1 : 2)) : 0);
  const base = barY - space, top = Math.round((small ? 3 : 5) * ratio);
  if (curve) drawCurve(pen, curve, [from, to], { width, base, top, ratio, small });
  pen.save();
  pen.fillStyle = theme.truth;
  for (const { score, alpha } of small ? [] : rules) {
    pen.globalAlpha = alpha;
    const y = Math.round(base - score * (base - top)) + (1 - ratio) / 2;
    for (let x = 0; x < width; x += 6 * ratio) pen.fillRect(x, y, 2 * ratio, ratio);
  }
  pen.restore();
  /* from the moment of the decision to the moment at which the action was expected to begin */
  const middle = barY + barHeight / 2;
  pen.lineWidth = ratio;
  pen.beginPath();
  for (const { time, start } of expected.filter((one) => one.start >= from && one.time <= to)) {
    pen.moveTo(toX(time), middle);
    pen.lineTo(toX(start), middle);
    pen.moveTo(toX(time) + 2 * ratio, middle);
    pen.arc(toX(time), middle, 2 * ratio, 0, 2 * Math.PI);
  }
  pen.stroke();
  drawFalse(pen, isFalse, toX, barY, barHeight, ratio);
  for (const [spans, alpha] of [[announced ? solid : [], 0.38], [faint, 0.3], [announced ?? solid, 1]]) {
    pen.globalAlpha = alpha;
    bars(pen, spans, toX, barY, barHeight, round);
    pen.fill();
  }
  if (found) drawLabels(pen, found, missed, toX, truthY, truthHeight, ratio);
}
/* Scores as codes from `first` on, without those that are `missing`: a line through the middles of chunks, or, where many are in
   one pixel, the highest and the lowest of each, so that no peak is lost. */
function drawCurve(pen, { codes, first, count, begin, step, fullScale, missing }, [from, to], { width, base, top, ratio, small }) {
  const span = to - from, toX = (time) => (time - from) / span * width, toY = (code) => base - code / fullScale * (base - top);
  const area = new Path2D(), line = new Path2D();
  let open = false, lastX = 0;
  const close = () => { if (open) { area.lineTo(lastX, base); area.closePath(); } open = false; };
  const point = (x, code) => {
    const y = toY(code);
    if (open) { line.lineTo(x, y); } else { area.moveTo(x, base); line.moveTo(x, y); }
    area.lineTo(x, y);
    open = true;
    lastX = x;
  };
  if (width * step / span >= ratio) {
    const start = Math.max(0, Math.floor((from - begin) / step) - 1), end = Math.min(count, Math.ceil((to - begin) / step) + 1);
    for (let chunk = start; chunk < end; chunk++) {
      const code = codes[first + chunk];
      if (code === missing) close(); else point(toX(begin + (chunk + 0.5) * step), code);
    }
  } else {
    for (let x = 0; x < width; x++) {
      const start = Math.floor((from - begin + x / width * span) / step), end = Math.max(start + 1, Math.floor((from - begin + (x + 1) / width * span) / step));
      let low = missing, high = -1;
      for (let chunk = Math.max(0, start); chunk < Math.min(count, end); chunk++) {
        const code = codes[first + chunk];
        if (code === missing) continue;
        if (code > high) high = code;
        if (code < low) low = code;
      }
      if (high < 0) { close(); continue; }
      point(x + 0.5, high);
      if (toY(low) - toY(high) > ratio) line.lineTo(x + 0.5, toY(low));
    }
  }
  close();
  pen.globalAlpha = 0.2;
  pen.fill(area);
  pen.globalAlpha = 1;
  pen.lineWidth = (small ? 1 : 1.4) * ratio;
  pen.lineJoin = "round";
  pen.stroke(line);
}
/* A strip of all of a video: detections {label, start, end, isFalse}, and below them labels where there are any. */
function drawStrip(pen, toX, height, ratio, detections, found, missed) {
  const inset = 5 * ratio, tall = height - 2 * inset - (found ? 4 * ratio : 0);
  for (const { label, start, end, isFalse } of detections) {
    pen.fillStyle = pen.strokeStyle = colourOf(label);
    if (isFalse) drawFalse(pen, [[start, end]], toX, inset, tall, ratio);
    else pen.fillRect(toX(start), inset, Math.max(ratio, toX(end) - toX(start)), tall);
  }
  if (found) drawLabels(pen, found, missed, toX, height - inset - 2 * ratio, 3 * ratio, ratio);
}
/* The overview of a video, drawn by `draw` and kept, since it moves with the cursor at each frame; over it the part in view. */
let overview = null;
function drawOverview(draw) {
  const { pen, width, height, ratio } = fresh($("overview").firstElementChild), toX = (time) => time / wholeSeconds() * width;
  if (!overview || overview.width !== width || overview.height !== height) {
    overview = new OffscreenCanvas(width, height);
    draw(overview.getContext("2d"), toX, height, ratio);
  }
  pen.drawImage(overview, 0, 0);
  if (view[1] - view[0] < wholeSeconds()) {
    const left = toX(view[0]), right = toX(view[1]);
    pen.fillStyle = theme.card;
    pen.globalAlpha = 0.65;
    pen.fillRect(0, 0, left, height);
    pen.fillRect(right, 0, width - right, height);
    pen.globalAlpha = 1;
    pen.strokeStyle = theme.soft;
    pen.lineWidth = 1.5 * ratio;
    pen.beginPath();
    pen.roundRect(left + ratio, ratio, Math.max(3 * ratio, right - left - 2 * ratio), height - 2 * ratio, 4 * ratio);
    pen.stroke();
  }
  pen.fillStyle = theme.ink;
  pen.fillRect(Math.min(toX(now), width - 2 * ratio), 0, 2 * ratio, height);
}

/* Marks: found ones solid, false alarms hatched in an outline, missed labels hollow. */
function hatch(pen, gaps, toX, height, ratio, colour = theme.truth, apart = 6) {
  pen.strokeStyle = colour;
  pen.lineWidth = ratio * 0.75;
  for (const [x, width] of placed(pen, gaps, toX, 1)) hatchBox(pen, x, 0, width, height, apart * ratio);
}

/* Diagonal lines within a box. */
function hatchBox(pen, x, y, width, height, apart) {
  pen.save();
  pen.beginPath();
  pen.rect(x, y, width, height);
  pen.clip();
  pen.beginPath();
  for (let at = x; at < x + width + height; at += apart) { pen.moveTo(at, y); pen.lineTo(at - height, y + height); }
  pen.stroke();
  pen.restore();
}
/* The places [x, width] of spans [start, end] on the canvas; each is at least `least` pixels wide, so that it is visible. */
function* placed(pen, spans, toX, least) {
  const reach = pen.canvas.height; /* beyond the canvas: enough for lines that lean, and no more */
  for (const [start, end] of spans) {
    const left = Math.max(toX(start), -reach), right = Math.min(toX(end), pen.canvas.width + reach);
    if (right < 0 || left > pen.canvas.width) continue;
    yield [left, Math.max(least, right - left)];
  }
}
/* The path of rounded bars. */
function bars(pen, spans, toX, y, height, round) {
  pen.beginPath();
  for (const [x, width] of placed(pen, spans, toX, 2 * (devicePixelRatio || 1))) pen.roundRect(x, y, width, height, round);
}
function drawFalse(pen, spans, toX, y, height, ratio) {
  pen.lineWidth = ratio * 1.25;
  for (const [x, width] of placed(pen, spans, toX, 5 * ratio)) {
    hatchBox(pen, x, y, width, height, 4 * ratio);
    pen.strokeRect(x + ratio / 2, y + ratio / 2, width - ratio, height - ratio);
  }
}
function drawLabels(pen, found, missed, toX, y, height, ratio) {
  pen.fillStyle = theme.truth;
  bars(pen, found, toX, y, height, ratio);
  pen.fill();
  pen.strokeStyle = theme.soft;
  pen.lineWidth = ratio;
  bars(pen, missed, toX, y + ratio / 2, height - ratio, ratio);
  pen.stroke();
}

const wholeSteps = [0.25, 0.5, 1, 2, 5, 10, 15, 30, 60, 120, 300, 600, 900, 1800, 3600, 7200, 14400, 28800, 86400];
/* Times along a part [start, end] of a video, in seconds. */
function drawTimes(canvas, part, duration) {
  const { pen, width, height, ratio } = fresh(canvas);
  const span = part[1] - part[0], long = duration >= 3600, room = (long ? 84 : 58) * ratio;
  const tick = wholeSteps.find((size) => size / span * width >= room) || Math.ceil(span / 86400 / 4) * 86400;
  pen.font = 11.5 * ratio + "px " + getComputedStyle(document.body).fontFamily;
  pen.textBaseline = "middle";
  let free = 0; /* the end of the last text; at the edges a text is next to its tick, and may leave no room for the next one */
  for (let index = Math.ceil(part[0] / tick); index * tick <= part[1] + 1e-9; index++) {
    const x = (index * tick - part[0]) / span * width, text = clockText(index * tick, tick < 1 ? 2 : 0, long);
    const half = pen.measureText(text).width / 2, left = Math.max(0, Math.min(x - half, width - 2 * half));
    pen.fillStyle = theme.truth;
    pen.fillRect(Math.min(Math.round(x), width - ratio), height - 6 * ratio, ratio, 6 * ratio);
    if (left < free) continue;
    pen.fillStyle = theme.soft;
    pen.fillText(text, left, height / 2 - ratio);
    free = left + 2 * half + 4 * ratio;
  }
}
