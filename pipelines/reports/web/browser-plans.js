/* Plans of one stream, as lstr/plans makes them: what the next chunk needs to know of its place in time, as flat arrays
   by name. A planner is {form, and its numbers}; `chunk` is how many chunks the stream has seen. */
const rangeOf = (count, value) => Array.from({ length: count }, (_, at) => value(at));
const modulo = (value, by) => ((value % by) + by) % by;

/* Which chunks a window sees, as lstr/windows/indices.py has it. */
const slotsOf = (lengths) => Math.floor(lengths.long_length / lengths.long_stride);
const workStart = (chunk, lengths) => Math.max(chunk - lengths.work_length + 1, 0);
function workIndices(chunk, lengths) {
  const all = rangeOf(lengths.work_length, (at) => workStart(chunk, lengths) + at), mask = all.map((index) => index <= chunk);
  return [all.map((index, at) => (mask[at] ? index : 0)), mask];
}
function longIndices(chunk, lengths) {
  const start = workStart(chunk, lengths), stride = lengths.long_stride, slots = slotsOf(lengths);
  if (lengths.grid === "anchored") {
    const all = rangeOf(slots, (at) => start - stride * (slots - at));
    return [all.map((index) => Math.max(index, 0)), all.map((index, at) => index > -stride || at === slots - 1)];
  }
  let newest = Math.max(Math.floor((start - 1) / stride) * stride, 0);
  if (lengths.grid === "sliding" && start > lengths.long_length) newest = start - stride;
  const all = rangeOf(slots, (at) => newest - stride * (slots - 1 - at)), mask = all.map((index) => index >= 0);
  return [all.map((index) => Math.max(index, 0)), mask];
}
const spacingOf = (lengths) => (lengths.grid === "fixed" ? lengths.long_stride : 1);
const longRows = (lengths) => (slotsOf(lengths) ? Math.floor((lengths.long_length + lengths.work_length) / spacingOf(lengths)) + 1 : 0);
const olderEnd = (chunk, lengths) => Math.max(workStart(chunk, lengths) - lengths.long_length, 0);
function longDistances(chunk, lengths) {
  const [indices, mask] = longIndices(chunk, lengths);
  return indices.map((index, at) => (mask[at] ? workStart(chunk, lengths) + lengths.work_length - 1 - index : 0));
}
const differ = (some, others) => some.some((value, at) => value !== others[at]);

