"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const facts = JSON.parse($("#facts").textContent);
  const views = new Map();
  const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(2));
  document.documentElement.classList.add("scripts");

  // tables: sort, LaTeX, CSV -------------------------------------------------------------------------------------
  const valueOf = (cell) => {
    if (!cell.hasAttribute("data-value")) return cell.textContent;
    return cell.dataset.value === "" ? null : Number(cell.dataset.value);
  };
  const compare = (a, b) => (typeof a === "number" && typeof b === "number" ? a - b : String(a).localeCompare(String(b)));

  function sortBy(table, column, header) {
    // numbers start with the largest, text with the first in the alphabet; another click reverses the order
    const ascending = header.getAttribute("aria-sort") === "descending" || (!header.hasAttribute("aria-sort") && !header.classList.contains("number"));
    const sign = ascending ? 1 : -1;
    const rows = [...table.tBodies[0].rows];
    rows.sort((one, two) => {
      const a = valueOf(one.cells[column]), b = valueOf(two.cells[column]);
      if (a === null || b === null) return (a === null) - (b === null);
      return sign * compare(a, b);
    });
    $$("thead th", table).forEach((header) => header.removeAttribute("aria-sort"));
    header.setAttribute("aria-sort", ascending ? "ascending" : "descending");
    table.tBodies[0].append(...rows);
  }

  $$("table[data-sheet]").forEach((table) => {
    $$("td[data-value]", table).forEach((cell) => (cell.title = cell.dataset.value));
    $$("thead th", table).forEach((header, column) => {
      const button = document.createElement("button");
      button.type = "button";
      button.textContent = header.textContent;
      button.addEventListener("click", () => sortBy(table, column, header));
      header.replaceChildren(button);
    });
  });

  const TEX = { "\\": "\\textbackslash{}", "{": "\\{", "}": "\\}", "&": "\\&", "%": "\\%", $: "\\$", "#": "\\#", _: "\\_", "~": "\\textasciitilde{}", "^": "\\textasciicircum{}", "↑": "$\\uparrow$", "↓": "$\\downarrow$", "–": "--", "₀": "$_0$" };
  const tex = (text) => text.replace(/[\\{}&%$#_~^↑↓–₀]/g, (mark) => TEX[mark]);
  const textOf = (cell) => cell.firstChild.textContent; // without the notes below it

  function latex(table) {
    const headers = $$("thead th", table);
    const line = (cells) => "  " + cells.join(" & ") + " \\\\";
    const body = [...table.tBodies[0].rows].map((row) =>
      line([...row.cells].map((cell) => (cell.classList.contains("best") ? `\\textbf{${tex(textOf(cell))}}` : tex(textOf(cell))))));
    const alignment = headers.map((header) => (header.classList.contains("number") ? "r" : "l")).join("");
    return [`% ${table.caption.textContent}`, `\\begin{tabular}{${alignment}}`, "  \\toprule", line(headers.map((header) => tex(header.textContent))),
      "  \\midrule", ...body, "  \\bottomrule", "\\end{tabular}", ""].join("\n");
  }

  function csv(table) {
    const quoted = (text) => (/[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text);
    const plain = (text) => quoted(/^[=+\-@\t\r]/.test(text) ? `'${text}` : text); // spreadsheets must not interpret it as a formula
    const headers = $$("thead th", table).map((header) => plain(header.textContent.replace(/ [↑↓]$/, "")));
    const rows = [...table.tBodies[0].rows].map((row) =>
      [...row.cells].map((cell) => cell.hasAttribute("data-value") ? quoted(cell.dataset.value) : plain(textOf(cell))).join(","));
    return [headers.join(","), ...rows, ""].join("\r\n");
  }

  async function copy(text) {
    try {
      await navigator.clipboard.writeText(text);
    } catch {
      const area = document.createElement("textarea");
      area.value = text;
      document.body.append(area);
      area.select();
      document.execCommand("copy");
      area.remove();
    }
  }

  function confirmOn(button, message) {
    const label = button.dataset.label || (button.dataset.label = button.textContent);
    button.textContent = message;
    setTimeout(() => (button.textContent = label), 1200);
  }

  $$("[data-copy]").forEach((button) => button.addEventListener("click", async () => {
    await copy(latex(document.getElementById(button.dataset.copy)));
    confirmOn(button, "Copied");
  }));
  $$("[data-csv]").forEach((button) => button.addEventListener("click", () => {
    const link = document.createElement("a");
    link.href = URL.createObjectURL(new Blob([csv(document.getElementById(button.dataset.csv))], { type: "text/csv" }));
    link.download = `${button.dataset.csv}.csv`;
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 1000);
  }));

  // DAQ with other weights ---------------------------------------------------------------------------------------
  const sliders = $$("[data-weight]");

  function daq(parts, weights) {
    const used = Object.keys(weights).filter((key) => weights[key] > 0 && (key !== "shift" || facts.has_shift));
    if (!used.length) return null;
    if (used.some((key) => parts[key] === 0)) return 0;
    if (used.some((key) => parts[key] === null)) return null;
    const total = used.reduce((sum, key) => sum + weights[key], 0);
    return total / used.reduce((sum, key) => sum + weights[key] / parts[key], 0);
  }

  function weigh() {
    const weights = Object.fromEntries(sliders.map((slider) => [slider.dataset.weight, Number(slider.value)]));
    sliders.forEach((slider) => ($("output", slider.parentElement).textContent = Number(slider.value).toFixed(2)));
    const rows = facts.detectors.map((name) => [name, daq(facts.parts[name], weights)]);
    rows.sort((one, two) => (two[1] ?? -1) - (one[1] ?? -1));
    $("#weighed tbody").replaceChildren(...rows.map(([name, value]) => {
      const row = document.createElement("tr"), header = document.createElement("th"), cell = document.createElement("td");
      header.textContent = name;
      header.scope = "row";
      cell.textContent = percent(value);
      cell.className = "number";
      cell.dataset.value = value ?? "";
      row.append(header, cell);
      return row;
    }));
  }
  sliders.forEach((slider) => slider.addEventListener("input", weigh));
  $("#reset-weights").addEventListener("click", () => {
    sliders.forEach((slider, k) => (slider.value = facts.weights[k]));
    weigh();
  });
  weigh();

  // the threshold and the other selections -----------------------------------------------------------------------
  const chooser = $("#detector"), threshold = $("#threshold");

  function signal(name, value) {
    views.forEach((view) => {
      if (view.signal(name) !== value) view.signal(name, value).runAsync();
    });
  }

  function decide() {
    const decisions = facts.decisions[chooser.value], k = Number(threshold.value);
    if (!decisions || !decisions.threshold) return;
    $("#threshold-value").textContent = decisions.threshold[k].toPrecision(4);
    for (const name of ["tpr", "tnr", "ba"]) {
      const output = document.getElementById(name), value = decisions[name] ? decisions[name][k] : null;
      output.textContent = percent(value);
      output.dataset.value = value ?? "";
    }
    $("#accepted").textContent = Object.entries(decisions.accepted).map(([split, shares]) => `${split} ${(100 * shares[k]).toFixed(1)}`).join(" · ");
    signal("threshold", decisions.threshold[k]);
  }

  function choose() {
    const decisions = facts.decisions[chooser.value];
    const hasThresholds = decisions && decisions.threshold;
    $(".threshold").hidden = !hasThresholds;
    if (hasThresholds) {
      threshold.max = decisions.threshold.length - 1;
      threshold.value = decisions.fitted;
      decide();
    }
    signal("detector", chooser.value);
    $$("[data-of]").forEach((block) => (block.hidden = block.dataset.of !== chooser.value));
  }
  threshold.addEventListener("input", decide);
  $("#reset-threshold").addEventListener("click", choose);
  chooser.addEventListener("change", choose);
  $("#class").addEventListener("change", (event) => signal("chosen", event.target.value));
  const heatMetric = $("#heat-figure");
  if (heatMetric) heatMetric.addEventListener("change", () => signal("metric", heatMetric.value));
  choose();

  // charts -------------------------------------------------------------------------------------------------------
  async function draw(place) {
    const name = place.dataset.chart;
    const spec = JSON.parse($(`script[data-spec="${name}"]`).textContent);
    if (spec.spec) spec.spec.width = Math.max(160, Math.min(760, place.clientWidth - 150));
    const choice = { detector: chooser.value, chosen: $("#class").value, metric: heatMetric ? heatMetric.value : "lrp" };
    spec.params.forEach((param) => (param.value = choice[param.name] ?? param.value));
    const options = { renderer: "svg", mode: "vega-lite", downloadFileName: name, actions: { export: true, source: false, compiled: false, editor: false } };
    const result = await window.vegaEmbed(place, spec, options);
    views.set(name, result.view);
  }

  async function drawAll() {
    for (const place of $$("[data-chart]")) await draw(place);
    decide();
    document.documentElement.classList.add("drawn");
  }
  if (window.vegaEmbed) drawAll();
  else window.addEventListener("vega", drawAll, { once: true });
})();
