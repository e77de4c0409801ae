/* The watched sources: the latest frame, lanes and link of each. */
const step = 0.25, ROWS = 2400; /* seconds of a chunk; chunks whose scores are kept */
const fullScale = report.full_scale, missing = report.no_score;
const SPANS = [60, 300, 600], PICTURE_EVERY = 500; /* seconds in view; milliseconds */
const SNOOZES = [["900", "15 minutes"], ["3600", "1 hour"], ["28800", "8 hours"], ["86400", "1 day"]];
const LINKS = { reading: "live", waiting: "not open yet", connecting: "connecting …", stalled: "no data", lost: "lost, reconnecting …", ended: "not available, trying again …" };
const sources = new Map();
let span = SPANS[0];

const wholeSeconds = () => ROWS * step; /* of the lanes: the last decision is at their end */
const playOn = () => false;
const wallOf = (text) => (text ? Date.parse(text) : NaN);
const lastTime = (text) => text.slice(11, 19); /* on the clock of the machine that watches */
const act = (path, body, done) => post(path, body).then(done, (error) => notify(error.message));
const pathOf = (source, deed) => "source/" + encodeURIComponent(source.name) + "/" + deed;
const actionsOf = (source) => [...source.classes.keys()].filter((index) => !report.undecidable.includes(source.classes[index]));

/* The whole of a source. */
function readSource(state) {
  const source = sources.get(state.name) ?? { name: state.name, events: [], inSight: false, shown: 0, size: null, isSure: false };
  sources.set(state.name, source);
  Object.assign(source, { classes: state.classes, rules: state.rules, newest: -1, zones: state.zones, drawn: state.drawn, state });
  source.codes = new Uint8Array(source.classes.length * ROWS).fill(missing);
  readScores({ ...state, source: state.name });
  if (edited?.source === source) drawZones();
}
/* The decisions since the last ones: `codes` are `columns` codes of each class, up to column `first` + `columns` - 1. */
function readScores({ source: name, first, columns, at, codes: text, picture }) {
  const source = sources.get(name), given = bytesOf(text), moved = Math.min(ROWS, first + columns - 1 - source.newest);
  for (let row = 0; row < source.classes.length; row++) {
    const begin = row * ROWS, end = begin + ROWS;
    source.codes.copyWithin(begin, begin + moved, end);
    source.codes.set(given.subarray(row * columns, (row + 1) * columns), end - columns);
  }
  Object.assign(source, { newest: first + columns - 1, at: wallOf(at), lastAt: at, picture });
  /* chunks without a decision since the first one in view */
  source.gaps = [];
  let before = -1;
  for (let column = 0; column < (source.classes.length ? ROWS : 0); column++) {
    if (source.codes[column] === missing) continue;
    if (before >= 0 && column > before + 1) source.gaps.push([(before + 1) * step, column * step]);
    before = column;
  }
  showSource(source);
}
/* Events are bars of a lane; the latest decision is at its end. */
function laneOf(source, index) {
  const label = source.classes[index], rule = source.rules[label], toTime = (wall) => wholeSeconds() + (wall - source.at) / 1000;
  const events = source.events.filter(({ action }) => action === label).map(({ start, end, decided }) => ({
    start: toTime(wallOf(start)), end: end ? toTime(wallOf(end)) : wholeSeconds(), decided: toTime(wallOf(decided)),
  })).filter(({ end }) => end > 0);
  return {
    colour: colourOf(label), gaps: source.gaps, rules: rule ? [{ score: rule[0], alpha: 0.75 }] : [],
    curve: { codes: source.codes, first: index * ROWS, count: ROWS, begin: 0, step, fullScale, missing },
    solid: spansOf(events),
    announced: events.map(({ start, end, decided }) => [Math.max(start, Math.min(decided, end - step / 2)), end]),
  };
}

