/// \file
/// The style of the page of runs, and a script that shows the values under the pointer. Private to run_page.cpp.
#pragma once

#include <string_view>

namespace lockstep::app {

inline constexpr std::string_view kPageStyle = R"(
:root{--ground:#ffffff;--page:#f5f6f8;--ink:#1f2933;--quiet:#52606d;--line:#e1e5ea;--accent:#0067a3;--good:#006a4e}
*{box-sizing:border-box}
html{color-scheme:light dark;-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);font:16px/1.55 system-ui,-apple-system,"Segoe UI","Helvetica Neue",
"Noto Sans","DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
.aloud{position:absolute;width:1px;height:1px;overflow:hidden;clip-path:inset(50%);white-space:nowrap}
.skip{position:absolute;left:-99rem}.skip:focus{left:1rem;top:1rem;background:var(--ground);padding:.5rem 1rem;z-index:9}
header,main,footer{max-width:76rem;margin:0 auto;padding:0 1.5rem}
header{padding-top:3rem}
h1{font-size:1.9rem;line-height:1.2;font-weight:650;letter-spacing:-.015em;margin:0 0 .4rem;overflow-wrap:anywhere}
h2{font-size:1.15rem;font-weight:650;letter-spacing:-.005em;margin:3rem 0 1rem}
h3{font-size:1rem;font-weight:600;margin:0}
p{margin:.3rem 0;max-width:70ch}
.lead,.note,footer,figcaption p{color:var(--quiet)}
.note,figcaption p{font-size:.875rem}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(11rem,1fr));gap:1rem;margin:2rem 0 0;padding:0}
.tiles>div{background:var(--ground);border:1px solid var(--line);border-radius:.6rem;padding:1rem 1.1rem}
dt{font-size:.8125rem;color:var(--quiet)}
dd{margin:.1rem 0 0;font-size:1.45rem;font-weight:600;letter-spacing:-.01em;line-height:1.25}
dd small{display:block;font-size:.8125rem;font-weight:400;letter-spacing:0;color:var(--quiet);margin-top:.15rem}
.charts{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(100%,32rem),1fr));gap:1.25rem;align-items:start}
figure{margin:0;background:var(--ground);border:1px solid var(--line);border-radius:.6rem;padding:1.1rem 1.1rem .8rem;min-width:0}
figcaption{display:flex;justify-content:space-between;align-items:baseline;gap:1rem;margin:0 .2rem .5rem;min-height:1.9rem}
.plot{position:relative;border-radius:.3rem}
.plot svg{display:block;width:100%;height:auto;font-family:inherit}
.plot:focus-visible,a:focus-visible,summary:focus-visible,.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:3px}
.when-narrow{display:none}
@media (max-width:36rem){.when-wide{display:none}.when-narrow{display:block}header,main,footer{padding:0 .6rem}
figure{padding:.7rem .5rem .5rem}}
.cross{position:absolute;width:1px;background:var(--quiet);pointer-events:none;opacity:.6}
.read{position:absolute;top:.3rem;pointer-events:none;background:var(--ground);border:1px solid var(--line);border-radius:.4rem;
padding:.45rem .65rem;font-size:.8125rem;line-height:1.45;box-shadow:0 4px 16px rgb(0 0 0/.12);white-space:nowrap}
.read:empty{display:none}.read b{font-weight:600}.read span{display:flex;justify-content:space-between;gap:1.2rem}
details{margin-top:.4rem}
summary{cursor:pointer;font-size:.875rem;color:var(--accent);padding:.2rem;width:max-content;max-width:100%;border-radius:.3rem}
.scroll{overflow:auto;max-height:22rem;border:1px solid var(--line);border-radius:.4rem;background:var(--ground);margin-top:.4rem}
.wide{max-height:none}
table{border-collapse:collapse;font-size:.875rem;width:100%}
caption{text-align:left;color:var(--quiet);padding:.5rem .8rem;font-size:.8125rem}
th,td{padding:.38rem .8rem;text-align:right;white-space:nowrap;border-bottom:1px solid var(--line)}
tbody tr:last-child>*{border-bottom:0}
th{font-weight:600;color:var(--quiet)}thead th{position:sticky;top:0;background:var(--ground);box-shadow:0 1px var(--line)}
.text{text-align:left}tbody th{color:var(--ink);text-align:left}
tbody th[scope=rowgroup]{background:var(--page)}
.best td,.best th{font-weight:600}.best td:first-child{color:var(--good)}
pre{margin:0;padding:.9rem 1.1rem;font:.8125rem/1.5 ui-monospace,"SF Mono",Menlo,Consolas,"DejaVu Sans Mono",monospace;white-space:pre}
footer{font-size:.8125rem;padding-top:3rem;padding-bottom:3rem}
@media print{body{background:none}figure,.tiles>div{break-inside:avoid}}
)";

