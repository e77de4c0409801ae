/* The data of one video: scores, segments, labels, and what of it the filters show. */
const { timeline } = report;
const { classes, chunks } = timeline;
const step = timeline.seconds_per_chunk || 0.25;
const [over, under = 1] = (timeline.clock?.offset || "0").split("/").map(Number);
const begin = over / under; /* seconds at which the first chunk begins */
const decided = begin + chunks * step;
const duration = Math.max(timeline.duration || 0, decided, step);
const wholeSeconds = () => duration;
const clock = (time, digits = 2) => clockText(time, digits, duration >= 3600);
/* Of a live source, when its seconds were on the clock of the machine that watched it: at its beginning, at the edges of
   actions and gaps, and between them as time goes. */
const moments = [[0, timeline.live?.began], ...[...(timeline.segments || []), ...(timeline.gaps || [])].flatMap((one) => [[one.start, one.start_at], [one.end, one.end_at]])]
  .filter(([, at]) => at).map(([time, at]) => [time, Date.parse(at.slice(0, 23) + "Z")]).sort((one, other) => one[0] - other[0]);
const isLive = moments.length > 0;
function wall(time) {
  const [known, at] = moments.findLast(([known]) => known <= time) || moments[0];
  return new Date(at + 1000 * (time - known)).toISOString().slice(11, 19);
}
const gaps = (timeline.gaps || []).map((gap) => (Array.isArray(gap) ? gap : [gap.start, gap.end]))
  .filter(([start, end]) => end > start);
const detected = [...(timeline.segments || [])].sort(byStart); /* as the run decided */
let segments = detected; /* as the thresholds that are tried decide */
const truth = report.truth && [...report.truth].sort(byStart); /* the labels, or null */
const expected = timeline.expected || []; /* by models that anticipate */
const announcements = (report.events || []).filter((event) => event.event === "started");

/* The classes of the checkpoint, then classes that only the labels have. */
const names = [...classes];
const classOf = new Map(classes.map((label, index) => [label, index]));
for (const { label } of truth || []) if (!classOf.has(label)) classOf.set(label, names.push(label) - 1);

const codes = new Uint16Array(bytesOf(report.scores.base64).buffer); /* one class after the other; every browser is little-endian */
const { full_scale: fullScale, missing } = report.scores;

/* When each segment was announced. */
{
  const key = (label, start) => label + "|" + Math.round(start / step * 4);
  const moments = new Map(announcements.map((event) => [key(event.label, event.start), event.time]));
  for (const segment of detected) segment.announced = moments.get(key(segment.label, segment.start));
}

/* Filters: classes that are hidden, and the least score of a segment. Background is hidden at first. */
const filter = { hidden: new Set([0]), score: 0, sought: "" };
const shows = (entry) => !filter.hidden.has(classOf.get(entry.label));
const passes = (segment) => shows(segment) && !(segment.score < filter.score);

/* Labels against the segments that pass; without labels there is no false alarm. */
let verdict = null;
const isFalse = (segment) => Boolean(truth) && !segment.match;
function compare() {
  for (const segment of segments) segment.match = null;
  for (const entry of truth || []) entry.found = null;
  const shown = segments.filter(passes), labels = (truth || []).filter((entry) => shows(entry) && !UNDECIDABLE.includes(entry.label));
  for (const [entry, segment] of judge(labels, shown)) [entry.found, segment.match] = [segment, entry];
  const delays = labels.filter(({ found }) => found && found.announced !== undefined).map(({ found, start }) => found.announced - start);
  verdict = {
    labelled: labels.length, found: labels.filter(({ found }) => found).length,
    falseAlarms: shown.filter(isFalse).length, delay: delays.length ? middle(delays) : null,
  };
}
const codeAt = (index, chunk) => (chunk < 0 || index >= classes.length ? missing : codes[index * chunks + chunk]);

/* The chunk that covers a time, or -1 in a tail that is shorter than a chunk. */
function chunkAt(time) {
  if (!chunks || time > decided + 1e-6) return -1;
  return Math.max(0, Math.min(chunks - 1, Math.floor((time - begin) / step + 1e-6)));
}
function ranked(chunk, count) {
  if (chunk < 0) return [];
  const scored = classes.map((_, index) => ({ index, code: codes[index * chunks + chunk] })).filter(({ code }) => code !== missing);
  const best = scored.sort((one, other) => other.code - one.code).slice(0, count);
  return best.map(({ index, code }) => ({ index, score: code / fullScale }));
}
