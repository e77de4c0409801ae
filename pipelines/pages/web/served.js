/* What pages share that a server of this machine answers. */
/* Sends JSON; returns the answer's, or throws an error that says in words why it was refused. */
async function post(path, body) {
  const answer = await fetch(path, { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) });
  const found = await answer.json().catch(() => ({}));
  if (!answer.ok) throw new Error([found.error ?? "The server refused (" + answer.status + ").", found.hint].filter(Boolean).join(" "));
  return found;
}
let noticeTimer = 0;
function notify(text) {
  $("notice").textContent = text;
  clearTimeout(noticeTimer);
  noticeTimer = setTimeout(() => { $("notice").textContent = ""; }, 5000);
}