inline constexpr std::string_view kDarkPage =
    ":root{--ground:#14191f;--page:#0d1116;--ink:#e6eaee;--quiet:#a7b1bc;--line:#29313a;--accent:#6cbcf0;--good:#"
    "4fcfa5}\n";

/// The script takes the values from the table under each chart. The attributes of the chart's rectangle "over" describe
/// the axes.
inline constexpr std::string_view kPageScript = R"(
for (const figure of document.querySelectorAll("figure")) {
  const plot = figure.querySelector(".plot");
  if (!plot.querySelector(".over")) continue;
  let svg, over, box, low, high, from, to, scale;
  function look() { // which of the two pictures is shown
    svg = [...plot.querySelectorAll("svg")].find(s => s.clientWidth > 0) || plot.querySelector("svg");
    over = svg.querySelector(".over"); box = svg.viewBox.baseVal;
    [low, high, from, to, scale] = over.dataset.x.split(" ").map((t, i) => (i < 4 ? +t : t));
  }
  look();
  const at = x => from + (scale === "linear" ? (x - low) / (high - low) : Math.log(x / low) / Math.log(high / low)) * (to - from);
  const series = [...figure.querySelectorAll("tbody")].map(body => ({
    name: body.querySelector("th").textContent,
    points: [...body.querySelectorAll("tr[data-x]")].map(row => ({
      x: +row.dataset.x, words: [...row.cells].map(cell => cell.textContent)}))}));
  const places = [...new Set(series.flatMap(s => s.points.map(p => p.x)))].sort((a, b) => a - b);
  const cross = plot.appendChild(document.createElement("div")), read = plot.querySelector(".read");
  cross.className = "cross"; cross.hidden = true;
  const title = figure.querySelector("thead th").textContent;
  let here = -1;
  const nearest = (points, x) => points.reduce((a, b) => (Math.abs(b.x - x) < Math.abs(a.x - x) ? b : a));
  const reach = (places.at(-1) - places[0]) / 40;
  function show(index) {
    look();
    here = Math.max(0, Math.min(places.length - 1, index));
    const x = places[here], shown = svg.clientWidth / box.width, left = at(x) * shown;
    const near = series.map(s => [s.name, nearest(s.points, x)]).filter(([, p]) => Math.abs(p.x - x) <= reach);
    cross.hidden = false;
    cross.style.cssText = `left:${left}px;top:${over.y.baseVal.value * shown}px;height:${over.height.baseVal.value * shown}px`;
    read.replaceChildren();
    const head = read.appendChild(document.createElement("b"));
    head.textContent = `${title} ${near[0] ? near[0][1].words[0] : x}`;
    for (const [name, p] of near) {
      const line = read.appendChild(document.createElement("span"));
      for (const word of [name, p.words[1]]) line.appendChild(document.createElement("span")).textContent = word;
    }
    read.style.left = left > plot.clientWidth / 2 ? "auto" : `${left + 10}px`;
    read.style.right = left > plot.clientWidth / 2 ? `${plot.clientWidth - left + 10}px` : "auto";
  }
  function hide() { cross.hidden = true; read.replaceChildren(); here = -1; }
  plot.addEventListener("pointermove", event => {
    look();
    const shown = svg.clientWidth / box.width, pixel = event.clientX - svg.getBoundingClientRect().left;
    let best = 0;
    places.forEach((x, i) => { if (Math.abs(at(x) * shown - pixel) < Math.abs(at(places[best]) * shown - pixel)) best = i; });
    show(best);
  });
  plot.addEventListener("pointerleave", hide);
  plot.addEventListener("blur", hide);
  plot.addEventListener("keydown", event => {
    const step = {ArrowRight: 1, ArrowLeft: -1, PageUp: 10, PageDown: -10}[event.key];
    if (step) show(here < 0 ? (step > 0 ? 0 : places.length - 1) : here + step);
    else if (event.key === "Home") show(0);
    else if (event.key === "End") show(places.length - 1);
    else if (event.key === "Escape") hide();
    else return;
    event.preventDefault();
  });
}
)";

}  // namespace lockstep::app
