"use strict";
(() => {
  const $ = (selector, root = document) => root.querySelector(selector);
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  const facts = JSON.parse($("#facts").textContent);
  const views = new Map();
  const percent = (value) => (value === null || value === undefined ? "–" : (100 * value).toFixed(2));

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
