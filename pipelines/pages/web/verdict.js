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
  const latest = []; /* the latest end up to each detection: those that end before a label are passed over at once */
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
  for (const group of groups.values()) group.sort((one, other) => one.start - other.start || one.end - other.end);
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
