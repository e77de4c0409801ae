/* How lanes show detections, labels and times: found ones solid, false alarms hatched in an outline, missed labels hollow. */

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
/* The places [x, width] of spans [start, end] that are on the canvas; what is narrower than `least` pixels is still seen. */
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
  let free = 0; /* the end of the last text; those at the edges lie beside their ticks, and may leave no room for the next */
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
