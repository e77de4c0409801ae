/* What pages share that a server of this machine answers. */
/* Sends JSON; returns the answer's, or throws an error that says in words why it was refused. */
async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error(inOneLine(found.error ?? "The server refused (" + answer.status + ").", found.hint));
  return found;
}
const inOneLine = (error, hint) => (hint ? error.replace(/\.$/, "; ") + hint : error);
let noticeTimer = 0;
function notify(text) {
  $("notice").textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $("notice").textContent = ""; }, 5000);
}
