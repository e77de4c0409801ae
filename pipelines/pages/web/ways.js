/* From a report to the index, to other videos, and to their errors. The index knows which these are: it is asked by its address. */
const wantedErrors = () => ($("which").value && { which: $("which").value });
const way = (kind) => report.index + "#" + new URLSearchParams({ [kind]: report.id, ...wantedErrors() });
const go = (kind) => { if (report.index) location.assign(way(kind)); };

function buildWays() {
  if (!report.index) return;
  $("ways").hidden = $("keys-of-ways").hidden = false;
  $("way-index").href = report.index;
  for (const kind of ["before", "after"]) $("way-" + kind).href = way(kind);
}
/* A report that another one led to begins with its first or last error; one without errors is passed over. */
function followWay() {
  const asked = new URLSearchParams(location.hash.slice(1)), direction = { first: 1, last: -1 }[asked.get("error")];
  if (!direction) return;
  $("which").value = asked.get("which") ?? "";
  if ($("which").selectedIndex < 0) $("which").value = "";
  refresh();
  if (direction < 0) now = duration;
  if (report.index && !errorsShown().length) location.replace(way(direction > 0 ? "error-after" : "error-before"));
  else seekError(direction);
}
