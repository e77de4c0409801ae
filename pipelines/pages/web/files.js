/* Files that the page hands out, in the forms that `lstr labels` reads and writes. */
/* An apostrophe before what a spreadsheet would take for a formula, and run; `lstr labels` reads it without. */
const cellOf = (value) => (typeof value === "string" && /^'*[=+\-@＝＋－＠]/.test(value) ? "'" + value : String(value));
const csvField = (value) => (/[",\n\r]/.test(cellOf(value)) ? '"' + cellOf(value).replaceAll('"', '""') + '"' : cellOf(value));

/* Videos {id, duration, segments, subset} as a table; a video without segments has a row without a label. */
function toCsv(videos) {
  const withSubset = videos.some(({ subset }) => subset), withScore = videos.some(({ segments }) => segments.some(({ score }) => score !== undefined));
  const rows = [["video", ...(withSubset ? ["subset"] : []), "duration", "start", "end", "label", ...(withScore ? ["score"] : [])]];
  for (const { id, duration, segments, subset } of videos) {
    const whole = [id, ...(withSubset ? [subset ?? ""] : []), duration];
    for (const { start, end, label, score } of segments) {
      rows.push([...whole, start, end, label, ...(withScore ? [score ?? ""] : [])]);
    }
    if (!segments.length) rows.push([...whole, "", "", "", ...(withScore ? [""] : [])]);
  }
  return rows.map((row) => row.map(csvField).join(",") + "\n").join("");
}

function toVtt(segments) {
  const escaped = (text) => text.split(/\s+/).filter(Boolean).join(" ").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const moment = (time) => clockText(time, 3, true).replace(/^(\d):/, "0$1:");
  const cues = segments.map(({ start, end, label, score }, index) => {
    const name = index + 1 + (score === undefined ? "" : " score=" + score);
    return name + "\n" + moment(start) + " --> " + moment(Math.max(end, start + 0.001)) + "\n" + escaped(label) + "\n";
  });
  return ["WEBVTT\n", ...cues].join("\n");
}

/* ActivityNet's JSON of labels, as --labels takes it. */
function toActivityNet(classes, videos) {
  const database = Object.fromEntries(videos.map(({ id, duration, segments, subset }) => [id, {
    subset, duration,
    annotations: segments.map(({ start, end, label }) => ({ label, segment: [start, end] })),
  }]));
  const listed = ["Background", ...classes.filter((name) => name !== "Background")];
  return JSON.stringify({ version: "lstr labels 1", classes: listed, database }, null, 1) + "\n";
}

function download(name, text, type) {
  const link = document.createElement("a"), address = URL.createObjectURL(new Blob([text], { type: type + ";charset=utf-8" }));
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000); /* some browsers begin to read later */
}

/* What a person has corrected, kept by the browser for the next visit: one entry for a page and the labels that it was given. */
const keptName = (address, given) => "lstr corrections " + new URL(address, location.href).pathname + " " + given;
const isPiece = (piece) => piece && typeof piece.label === "string" && piece.start >= 0 && piece.end > piece.start;
const arePieces = (pieces) => Array.isArray(pieces) && pieces.every(isPiece);

/* {truth, wrongs, labels, rest, at}, or null. A browser may keep nothing, and anything may stand in its store. */
function readKept(name) {
  try {
    const kept = JSON.parse(localStorage.getItem(name));
    return kept && (kept.truth === null || arePieces(kept.truth)) && arePieces(kept.wrongs) && arePieces(kept.labels.segments) ? kept : null;
  } catch { return null; }
}
/* Keeps an entry, or with null forgets it; whether the browser could. */
function writeKept(name, entry) {
  try {
    if (entry) localStorage.setItem(name, JSON.stringify(entry)); else localStorage.removeItem(name);
    return true;
  } catch { return false; }
}
