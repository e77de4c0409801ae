"use strict";
/* What every page shares: elements, words and numbers, colours, canvases. */
const $ = (id) => document.getElementById(id);
const report = JSON.parse($("data").textContent);

function make(tag, className, text) {
  const element = document.createElement(tag);
  if (className) element.className = className;
  if (text !== undefined) element.textContent = text;
  return element;
}
const option = (value, text = value) => Object.assign(make("option", "", text), { value });
function term(list, name, value, className) {
  const item = make("div", className);
  item.append(make("dt", "", name), make("dd", "", value));
  list.append(item);
}
/* A player without a source would keep its film, and tell of it later what is no longer shown, until it is told to load. */
function closeMedia(player) {
  player.removeAttribute("src");
  player.load();
}
function warn(texts) {
  $("warnings").hidden = !texts || !texts.length;
  for (const text of texts || []) $("warnings").append(make("div", "", text));
}

/* Copies a text that an element shows; where the clipboard is closed it is selected there instead. */
async function copyText(text, element, tell) {
  try {
    await navigator.clipboard.writeText(text);
    tell("Copied");
  } catch {
    getSelection().selectAllChildren(element);
    tell("Selected: copy it with ctrl C");
  }
}

/* m:ss, or h:mm:ss where `long`. */
function clockText(time, digits = 2, long = false) {
  const scale = 10 ** digits;
  const ticks = Math.round(Math.max(0, time) * scale);
  const whole = Math.floor(ticks / scale);
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
const middle = (values) => {
  const sorted = [...values].sort((one, other) => one - other), half = sorted.length >> 1;
  return sorted.length % 2 ? sorted[half] : (sorted[half - 1] + sorted[half]) / 2;
};

/* Colours: of the theme as values for canvases, of classes as the data has them. */
const theme = {};
function readTheme() {
  const probe = document.body.appendChild(make("span"));
  for (const name of ["ink", "soft", "line", "card", "well", "truth", "no-action"]) {
    probe.style.color = "var(--" + name + ")";
    theme[name] = getComputedStyle(probe).color;
  }
  probe.remove();
}
const colourOf = (label) => report.colours[label] ?? theme["no-action"];
function paint(element, label) {
  element.style.setProperty("--spot", report.colours[label] ?? "var(--no-action)");
  return element;
}
const spot = (label, className = "spot") => paint(make("span", className), label);

/* Light or dark as the system has it, until the button says otherwise. */
function followTheme(changed) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  let chosen = null;
  const settle = () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    $("theme").setAttribute("aria-label", dark ? "Light colours" : "Dark colours");
    $("theme").title = dark ? "Light colours" : "Dark colours";
    readTheme();
    changed();
  };
  $("theme").addEventListener("click", () => {
    const dark = chosen ? chosen === "dark" : system.matches;
    chosen = dark ? "light" : "dark";
    document.documentElement.style.colorScheme = chosen;
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
