"use strict";
// tables: sort, copy as LaTeX, download as CSV
(() => {
  const $$ = (selector, root = document) => [...root.querySelectorAll(selector)];
  document.documentElement.classList.add("scripts");

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
})();
