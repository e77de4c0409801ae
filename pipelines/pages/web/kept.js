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
