/* The decision at a moment, of a page that has `codes`, one class after the other, `chunks` of each, and what is `decided`. */
const codeAt = (index, chunk) => (chunk < 0 || index >= classes.length ? missing : codes[index * chunks + chunk]);

/* The chunk that covers a time, or -1 in a tail that is shorter than a chunk. */
function chunkAt(time) {
  if (!chunks || time > decided + 1e-6) return -1;
  return Math.max(0, Math.min(chunks - 1, Math.floor((time - begin) / step + 1e-6)));
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

/* The highest scores in words and bars, then those of every lane. */
function showRanked(best) {
  const first = best[0];
  $("decision").textContent = first ? classes[first.index] : "No decision";
  $("decision-score").textContent = first ? scoreText(first.score) : "";
  paint($("decision-spot"), first ? classes[first.index] : "");
  $("top").replaceChildren(...best.map(({ index, score }) => {
    const item = make("li"), bar = make("span", "bar"), fill = paint(make("i"), classes[index]);
    fill.style.setProperty("--part", score);
    bar.append(fill);
    item.append(make("span", "cut", classes[index]), bar, make("span", "", scoreText(score)));
    return item;
  }));
}
function showScores(chunk, best) {
  const first = best[0];
  for (const lane of lanes) {
    const code = codeAt(lane.index, chunk);
    lane.value.textContent = code === missing ? "–" : scoreText(code / fullScale);
    lane.row.classList.toggle("first", Boolean(first) && first.index === lane.index);
  }
}
