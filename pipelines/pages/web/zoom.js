/* The part of a video that is in view, in seconds, with the buttons and keys that change it. A page that zooms has `step`,
   the seconds of a decision, `wholeSeconds()` of the video on show, and `viewChanged()`, which draws anew. */
const LEAST_DECISIONS = 8; /* that stay in view */
let view = [0, 1], now = 0; /* and the cursor */

function look(start, span) {
  const whole = wholeSeconds(), least = Math.min(whole, LEAST_DECISIONS * step);
  span = Math.max(least, Math.min(whole, span));
  start = Math.max(0, Math.min(whole - span, start));
  view = [start, start + span];
  $("out").disabled = $("fit").disabled = span >= whole;
  $("in").disabled = span <= least;
  viewChanged();
}
function zoom(factor, centre = now) {
  const [start, end] = view;
  look(centre - (centre - start) * factor, (end - start) * factor);
}
const lookAtAll = () => look(0, wholeSeconds());
const zoomKeys = { "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: lookAtAll };
function buildZoom() {
  for (const [id, act] of [["in", zoomKeys["+"]], ["out", zoomKeys["-"]], ["fit", lookAtAll]]) $(id).addEventListener("click", act);
}
