/* The zones of a source over its picture: where motion counts. The rest is dimmed. Corners are fractions of the
   picture's width and height; where the sides of a zone cross, the even-odd rule says what is inside, as it does for
   the service. */
function shape(tag, attributes, ...children) {
  const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
  for (const [name, value] of Object.entries(attributes)) element.setAttribute(name, value);
  element.append(...children);
  return element;
}
const pointsOf = (corners, width, height) => corners.map(([x, y]) => (x * width).toFixed(2) + "," + (y * height).toFixed(2)).join(" ");

/* What dims a picture of this size outside the zones, and their sides. `id` is this drawing's own. */
function veilOf(id, zones, width, height) {
  const polygon = (zone, attributes) => shape("polygon", { points: pointsOf(zone, width, height), "fill-rule": "evenodd", ...attributes });
  const whole = { width, height }, holes = zones.map((zone) => polygon(zone, { fill: "#000" }));
  const mask = shape("mask", { id, maskUnits: "userSpaceOnUse", x: 0, y: 0, ...whole }, shape("rect", { fill: "#fff", ...whole }), ...holes);
  const sides = zones.flatMap((zone, index) => [polygon(zone, { class: "halo" }), polygon(zone, { class: "zone", "data-zone": index })]);
  return zones.length ? [mask, shape("rect", { class: "dim", mask: "url(#" + id + ")", ...whole }), ...sides] : [];
}

let veils = 0;
function makeVeil(source) {
  source.veil = shape("svg", { class: "veil", "aria-hidden": "true" });
  Object.assign(source, { veilId: "veil-" + veils++, veiled: "", zones: [], drawn: false, size: null });
  return source.veil;
}
/* Over the picture as it is shown: after a picture of another size too. */
function showZones(source) {
  const { zones, image, size } = source, [width, height] = size ?? [0, 0];
  image.alt = "The newest picture of " + source.name + (zones.length ? "; motion counts in " + countText(zones.length, "zone") : "");
  const now = size ? JSON.stringify([zones, size]) : "";
  if (now === source.veiled) return;
  source.veiled = now;
  source.veil.setAttribute("viewBox", "0 0 " + width + " " + height);
  source.veil.replaceChildren(...(now ? veilOf(source.veilId, zones, width, height) : []));
}
function readZones(source, { zones, drawn }) {
  Object.assign(source, { zones, drawn });
  showZones(source);
}
