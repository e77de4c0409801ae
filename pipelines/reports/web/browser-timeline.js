/* Scores to events, chunk by chunk, as lstr/timeline.py decides them. */
const CHUNK_SECONDS = 0.25;
const HORIZON_CHUNKS = 8; /* ahead, within which an action may be expected */
const rounded = (value, digits) => Number(value.toFixed(digits));
const highest = (values) => values.reduce((most, value) => Math.max(most, value), -Infinity);

/* `rules` has those of each class by its index, null for one that is no action. */
function makeTimeline(classes, rules) {
  const actions = [...classes.keys()].filter((index) => rules[index]), alone = actions.some((index) => rules[index].highest);
  const runs = new Map(), announced = new Map(), ends = new Map(); /* ends: where what was told of each class last had its end, before the newest chunk */
  let newest = 0, seenSince = null; /* chunks: the last one, and the one from which on none was missing */

  const toEvent = (event, label, time, start, score, more = {}) => ({ event, label, time, start, ...more.end, score: rounded(score, 4), ...more.still });
  function started(index, time) {
    const run = runs.get(index);
    run.started = true;
    announced.delete(index);
    return toEvent("started", classes[index], time, run.begun * CHUNK_SECONDS, run.passed);
  }
  function ended(index, time, still = false) {
    const run = runs.get(index);
    runs.delete(index);
    if (!run.started) return [];
    const more = { end: { end: run.end * CHUNK_SECONDS }, still: still ? { still_on: true } : {} };
    return [toEvent("ended", classes[index], time, run.begun * CHUNK_SECONDS, run.total / run.number, more)];
  }
  function lapsed(index, time) {
    const [start, score] = announced.get(index);
    announced.delete(index);
    return toEvent("lapsed", classes[index], time, start, score);
  }
  function begun(index, chunk) {
    const { backdate = 0, highest } = rules[index], backdateChunks = Math.floor(backdate / CHUNK_SECONDS + TOLERANCE);
    const before = [...ends].filter(([other]) => highest || other === index).map(([, end]) => end);
    return Math.min(chunk, Math.max(chunk - backdateChunks, seenSince, ...before));
  }
  function advance(index, chunk, time, score, counts) {
    const { on, off, min_length, merge_gap } = rules[index], events = [];
    const minChunks = Math.max(1, Math.ceil(min_length / CHUNK_SECONDS - TOLERANCE)), gapChunks = Math.floor(merge_gap / CHUNK_SECONDS + TOLERANCE);
    let run = runs.get(index);
    if (run && chunk - run.end > gapChunks) { /* a live source has lost chunks */
      events.push(...ended(index, time));
      run = null;
    }
    if (!run) {
      if (!counts || score < on) return events;
      run = { first: chunk, begun: begun(index, chunk), end: chunk, passed: score, total: 0, number: 0, started: false, pending: [] };
      runs.set(index, run);
    }
    if (counts && score >= (run.end === chunk ? off : on)) {
      run.total += run.pending.reduce((sum, value) => sum + value, 0) + score;
      run.number += run.pending.length + 1;
      run.end = chunk + 1;
      run.pending = [];
    } else if (chunk + 1 - run.end > gapChunks) {
      return [...events, ...ended(index, time)];
    } else {
      run.pending.push(score); /* counts if the gap closes */
    }
    if (!run.started && run.end - run.first >= minChunks) events.push(started(index, time));
    return events;
  }
  function expect(index, time, curve) {
    const { on, off } = rules[index], most = highest(curve);
    if (runs.has(index)) return [];
    if (most < off) return announced.has(index) ? [lapsed(index, time)] : [];
    if (announced.has(index) || most < on) return [];
    const start = time + curve.findIndex((score) => score >= on) * CHUNK_SECONDS;
    announced.set(index, [start, most]);
    return [toEvent("expected", classes[index], time, start, most)];
  }
  const isHighest = (scores, index) => actions.every((other) => scores[other] <= scores[index]);
  return {
    /* Events at the end of a chunk; `ahead` are the scores of chunks to come, of a model that anticipates. */
    push(time, scores, ahead = []) {
      const chunk = Math.round(time / CHUNK_SECONDS) - 1, coming = ahead.slice(0, HORIZON_CHUNKS);
      if (seenSince === null || chunk > newest + 1) seenSince = chunk;
      newest = chunk;
      const events = actions.flatMap((index) => {
        const only = alone && rules[index].highest;
        const events = advance(index, chunk, time, scores[index], !only || isHighest(scores, index));
        const curve = coming.map((later) => (only && !isHighest(later, index) ? -1 : later[index]));
        return curve.length ? [...events, ...expect(index, time, curve)] : events;
      });
      for (const [index, run] of runs) if (run.started) ends.set(index, run.end);
      return events;
    },
    /* Ends what is still on, and expected, where the source ends. */
    finish(time) {
      newest = 0;
      seenSince = null;
      ends.clear();
      const events = [...runs.keys()].sort((one, other) => one - other).flatMap((index) => {
        const isOn = !runs.get(index).pending.length, late = isOn && !runs.get(index).started ? [started(index, time)] : [];
        return [...late, ...ended(index, time, isOn)];
      });
      return [...events, ...[...announced.keys()].sort((one, other) => one - other).map((index) => lapsed(index, time))];
    },
  };
}

/* The line of a chunk as `lstr detect -f jsonl` writes it. `scores` are those of the chunk, then of later ones. */
function toLine(classes, chunk, scores, latency, at = null) {
  const [now, ...later] = scores, score = (value) => rounded(value, 4);
  const order = [...classes.keys()].sort((one, other) => now[other] - now[one]).slice(0, 3);
  const ahead = later.map((row, step) => {
    const best = row.indexOf(highest(row));
    return [(step + 1) * CHUNK_SECONDS, classes[best], score(row[best])];
  });
  return {
    chunk, time: (chunk + 1) * CHUNK_SECONDS, ...(at && { at }), label: classes[order[0]], score: score(now[order[0]]),
    top: order.map((index) => [classes[index], score(now[index])]), latency_ms: rounded(latency, 2), ...(ahead.length && { ahead }),
  };
}
