/* The timeline of a report: one lane per class; axis and overview above them. */
function buildLanes() {
  const height = names.length <= 9 ? 50 : names.length <= 21 ? 40 : 30;
  document.documentElement.style.setProperty("--lane", height + "px");
  $("lanes").classList.toggle("tight", height < 40);
  names.forEach((_, index) => addLane(index));
  widenNames();
}
function addLane(index) {
  const row = make("div", "lane"), name = make("button"), plot = make("div", "plot");
  const lane = { index, row, name, canvas: make("canvas"), value: make("output"), seen: false, dirty: true,
    detected: [], labelled: [], foreseen: expected.filter(({ label }) => label === names[index]) };
  name.type = "button";
  name.tabIndex = -1;
  name.title = names[index];
  name.setAttribute("aria-label", "Next segment of " + names[index]);
  lane.value.setAttribute("aria-live", "off");
  name.append(spot(names[index]), make("span", "cut", names[index]), lane.value);
  name.addEventListener("click", () => {
    const kept = lane.detected.filter(passes), starts = (kept.length ? kept : lane.labelled).map(({ start }) => start);
    if (starts.length) seek(starts.find((start) => start > now + 1e-3) ?? starts[0]);
  });
  name.addEventListener("focus", () => { for (const other of lanes) other.name.tabIndex = other === lane ? 0 : -1; });
  name.addEventListener("keydown", (event) => {
    const shown = lanes.filter((other) => !other.row.hidden), at = shown.indexOf(lane);
    const next = { ArrowDown: shown[at + 1], ArrowUp: shown[at - 1], Home: shown[0], End: shown.at(-1) }[event.key];
    if (!next) return;
    event.preventDefault();
    next.name.focus();
  });
  lane.canvas.setAttribute("aria-hidden", "true");
  plot.append(lane.canvas);
  row.append(name, plot);
  row.lane = lane;
  /* Background comes last */
  const last = lanes.at(-1);
  if (last && !last.index) {
    $("lanes").insertBefore(row, last.row);
    lanes.splice(-1, 0, lane);
  } else {
    $("lanes").append(row);
    lanes.push(lane);
  }
  near.observe(row);
}
/* What each lane shows, after thresholds or labels have changed. */
function fillLanes() {
  const detections = groupByClass(segments), labels = groupByClass(truth || []);
  for (const lane of lanes) {
    lane.detected = detections.get(names[lane.index]) || [];
    lane.labelled = labels.get(names[lane.index]) || [];
  }
}
function showLanes() {
  for (const lane of lanes) lane.row.hidden = filter.hidden.has(lane.index);
  const shown = lanes.filter((lane) => !lane.row.hidden);
  $("nothing").hidden = shown.length > 0;
  $("surface").hidden = !shown.length;
  if (shown.length && !shown.some((lane) => lane.name.tabIndex === 0)) shown[0].name.tabIndex = 0;
  redraw();
}

