/* What a report and the index compute: segments by thresholds, which of them are right, and a table of them. */
/* Scores to segments, as lstr/timeline.py decides: runs by hysteresis, near ones joined, then short ones dropped that are not on at the end, and starts backdated. */
const TOLERANCE = 1e-6; /* chunks: a length this near a whole number of chunks is that number */
const DEFAULT_RULES = { on: 0.5, off: 0.35, min_length: 0, merge_gap: 0, highest: false, backdate: 0 };
const UNDECIDABLE = ["Background", "Ambiguous"]; /* classes that are no action */

/* The stored rules of a class, overridden by the rules to try (null keeps the stored one), as by `--on` and `--off`. */
function changedRules(stored, trying) {
  const chosen = Object.fromEntries(Object.entries(trying).filter(([, value]) => value !== null));
  const merged = { ...DEFAULT_RULES, ...stored, ...chosen };
  if (chosen.off === undefined) merged.off = Math.min(merged.off, merged.on);
  else if (chosen.on === undefined) merged.on = Math.max(merged.off, merged.on);
  return merged;
}

/* Of each chunk whether no other action has a higher code than the class at `index`; `actions` are indices too. */
function highestOf(codes, chunks, index, actions) {
  return (chunk) => actions.every((other) => codes[other * chunks + chunk] <= codes[index * chunks + chunk]);
}

/* The actions in a curve of uint16 codes, each with its mean score and the moment at which it is announced, before their starts are backdated. A chunk that does not count is below both thresholds. */
function decideRuns(curve, { fullScale, missing, step, begin = 0 }, { on, off, min_length, merge_gap }, counts = () => true) {
  const minChunks = Math.max(1, Math.ceil(min_length / step - TOLERANCE));
  const gapChunks = Math.floor(merge_gap / step + TOLERANCE);
  const found = [];
  let run = null;
  let seen = 0; /* the end of the last chunk with a score */
  let seenSince = 0; /* the chunk from which on none was missing */
  const finish = (still = false) => {
    const { first, end, total, number, announced, reported, parts, since } = run;
    const action = { start: begin + first * step, end: begin + end * step, score: total / number, announced, first, reported, parts, since };
    if (announced !== null) found.push(still ? { ...action, still_active: true } : action);
    run = null;
  };
  for (let chunk = 0; chunk < curve.length; chunk++) {
    if (curve[chunk] === missing) {
      seenSince = chunk + 1;
      continue;
    }
    const score = curve[chunk] / fullScale;
    seen = chunk + 1;
    if (run && chunk - run.end > gapChunks) finish(); /* the chunks between were not seen */
    if (!run) {
      if (score < on || !counts(chunk)) continue;
      run = { first: chunk, end: chunk, total: 0, number: 0, pending: [], announced: null, reported: Infinity, parts: [], since: seenSince };
    }
    if (score >= (run.end === chunk ? off : on) && counts(chunk)) {
      run.total += run.pending.reduce((sum, value) => sum + value, 0) + score;
      run.number += run.pending.length + 1;
      if (run.end < chunk || !run.parts.length) run.parts.push([chunk, chunk + 1]);
      else run.parts.at(-1)[1] = chunk + 1;
      run.end = chunk + 1;
      run.pending = [];
    } else if (chunk + 1 - run.end > gapChunks) {
      finish();
      continue;
    } else {
      run.pending.push(score); /* counts if the gap closes */
    }
    if (run.announced === null && run.end - run.first >= minChunks) {
      run.announced = begin + (chunk + 1) * step;
      run.reported = chunk;
    }
  }
  if (run) {
    const still = !run.pending.length;
    if (run.announced === null && still) run.announced = begin + seen * step;
    finish(still);
  }
  return found;
}

/* The actions of all classes, `found` as { rule, runs } of each, with their starts backdated: not before the end of what was reported of the class, or with `highest` of any, nor in chunks without a score. */
function backdated(found, { step, begin = 0 }) {
  const endOfAll = reportedEnds(found.flatMap(({ runs }) => runs));
  return found.map(({ rule, runs }) => {
    const backdate = rule ? Math.floor(rule.backdate / step + TOLERANCE) : 0;
    if (!backdate) return runs;
    const endBefore = rule.highest ? endOfAll : reportedEnds(runs);
    return runs.map(({ first, since, reported, parts, ...action }) => {
      return { ...action, start: begin + Math.min(first, Math.max(first - backdate, since, endBefore(first))) * step };
    });
  });
}

