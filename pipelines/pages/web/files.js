/* Files that the page hands out, in the forms that `lstr labels` reads and writes. */
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

function toVtt(segments) {
  const escaped = (text) => text.split(/\s+/).filter(Boolean).join(" ").replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");
  const moment = (time) => clockText(time, 3, true).replace(/^(\d):/, "0$1:");
  const cues = segments.map(({ start, end, label, score }, index) => {
    const name = index + 1 + (score === undefined ? "" : " score=" + score);
    return name + "\n" + moment(start) + " --> " + moment(Math.max(end, start + 0.001)) + "\n" + escaped(label) + "\n";
  });
  return ["WEBVTT\n", ...cues].join("\n");
}

function download(name, text, type) {
  const link = document.createElement("a"), address = URL.createObjectURL(new Blob([text], { type: type + ";charset=utf-8" }));
  link.href = address;
  link.download = name;
  link.click();
  setTimeout(() => URL.revokeObjectURL(address), 10_000); /* some browsers begin to read later */
}
