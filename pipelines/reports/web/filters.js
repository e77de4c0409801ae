/* What to show: classes by name, segments by score. */
function buildFilters() {
  const counts = names.map(() => 0);
  for (const { label } of segments) counts[classOf.get(label)]++;
  const boxes = names.map((name, index) => {
    const box = make("input"), label = make("label"), item = make("li");
    box.type = "checkbox";
    box.addEventListener("change", () => {
      if (box.checked) filter.hidden.delete(index); else filter.hidden.add(index);
      applyFilters();
    });
    label.append(box, spot(name), make("span", "cut", name), make("span", "", index ? counts[index] || "–" : ""));
    item.append(label);
    return { box, item, name: name.toLowerCase() };
  });
  $("class-list").append(...boxes.slice(1).map(({ item }) => item), ...boxes.slice(0, 1).map(({ item }) => item));
  const settle = () => boxes.forEach(({ box }, index) => { box.checked = !filter.hidden.has(index); });
  const pick = (wanted) => {
    filter.hidden = new Set([...names.keys()].filter((index) => !wanted(index)));
    settle();
    applyFilters();
  };
  $("pick-all").addEventListener("click", () => pick((index) => index > 0));
  $("pick-none").addEventListener("click", () => pick(() => false));
  $("pick-detected").addEventListener("click", () => pick((index) => index > 0 && counts[index] > 0));
  $("find-class").addEventListener("input", () => {
    const sought = $("find-class").value.trim().toLowerCase();
    for (const { item, name } of boxes) item.hidden = !name.includes(sought);
  });
  settle();

  $("least").addEventListener("input", () => {
    filter.score = Number($("least").value);
    applyFilters();
  });
  const menu = $("class-menu");
  menu.addEventListener("keydown", (event) => {
    if (event.key !== "Escape" || !menu.open) return;
    menu.open = false;
    menu.querySelector("summary").focus();
  });
  document.addEventListener("pointerdown", (event) => { if (!menu.contains(event.target)) menu.open = false; });
}
function applyFilters() {
  const all = names.length - 1, count = names.filter((_, index) => index && !filter.hidden.has(index)).length;
  $("class-menu").querySelector("summary").textContent = count === all ? "All classes" : count + " of " + all + " classes";
  $("least-value").textContent = filter.score.toFixed(2);
  overview = null;
  compare();
  showLanes();
  listSegments();
}
