"use strict";
const findings = JSON.parse(document.getElementById("data").textContent);

function value(cell) {
  const whole = cell.firstChild?.textContent ?? "", text = whole.replace(/,/g, "");
  return text === "" ? -Infinity : isNaN(Number(text)) ? whole : Number(text);
}

for (const button of document.querySelectorAll("th button")) {
  button.addEventListener("click", () => {
    const th = button.parentElement, table = th.closest("table"), place = th.cellIndex;
    const up = th.getAttribute("aria-sort") !== "ascending";
    for (const other of table.querySelectorAll("th")) other.removeAttribute("aria-sort");
    th.setAttribute("aria-sort", up ? "ascending" : "descending");
    const rows = [...table.tBodies[0].rows];
    rows.sort((a, b) => {
      const x = value(a.cells[place]), y = value(b.cells[place]);
      const order = typeof x === "number" && typeof y === "number" ? x - y : String(x).localeCompare(String(y));
      return up ? order : -order;
    });
    table.tBodies[0].append(...rows);
  });
}

document.getElementById("download").addEventListener("click", () => {
  const link = document.createElement("a");
  link.href = URL.createObjectURL(new Blob([JSON.stringify(findings, null, 1)], { type: "application/json" }));
  link.download = "ghofl-report.json";
  link.click();
});
