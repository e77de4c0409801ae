/* What to show: classes by name, segments by score. */
const boxes = [];
function addBox(index) {
  const name = names[index], box = make("input"), label = make("label"), item = make("li"), count = make("span");
  box.type = "checkbox";
  box.addEventListener("change", () => {
    if (box.checked) filter.hidden.delete(index); else filter.hidden.add(index);
    refresh();
  });
  label.append(box, spot(name), make("span", "cut", name), count);
  item.append(label);
  boxes.push({ box, item, count, name: name.toLowerCase() });
  if (index) $("class-list").insertBefore(item, boxes[0].item); /* Background comes last */
  else $("class-list").append(item);
}
/* The number of segments of each class. */
function countSegments() {
  const counts = names.map(() => 0);
  for (const { label } of segments) counts[classOf.get(label)]++;
  return counts;
}
function buildFilters() {
  names.forEach((_, index) => addBox(index));
  const pick = (wanted) => {
    filter.hidden = new Set([...names.keys()].filter((index) => !wanted(index)));
    refresh();
  };
  $("pick-all").addEventListener("click", () => pick((index) => index > 0));
  $("pick-none").addEventListener("click", () => pick(() => false));
  $("pick-detected").addEventListener("click", () => pick((index) => index > 0 && countSegments()[index] > 0));
  $("find-class").addEventListener("input", () => {
    const sought = $("find-class").value.trim().toLowerCase();
    for (const { item, name } of boxes) item.hidden = !name.includes(sought);
  });

  $("least").addEventListener("input", () => {
    filter.score = Number($("least").value);
    refresh();
  });
  const menu = $("class-menu");
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}
function showFilters() {
  const all = names.length - 1, count = names.filter((_, index) => index && !filter.hidden.has(index)).length;
  const words = [count === all ? "All classes" : count + " of " + all + " classes", filter.score ? "from " + filter.score.toFixed(2) : ""];
  $("class-menu").querySelector("summary").textContent = words.filter(Boolean).join(", ");
  $("least-value").textContent = filter.score.toFixed(2);
  const counts = countSegments();
  boxes.forEach(({ box, count }, index) => {
    box.checked = !filter.hidden.has(index);
    count.textContent = index ? counts[index] || "–" : "";
  });
}