const FORMS = {
  states: (_, chunk) => ({ fresh: [chunk === 0] }),
  runs({ work_length: W, runs }, chunk) {
    const beginnings = rangeOf(runs, (at) => Math.floor(at * W / runs)), waiting = beginnings.map((begin) => chunk < begin);
    return { fresh: beginnings.map((begin, at) => modulo(chunk - begin, W) === 0 || waiting[at]), waiting, unmixed: [chunk % W === 0] };
  },
  slots: ({ work_length: W }, chunk) => ({ fresh: [chunk === 0], full: [chunk >= W], newest: [Math.min(chunk, W - 1)] }),
  ring({ work_length: W, convolved }, chunk) {
    const rows = rangeOf(W, (at) => (chunk + 1 + at) % W); /* oldest first */
    return { fresh: [chunk === 0], row: [rows.at(-1)], rows, ...(convolved && { settled: [rows.at(-3)], between: rows.slice(1, -3) }) };
  },
  compressed(planner, chunk) {
    const W = planner.work_length, [work, present] = workIndices(chunk, planner);
    const plan = {
      work_row: [chunk % W],
      work_rows: [...work.map((index) => index % W), ...rangeOf(planner.anticipation, () => W)],
      absent: present.map((there) => !there),
    };
    const last = Math.max(chunk - 1, 0);
    if (slotsOf(planner)) {
      const rows = longRows(planner), apart = spacingOf(planner), stores = chunk % apart === 0;
      const [long, visible] = longIndices(chunk, planner);
      let changes = chunk === 0 || differ(long, longIndices(last, planner)[0]);
      if (planner.positions === "distance") {
        plan["changes.positions"] = longDistances(chunk, planner);
        changes ||= differ(plan["changes.positions"], longDistances(last, planner));
      }
      Object.assign(plan, {
        stores: [stores], "stores.streams": [0], "stores.row": [stores ? Math.floor(chunk / apart) % rows : rows],
        changes: [changes], "changes.streams": [0],
        "changes.held": long.map((index, at) => (visible[at] ? Math.floor(index / apart) % rows : rows)),
        "changes.hidden": visible.map((seen) => !seen),
      });
    }
    if (planner.gru) {
      const waiting = planner.long_length + W + 1, older = olderEnd(chunk, planner);
      Object.assign(plan, {
        waiting_row: [chunk % waiting], leaving_row: [Math.max(older - 1, 0) % waiting],
        leaving: [older > olderEnd(last, planner) && chunk > 0], fresh: [chunk === 0],
      });
    }
    return plan;
  },
  generated(planner, chunk) {
    const ring = planner.context + planner.work_length, rows = longRows(planner), apart = spacingOf(planner);
    const [work, present] = workIndices(chunk, planner), [long, visible] = longIndices(chunk, planner);
    const context = rangeOf(planner.context, (at) => Math.max(workStart(chunk, planner) - planner.context + at, 0));
    const seenAt = (end) => { const [held, seen] = longIndices(end, planner); return held.map((index, at) => (seen[at] ? index : -1)); };
    return {
      work_row: [chunk % ring], work_rows: [...context, ...work].map((index) => index % ring), absent: present.map((there) => !there),
      stores: [chunk % apart === 0], "stores.streams": [0], "stores.row": [Math.floor(chunk / apart) % rows],
      changes: [chunk === 0 || differ(seenAt(chunk), seenAt(Math.max(chunk - 1, 0)))], "changes.streams": [0],
      "changes.rows": long.map((index) => Math.floor(index / apart) % rows), "changes.hidden": visible.map((seen) => !seen),
    };
  },
  bank(planner, chunk) {
    const W = planner.work_length, rows = longRows(planner), apart = spacingOf(planner);
    const longRow = (index) => W + Math.floor(index / apart) % rows;
    const [long, seen] = longIndices(chunk, planner), [work, present] = workIndices(chunk, planner);
    const hidden = rangeOf(W + rows, () => true);
    long.forEach((index, at) => { if (seen[at]) hidden[longRow(index)] = false; });
    work.forEach((index, at) => { if (present[at]) hidden[index % W] = false; });
    const plan = { fresh: [chunk === 0], row: [chunk % W], hidden };
    if (slotsOf(planner)) {
      const stores = chunk % apart === 0;
      Object.assign(plan, { stores: [stores], "stores.streams": [0], "stores.row": [stores ? longRow(chunk) : plan.row[0]] });
    }
    return plan;
  },
  history(planner, chunk) {
    const W = planner.work_length, slots = slotsOf(planner), started = workStart(chunk, planner) > 0;
    const [long, visible] = longIndices(chunk, planner), work = rangeOf(W, (at) => chunk - W + 1 + at);
    const exist = [...visible.map((seen) => seen && started), ...work.map((index) => index >= 0)];
    const held = [...long, ...work].map((index, at) => (exist[at] ? index : 0)), ring = W + (slots ? planner.long_length : 0);
    return {
      fresh: [chunk === 0], missing: exist.map((there) => !there), row: [chunk % ring], rows: held.map((index) => index % ring),
      work_row: [chunk % W], work_rows: held.slice(-W).map((index) => index % W),
    };
  },
  joined({ members }, chunk) {
    const plans = members.map((member) => planOf(member, chunk));
    const named = plans.flatMap((plan, number) => Object.entries(plan).map(([name, values]) => [number + "/" + name, values]));
    const changes = plans.filter((plan) => plan.changes).map((plan) => plan.changes[0]);
    return { ...Object.fromEntries(named), ...(changes.length && { changes: [changes.some(Boolean)] }) };
  },
};
const planOf = (planner, chunk) => FORMS[planner.form](planner, chunk);