const sight = new IntersectionObserver((entries) => {
  for (const { target, isIntersecting } of entries) target.source.inSight = isIntersecting;
});
class Source extends Component {
  componentDidMount() {
    this.props.source.part = this;
    this.base.source = this.props.source;
    sight.observe(this.base);
  }
  componentWillUnmount() { sight.unobserve(this.base); }
  render({ source }) {
    const { name, classes, state, zones, size, codes } = source, { paused, link } = state, actions = actionsOf(source);
    const last = (index) => codes[(index + 1) * ROWS - 1], isOnNow = (label) => source.events.some((event) => !event.end && event.action === label);
    const best = [...classes.keys()].filter((index) => last(index) !== missing).sort((one, other) => last(other) - last(one))[0];
    const isOld = paused || ["lost", "stalled", "ended"].includes(link), until = isOld && source.lastAt; /* the time at the end of the lanes, unless that is now */
    const look = ["card source", paused && "paused", isOld && !paused && "away"].filter(Boolean).join(" ");
    return html`<article class=${look} tabindex="-1" aria-label=${"Source " + name}>
      <div class="heading">
        <h2 class="cut">${name}</h2><span class=${"link " + link}>${LINKS[link] ?? link}</span><span class="address soft cut" title=${state.address}>${state.address}</span>
        <div class="buttons">
          <${Button} aria-label=${(paused ? "Resume " : "Pause ") + name} onClick=${() => act(pathOf(source, paused ? "resume" : "pause"), {})}>${paused ? "Resume" : "Pause"}<//>
          <${SourceMenu} source=${source} actions=${actions.map((index) => classes[index])} />
        </div>
      </div>
      <div class="sight">
        <div class="picture">
          <div class="view">
            <img ref=${(image) => { source.image = image; }} hidden=${!size} src=${source.shown ? "frame/" + encodeURIComponent(name) + "?" + source.shown : null}
              alt=${"Latest frame of " + name + (zones.length ? "; motion counts in " + countText(zones.length, "zone") : "")} onLoad=${() => frameLoaded(source)} />
            <svg class="veil" aria-hidden="true" viewBox=${"0 0 " + (size ?? [0, 0]).join(" ")}>${size && html`<${Veil} id=${"veil " + name} zones=${zones} size=${size} />`}</svg>
          </div>
          ${!size && html`<p class="blank">${paused ? "Paused." : "No frame yet."}</p>`}
          ${best !== undefined && !isOld && html`<p class=${isOnNow(classes[best]) || source.events.some((event) => !event.end) ? "now on" : "now"} style=${spotStyle(classes[best])}>
            <${Spot} label=${classes[best]} /><span class="cut">${classes[best]}</span><output>${scoreText(last(best) / fullScale)}</output></p>`}
        </div>
        <div class="plot-box">
          <div class="rows">${actions.map((index) => html`<${Lane} key=${classes[index]} look=${isOnNow(classes[index]) ? "first" : ""} range=${[wholeSeconds() - span, wholeSeconds()]} content=${() => laneOf(source, index)}>
            <div class="name" title=${classes[index]}><${Spot} label=${classes[index]} /><span class="cut">${classes[index]}</span>
              <output aria-live="off">${last(index) === missing ? "–" : scoreText(last(index) / fullScale)}</output></div><//>`)}
            ${!actions.length && html`<p class="no-lanes">The lanes appear with the first decision.</p>`}</div>
          <p class="ago" aria-hidden="true">${[span, span / 2, 0].map((seconds) => html`<span>${seconds ? (seconds < 60 ? seconds + " s" : seconds / 60 + " min") + (until ? " before" : " ago") : until ? lastTime(until) : "now"}</span>`)}</p>
        </div>
      </div>
      ${state.trouble && html`<p class="trouble">${state.trouble}</p>`}
      <dl class="numbers"><${Terms} pairs=${[
        ["Lag (p95)", state.lag_ms === null ? "–" : numberText(state.lag_ms) + " ms", state.lag_ms > 1000 && "bad"],
        ["Decisions", numberText(state.decided)], ["Dropped", numberText(state.dropped), state.dropped > 0 && "bad"],
        ["Missing", numberText(state.unseen), state.unseen > 0 && "bad"], ["Reconnections", numberText(state.reconnects)],
      ]} /></dl>
    </article>`;
  }
}
function SourceMenu({ source, actions }) {
  const menuOf = (event) => event.target.closest(".menu");
  const snooze = (event) => {
    const menu = menuOf(event), [action, time] = [...menu.querySelectorAll("select")].map(({ value }) => value);
    act("snooze", { source: source.name, action: action || null, seconds: Number(time) }, () => { menu.open = false; });
  };
  const remove = (event) => {
    const menu = menuOf(event);
    if (source.isSure) return act(pathOf(source, "remove"), {}, () => { menu.open = false; });
    source.isSure = true;
    return showSource(source);
  };
  return html`<details class="menu" onToggle=${() => { source.isSure = false; showSource(source); }}><summary aria-label=${"More for " + source.name}>More</summary>
    <div class="sheet">
      <label>Snooze<select aria-label="Action">${options([["", "every action"], ...actions.map((label) => [label])])}</select></label>
      <label>for<select aria-label="For how long">${SNOOZES.map(([value, text]) => html`<option value=${value} selected=${value === "3600"}>${text}</option>`)}</select></label>
      <${Button} onClick=${snooze}>Snooze notifications<//><hr />
      <${Button} onClick=${(event) => { menuOf(event).open = false; editZones(source); }}>Zones: where motion counts<//>
      <${Button} onClick=${remove}>${source.isSure ? "Press again to remove" : "Remove this source"}<//>
    </div></details>`;
}
function frameLoaded(source) {
  source.size = [source.image.naturalWidth, source.image.naturalHeight];
  showSource(source);
  paintZones(source);
}
const showSource = (source) => source.part?.forceUpdate();
function showSources() {
  const all = [...sources.values()], live = all.filter(({ state }) => state.link === "reading").length;
  render(html`${all.map((source) => html`<${Source} key=${source.name} source=${source} />`)}`, $("sources"));
  $("no-sources").hidden = all.length > 0;
  $("legend-rule").hidden = !all.some(({ rules }) => Object.keys(rules).length);
  showFacts(all.length ? [["Live", live + " of " + countText(all.length, "source")]] : []);
  showEvents();
}
/* Load the latest frame of each visible source, once the last one has loaded. */
function loadFrames() {
  if (document.hidden) return;
  for (const source of sources.values()) {
    if (!source.inSight || !source.picture || source.picture === source.shown || !source.image.complete) continue;
    source.shown = source.picture;
    showSource(source);
  }
}