function hatch(pen, toX, height, ratio) {
  pen.strokeStyle = theme.truth;
  pen.lineWidth = ratio * 0.75;
  for (const [x, width] of placed(pen, gaps, toX, 1)) hatchBox(pen, x, 0, width, height, 6 * ratio);
}
function drawCurve(pen, lane, width, base, top, ratio, small) {
  const span = view[1] - view[0], toX = (time) => (time - view[0]) / span * width;
  const row = lane.index * chunks, toY = (code) => base - code / fullScale * (base - top);
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
  if (width * step / span >= ratio) { /* room for each chunk: a line through their middles */
    const first = Math.max(0, Math.floor((view[0] - begin) / step) - 1), last = Math.min(chunks, Math.ceil((view[1] - begin) / step) + 1);
    for (let chunk = first; chunk < last; chunk++) {
      const code = codes[row + chunk];
      if (code === missing) close(); else point(toX(begin + (chunk + 0.5) * step), code);
    }
  } else { /* many chunks in one pixel: the highest and the lowest of each, so that no peak is lost */
    for (let x = 0; x < width; x++) {
      const from = Math.floor((view[0] - begin + x / width * span) / step), to = Math.max(from + 1, Math.floor((view[0] - begin + (x + 1) / width * span) / step));
      let low = missing, high = -1;
      for (let chunk = Math.max(0, from), end = Math.min(chunks, to); chunk < end; chunk++) {
        const code = codes[row + chunk];
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
function drawOnset(pen, y, width, ratio, alpha) {
  pen.save();
  pen.strokeStyle = theme.truth;
  pen.globalAlpha = alpha;
  pen.lineWidth = ratio;
  pen.setLineDash([2 * ratio, 4 * ratio]);
  pen.beginPath();
  pen.moveTo(0, Math.round(y) + 0.5);
  pen.lineTo(width, Math.round(y) + 0.5);
  pen.stroke();
  pen.restore();
}
/* From the moment of the decision to the moment at which the action was expected to begin. */
function drawExpected(pen, lane, toX, y, ratio) {
  pen.lineWidth = ratio;
  pen.beginPath();
  for (const { time, start } of lane.foreseen) {
    if (start < view[0] || time > view[1]) continue;
    pen.moveTo(toX(time), y);
    pen.lineTo(toX(start), y);
    pen.moveTo(toX(time) + 2 * ratio, y);
    pen.arc(toX(time), y, 2 * ratio, 0, 2 * Math.PI);
  }
  pen.stroke();
}
function drawLane(lane) {
  const { pen, width, height, ratio } = fresh(lane.canvas);
  const span = view[1] - view[0], toX = (time) => (time - view[0]) / span * width;
  const small = height / ratio < 39, barHeight = Math.round((small ? 5 : 8) * ratio), round = 2 * ratio;
  const truthHeight = truth ? Math.round((small ? 3 : 5) * ratio) : 0, space = Math.round((small ? 2 : 3) * ratio);
  const truthY = height - truthHeight - space, barY = truthY - barHeight - (truth ? Math.round(ratio * (small ? 1 : 2)) : 0);
  hatch(pen, toX, height, ratio);
  pen.fillStyle = pen.strokeStyle = colourOf(names[lane.index]);
  const base = barY - space, top = Math.round((small ? 3 : 5) * ratio);
  if (lane.index < classes.length) drawCurve(pen, lane, width, base, top, ratio, small);
  const rule = small ? null : ruleOf(names[lane.index]);
  if (rule) drawOnset(pen, base - rule.on * (base - top), width, ratio, 0.75);
  if (rule && tries()) drawOnset(pen, base - rule.off * (base - top), width, ratio, 0.35);
  drawExpected(pen, lane, toX, barY + barHeight / 2, ratio);

  const passing = lane.detected.filter(passes), kept = passing.filter((segment) => !isFalse(segment));
  drawFalse(pen, passing.filter(isFalse).map(({ start, end }) => [start, end]), toX, barY, barHeight, ratio);
  /* pale until it was announced */
  bars(pen, kept.map(({ start, end }) => [start, end]), toX, barY, barHeight, round);
  pen.globalAlpha = 0.38;
  pen.fill();
  pen.globalAlpha = 1;
  bars(pen, kept.map(({ start, end, announced }) => [Math.max(start, Math.min(announced ?? start, end - step / 2)), end]), toX, barY, barHeight, round);
  pen.fill();

  if (truth) drawTruth(pen, lane.labelled, toX, truthY, truthHeight, ratio);
  lane.dirty = false;
}
function drawTruth(pen, labels, toX, y, height, ratio) {
  const [found, missed] = [true, false].map((wanted) => labels.filter((label) => Boolean(label.found) === wanted).map(({ start, end }) => [start, end]));
  drawLabels(pen, found, missed, toX, y, height, ratio);
}
/* All of the video: detections above, labels below them. Kept, since it moves with the cursor at each frame. */
let overview = null;
function drawOverview() {
  const { pen, width, height, ratio } = fresh($("overview").firstElementChild);
  const toX = (time) => time / duration * width;
  if (!overview || overview.width !== width || overview.height !== height) {
    overview = new OffscreenCanvas(width, height);
    const brush = overview.getContext("2d"), inset = 5 * ratio, bar = height - 2 * inset - (truth ? 4 * ratio : 0);
    hatch(brush, toX, height, ratio);
    for (const segment of segments.filter(passes)) {
      brush.fillStyle = brush.strokeStyle = colourOf(segment.label);
      if (isFalse(segment)) drawFalse(brush, [[segment.start, segment.end]], toX, inset, bar, ratio);
      else brush.fillRect(toX(segment.start), inset, Math.max(ratio, toX(segment.end) - toX(segment.start)), bar);
    }
    drawTruth(brush, truth ? truth.filter(shows) : [], toX, height - inset - 2 * ratio, 3 * ratio, ratio);
  }
  pen.drawImage(overview, 0, 0);
  drawPart(pen, toX, width, height, ratio);
}

const wholeSeconds = () => duration;
function viewChanged() {
  axisDirty = true;
  leave();
  redraw();
}
