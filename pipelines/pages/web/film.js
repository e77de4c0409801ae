/* The video next to its lanes. Its clock moves the cursor if this browser can play it. */
const film = { address: null, name: "", ahead: 0, trouble: null }; /* ahead: seconds, where the pictures begin after the sound */
let watchable = false, playing = false;
const filmTime = () => Math.max(0, Math.min($("video").currentTime - film.ahead, wholeSeconds()));

/* Open another video, or with `trouble`, [what, why], none. */
function openFilm({ address, name, ahead = 0, trouble = null }) {
  const stays = address && address === film.address && !film.trouble;
  Object.assign(film, { address, name, ahead, trouble });
  if (!stays) watchable = playing = false;
  draw();
  if (!address) closeMedia($("video"));
  else if (!stays) $("video").src = address;
}
function cannotPlay() {
  if (!film.address) return;
  watchable = playing = false;
  film.trouble = ["This browser cannot play " + film.name, "The file may have moved, or the browser does not know its codec. The timeline works without it."];
  draw();
}
function filmOpened({ target }) {
  if (!target.videoWidth) return cannotPlay(); /* a picture that the browser cannot decode may come without an error, as sound alone */
  watchable = true;
  if (now + film.ahead) target.currentTime = now + film.ahead;
  return playing && target.play().catch(() => filmPlays(false));
}
function filmPlays(on) {
  playing = on;
  moved = true;
  draw();
  schedule();
}
function filmStops() {
  now = filmTime();
  filmPlays(false);
}
function seekFilm() { if (watchable) $("video").currentTime = now + film.ahead; }
function toggleFilm() {
  const video = $("video");
  if (video.paused) video.play().catch(() => {}); else video.pause();
}
const Film = ({ label, children, ...others }) => html`<div class="screen">
  <video id="video" playsinline preload="auto" aria-label=${label} hidden=${Boolean(film.trouble)}
    onError=${cannotPlay} onLoadedMetadata=${filmOpened} onPlay=${() => filmPlays(true)} onPause=${filmStops} onEnded=${filmStops} ...${others} />
  ${!film.trouble && children}
  ${film.trouble && html`<p id="no-video" role="status"><b>${film.trouble[0]}</b>${film.trouble[1]}</p>`}
</div>`;
