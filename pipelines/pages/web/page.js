"use strict";
/* What every page shares: small parts, words and numbers, colours, canvases. */
const { html, render, Component } = htmPreact;
const $ = (id) => document.getElementById(id);
const report = JSON.parse($("data").textContent);

/* Small parts of pages. After a change a page renders everything again; preact updates only the elements that differ. */
const spotStyle = (label) => ({ "--spot": report.colours[label] ?? "var(--no-action)" });
const Spot = ({ label, look = "" }) => html`<span class=${("spot " + look).trim()} style=${spotStyle(label)} />`;
const Button = ({ children, ...others }) => html`<button type="button" ...${others}>${children}</button>`;
const options = (pairs) => pairs.map(([value, text]) => html`<option value=${value}>${text ?? value}</option>`);
const Terms = ({ pairs }) => pairs.map(([name, value, look]) => html`<div class=${look}><dt>${name}</dt><dd>${value}</dd></div>`);
const showFacts = (pairs) => render(html`<${Terms} pairs=${pairs} />`, $("facts"));
/* The controls of a player. */
const PlayButton = ({ plays, act }) => html`<${Button} id="play" class="primary" aria-label=${plays ? "Pause" : "Play"} onClick=${act}>
  <svg width="14" height="14" viewBox="0 0 14 14" aria-hidden="true"><path d=${plays ? "M3 1.5h3v11H3zM8.5 1.5h3v11h-3z" : "M3 1.5v11l9-5.5z"} /></svg><//>`;
const SPEEDS = [["0.25", "¼×"], ["0.5", "½×"], ["1", "1×"], ["2", "2×"], ["4", "4×"], ["8", "8×"]];
const SpeedMenu = ({ act }) => html`<select id="rate" aria-label="Playback speed" onChange=${act}>${SPEEDS.map(([value, text]) => html`<option value=${value} selected=${value === "1"}>${text}</option>`)}</select>`;
/* Scrolls a list, and never the page, so that its current row is in the middle. */
function bringCurrent(list) {
  const row = list?.querySelector('[aria-current="true"]');
  if (row) list.scrollTop = row.offsetTop - list.clientHeight / 2;
}
/* Menus close by escape, and by a press elsewhere. */
document.addEventListener("pointerdown", ({ target }) => {
  for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(target)) menu.open = false;
});
document.addEventListener("keydown", (event) => {
  const menu = event.key === "Escape" && event.target.closest(".menu[open], #add[open]");
  if (!menu) return;
  menu.open = false;
  menu.querySelector("summary").focus();
});
/* Keys of a page, by what `actionsOf(event)` gives for their names. Fields keep what is typed, buttons and players the
   space bar, and a menu its letters but x, which goes through errors after one has chosen which. */
function onKeys(actionsOf) {
  document.addEventListener("keydown", (event) => {
    const { key, target: { tagName, type, controls } } = event;
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if ((tagName === "INPUT" && type !== "checkbox") || (tagName === "SELECT" && !/^x$/i.test(key))) return;
    if (key === " " ? controls || /^(BUTTON|SUMMARY|INPUT|A)$/.test(tagName) : tagName === "PRE") return;
    const actions = actionsOf(event);
    if (!Object.hasOwn(actions, key)) return;
    event.preventDefault();
    actions[key]();
  });
}
/* Without load() a player keeps its video after its source is removed, and still sends events about it. */
function closeMedia(player) {
  player.removeAttribute("src");
  player.load();
}
/* Copies a text that an element shows; where the clipboard is closed it is selected there instead. */
async function copyText(text, element, notify) {
  try {
    await navigator.clipboard.writeText(text);
    notify("Copied");
  } catch {
    getSelection().selectAllChildren(element);
    notify("Selected: copy it with ctrl C");
  }
}

/* The bytes of a text in base64. Uint8Array.from(text, ...) would be slow: scores of days and videos are long. */
function bytesOf(base64) {
  const letters = atob(base64), bytes = new Uint8Array(letters.length);
  for (let at = 0; at < bytes.length; at++) bytes[at] = letters.charCodeAt(at);
  return bytes;
}
/* m:ss, or h:mm:ss where `long`. */
function clockText(time, digits = 2, long = false) {
  const scale = 10 ** digits, ticks = Math.round(Math.max(0, time) * scale), whole = Math.floor(ticks / scale);
  const pad = (value) => String(value).padStart(2, "0");
  const hours = Math.floor(whole / 3600), minutes = Math.floor(whole / 60) % 60;
  const tail = digits ? "." + String(ticks % scale).padStart(digits, "0") : "";
  return (long || hours ? hours + ":" + pad(minutes) : String(minutes)) + ":" + pad(whole % 60) + tail;
}
const scoreText = (score) => (score == null || Number.isNaN(score) ? "–" : score.toFixed(2));
function numberText(value) {
  if (typeof value !== "number") return String(value ?? "–");
  if (Number.isInteger(value)) return value.toLocaleString("en");
  return value.toLocaleString("en", { maximumSignificantDigits: Math.abs(value) >= 1000 ? 6 : 4 });
}
const countText = (count, noun) => numberText(count) + " " + noun + (count === 1 ? "" : "s");
const lastPart = (path) => String(path).split(/[\\/]/).filter(Boolean).pop() || String(path);
/* The order of two texts or two numbers. */
const compareValues = (one, other) => (typeof one === "string" ? one.localeCompare(other, "en", { numeric: true }) : one === other ? 0 : one - other);
const byStart = (one, other) => one.start - other.start || one.end - other.end;
const middle = (values) => {
  const sorted = [...values].sort((one, other) => one - other), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/* Colours: of the theme as values for canvases, of classes as the data has them. */
const theme = {};
const colourOf = (label) => report.colours[label] ?? theme["no-action"];

/* Light or dark as the system has it, until the button says otherwise. */
function followTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)"), { style } = document.documentElement;
  const isDark = () => (style.colorScheme ? style.colorScheme === "dark" : system.matches);
  const settle = () => {
    $("theme").title = isDark() ? "Light colours" : "Dark colours";
    $("theme").setAttribute("aria-label", $("theme").title);
    const probe = document.body.appendChild(document.createElement("span"));
    for (const name of ["ink", "soft", "line", "card", "well", "truth", "no-action"]) {
      probe.style.color = "var(--" + name + ")";
      theme[name] = getComputedStyle(probe).color;
    }
    probe.remove();
    changed();
  };
  $("theme").addEventListener("click", () => {
    style.colorScheme = isDark() ? "light" : "dark";
    settle();
  });
  system.addEventListener("change", settle);
  settle();
}

/* A canvas at the screen's own resolution, cleared. */
function fresh(canvas) {
  const box = canvas.parentElement.getBoundingClientRect(), ratio = devicePixelRatio || 1;
  const width = Math.max(1, Math.round(box.width * ratio)), height = Math.max(1, Math.round(box.height * ratio));
  if (canvas.width !== width || canvas.height !== height) [canvas.width, canvas.height] = [width, height];
  const pen = canvas.getContext("2d");
  pen.setTransform(1, 0, 0, 1, 0, 0);
  pen.clearRect(0, 0, width, height);
  return { pen, width, height, ratio };
}
