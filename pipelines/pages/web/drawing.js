/* What timelines share: lanes with a canvas each, drawn only while in sight, the part of the video in view, and the pointer.
   A page with them has `frame(tick)`, `seek(time)`, `names` of its lanes, and the `duration` of its video. */
const lanes = [];
let moved = true, axisDirty = true, frameAsked = false;

const near = new IntersectionObserver((entries) => {
  for (const entry of entries) {
    entry.target.lane.seen = entry.isIntersecting;
    if (entry.isIntersecting) schedule();
  }
}, { rootMargin: "200px" });

function schedule() {
  if (!frameAsked) requestAnimationFrame(frame);
  frameAsked = true;
}
function redraw() {
  for (const lane of lanes) lane.dirty = true;
  moved = true;
  schedule();
}

/* The column of names takes what the longest needs, within reason. */
function widenNames() {
  const pen = document.createElement("canvas").getContext("2d"), wide = innerWidth > 820;
  pen.font = "650 14px " + getComputedStyle(document.body).fontFamily;
  const longest = Math.max(0, ...names.map((name) => pen.measureText(name).width));
  const room = wide ? Math.min(260, Math.max(120, longest + 74)) : Math.min(132, Math.max(86, longest + 26));
  document.documentElement.style.setProperty("--names", Math.round(room) + "px");
}
/* On an overview, the part that is in view and the cursor. */
function drawPart(pen, toX, width, height, ratio) {
  if (view[1] - view[0] < duration) {
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

function timeAt(element, x, [start, end]) {
  const box = element.getBoundingClientRect();
  return start + Math.max(0, Math.min(1, (x - box.left) / box.width)) * (end - start);
}
/* The mouse seeks at once; a finger by a tap or sideways, for up and down it scrolls; two fingers zoom and move. */
const SLIP = 8; /* pixels that a tap may move */
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
  element.addEventListener("pointerup", (event) => {
    if (from !== null && !held && fingers.has(event.pointerId)) go(event);
    fingers.delete(event.pointerId);
    from = null;
  });
  element.addEventListener("pointercancel", (event) => {
    fingers.delete(event.pointerId);
    from = null;
  });
}
function wheel(event) {
  const sideways = Math.abs(event.deltaX) > Math.abs(event.deltaY) ? event.deltaX : event.shiftKey ? event.deltaY : 0;
  if (event.ctrlKey || event.metaKey) zoom(Math.exp(Math.max(-60, Math.min(60, event.deltaY)) / 120), timeAt($("surface"), event.clientX, view));
  else if (sideways && view[1] - view[0] < duration) look(view[0] + sideways / $("surface").clientWidth * (view[1] - view[0]), view[1] - view[0]);
  else return;
  event.preventDefault();
}