/* Where the last of what was reported of runs before a chunk ends, as a function of the chunk: 0 where nothing was. */
function reportedEnds(runs) {
  const ends = runs.flatMap(({ reported, parts }) => parts.map(([start, end]) => ({ known: Math.max(reported, start), end })));
  ends.sort((one, other) => one.known - other.known);
  for (let place = 1; place < ends.length; place++) ends[place].end = Math.max(ends[place].end, ends[place - 1].end);
  return (chunk) => Math.min(ends.findLast(({ known }) => known < chunk)?.end ?? 0, chunk);
}

/* Detections against labels: a label is found by one detection of its class that overlaps it enough, or begins with it. */
const LEAST_IOU = 0.3;
const ONSET_SECONDS = 1;

function overlap(one, other) {
  const both = Math.min(one.end, other.end) - Math.max(one.start, other.start);
  return both > 0 ? both / (one.end - one.start + other.end - other.start - both) : 0;
}
const fits = (label, detection) => Math.abs(detection.start - label.start) <= ONSET_SECONDS || overlap(label, detection) >= LEAST_IOU;

/* For each label of one class the index of its detection, or -1; both by start. As many pairs as can be. */
function pairUp(labels, detections) {
  const latest = []; /* the latest end up to each detection, to skip all detections that end before a label */
  detections.forEach(({ end }, index) => { latest.push(Math.max(end, latest[index - 1] ?? end)); });
  let first = 0;
  const choices = labels.map((label) => {
    while (first < detections.length && latest[first] < label.start && detections[first].start < label.start - ONSET_SECONDS) first++;
    const fitting = [], last = Math.max(label.end, label.start + ONSET_SECONDS);
    for (let index = first; index < detections.length && detections[index].start <= last; index++) {
      if (fits(label, detections[index])) fitting.push(index);
    }
    return fitting;
  });
  const pair = new Int32Array(labels.length).fill(-1), taken = new Int32Array(detections.length).fill(-1);
  choices.forEach((_, begin) => {
    const reachedFrom = new Map(), queue = [begin];
    for (const label of queue) {
      const free = choices[label].find((index) => {
        if (reachedFrom.has(index)) return false;
        reachedFrom.set(index, label);
        if (taken[index] >= 0) queue.push(taken[index]);
        return taken[index] < 0;
      });
      if (free === undefined) continue;
      for (let index = free; index >= 0;) { /* back to the beginning, each label gives up its detection for the next */
        const owner = reachedFrom.get(index), freed = pair[owner];
        pair[owner] = index;
        taken[index] = owner;
        index = freed;
      }
      break;
    }
  });
  return pair;
}

/* Entries by class, each group by start. */
function groupByClass(entries) {
  const groups = new Map();
  for (const entry of entries) {
    if (!groups.has(entry.label)) groups.set(entry.label, []);
    groups.get(entry.label).push(entry);
  }
  for (const group of groups.values()) group.sort(byStart);
  return groups;
}
/* The pairs [label, detection] of all classes. */
function judge(labels, detections) {
  const detected = groupByClass(detections);
  return [...groupByClass(labels)].flatMap(([name, group]) => {
    const others = detected.get(name) || [];
    return [...pairUp(group, others)].flatMap((index, at) => (index < 0 ? [] : [[group[at], others[index]]]));
  });
}

/* A table of segments, as `lstr labels` reads and writes it. */
/* An apostrophe before what a spreadsheet would take for a formula, and run; `lstr labels` reads it without. */
const cellOf = (value) => (typeof value === "string" && /^'*[=+\-@＝＋－＠]/.test(value) ? "'" + value : String(value));
const csvField = (value) => (/[",\n\r]/.test(cellOf(value)) ? '"' + cellOf(value).replaceAll('"', '""') + '"' : cellOf(value));

/* Videos {id, duration, segments} as a table; a video without segments has a row without a label. */
function toCsv(videos) {
  const rows = [["video", "duration", "start", "end", "label", "score"]];
  for (const { id, duration, segments } of videos) {
    for (const { start, end, label, score } of segments) rows.push([id, duration, start, end, label, score ?? ""]);
    if (!segments.length) rows.push([id, duration, "", "", "", ""]);
  }
  return rows.map((row) => row.map(csvField).join(",") + "\n").join("");
}
function download(name, text) {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([text], { type: "text/csv;charset=utf-8" }));
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10_000); /* some browsers begin to read later */
}
