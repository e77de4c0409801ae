/* The data of one video: scores, segments, labels, and what of it the filters show. */
const { timeline } = report;
const { classes, chunks } = timeline;
const step = timeline.seconds_per_chunk || 0.25;
const decided = chunks * step;
const duration = Math.max(timeline.duration || 0, decided, step);
const clock = (time, digits = 2) => clockText(time, digits, duration >= 3600);
const gaps = (timeline.gaps || []).map((gap) => (Array.isArray(gap) ? gap : [gap.start, gap.end]))
  .filter(([start, end]) => end > start);
const byStart = (one, other) => one.start - other.start || one.end - other.end;
const segments = [...(timeline.segments || [])].sort(byStart);
const truth = report.truth && [...report.truth].sort(byStart);
const expected = timeline.expected || []; /* by models that anticipate */
const announcements = (report.events || []).filter((event) => event.event === "started");

/* The checkpoint's classes, then those that only the labels have. */
const names = [...classes];
const classOf = new Map(classes.map((label, index) => [label, index]));
for (const { label } of truth || []) if (!classOf.has(label)) classOf.set(label, names.push(label) - 1);

/* uint16 codes, one class after the other. */
const codes = (() => {
  const text = atob(report.scores.base64);
  const values = new Uint16Array(text.length / 2);
  for (let i = 0; i < values.length; i++) values[i] = text.charCodeAt(2 * i) | (text.charCodeAt(2 * i + 1) << 8);
  return values;
})();
const { full_scale: fullScale, missing } = report.scores;
const codeAt = (index, chunk) => (chunk < 0 || index >= classes.length ? missing : codes[index * chunks + chunk]);

/* The chunk that covers a time, or -1 in a tail that is shorter than a chunk. */
function chunkAt(time) {
  if (!chunks || time > decided + 1e-6) return -1;
  return Math.max(0, Math.min(chunks - 1, Math.floor(time / step + 1e-6)));
}
function ranked(chunk, count) {
  if (chunk < 0) return [];
  const best = [];
  for (let index = 0; index < classes.length; index++) {
    const code = codes[index * chunks + chunk];
    if (code === missing || (best.length === count && code <= best[count - 1].code)) continue;
    best.push({ index, code });
    best.sort((one, other) => other.code - one.code);
    if (best.length > count) best.pop();
  }
  return best.map(({ index, code }) => ({ index, score: code / fullScale }));
}

/* The score at which a class begins, where the timeline has it. */
const rules = timeline.thresholds || {};
const onset = (label) => (typeof rules.on === "number" ? rules : rules[label] || {}).on;

/* When each segment was announced. */
{
  const key = (label, start) => label + "|" + Math.round(start / step * 4);
  const moments = new Map(announcements.map((event) => [key(event.label, event.start), event.time]));
  for (const segment of segments) segment.announced = moments.get(key(segment.label, segment.start));
}

/* Filters: classes that are hidden, and the least score of a segment. Background is hidden at first. */
const filter = { hidden: new Set([0]), score: 0 };
const shows = (entry) => !filter.hidden.has(classOf.get(entry.label));
const passes = (segment) => shows(segment) && !(segment.score < filter.score);

/* Labels against the segments that pass: a label is found by the first segment of its class that overlaps it. */
let verdict = null;
function compare() {
  for (const segment of segments) segment.first = segment.overlaps = null;
  if (!truth) return;
  const labels = truth.filter(shows), byLabel = new Map();
  for (const segment of segments.filter(passes)) {
    if (!byLabel.has(segment.label)) byLabel.set(segment.label, []);
    byLabel.get(segment.label).push(segment);
  }
  const delays = [];
  let found = 0;
  for (const entry of labels) {
    entry.found = null;
    for (const segment of byLabel.get(entry.label) || []) {
      if (segment.start >= entry.end) break;
      if (segment.end <= entry.start) continue;
      segment.overlaps = entry;
      if (entry.found) continue;
      entry.found = segment;
      segment.first ||= entry;
      found++;
      if (segment.announced !== undefined) delays.push(segment.announced - entry.start);
    }
  }
  const outside = segments.filter((segment) => passes(segment) && !segment.overlaps).length;
  verdict = { found, labelled: labels.length, outside, delay: delays.length ? middle(delays) : null };
}
