// Draws the panels of this page as SVG and reads out values under the pointer.
"use strict";
(() => {
  const { runs, x: xLabel, marks: resumes, panels } = JSON.parse(document.getElementById("data").textContent);
  const margin = { top: 8, bottom: 40 };
  const letterWidth = 7.5;  // of the labels, at most
  const maxX = Math.max(1e-9, ...panels.flatMap(p => p.curves.map(c => c.points[c.points.length - 1][0])));
  const redraws = [];

  const svgElement = (name, attributes, parent) => {
    const element = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) element.setAttribute(key, value);
    if (parent) parent.append(element);
    return element;
  };
  const htmlElement = (name, className, parent, text = "") => {
    const element = document.createElement(name);
    element.className = className;
    element.textContent = text;
    parent.append(element);
    return element;
  };
  const colour = curve => "c" + (runs === 1 ? curve.part : curve.run) % 8;
  const resumeColour = mark => runs === 1 ? "plain" : "c" + mark.run % 8;

  // About `count` values at distances of 1, 2 or 5 times a power of ten.
  const ticks = (low, high, count) => {
    const rough = (high - low) / count, power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map(f => f * power).find(s => s >= rough * 0.999);
    const values = [];
    for (let i = Math.ceil(low / step - 1e-9); i * step <= high + 1e-9 * step; i++) values.push(i * step);
    return values;
  };
  // A label in the unit that suits the largest value of an axis.
  const short = (value, largest) => {
    for (const [size, letter] of [[1e9, "G"], [1e6, "M"], [1e3, "k"]])
      if (largest >= 10 * size && value) return +(value / size).toPrecision(4) + letter;
    if (value && Math.abs(value) < 1e-4) return (+value.toPrecision(3)).toExponential();
    return String(+value.toPrecision(4));
  };
  const precise = value =>
    Math.abs(value) >= 1e4 ? Math.round(value).toLocaleString("en") : String(+value.toPrecision(5));

  const range = panel => {
    let low = Infinity, high = -Infinity;
    for (const curve of panel.curves)
      for (const [, y] of curve.points) { low = Math.min(low, y); high = Math.max(high, y); }
    for (const { value } of panel.levels) { low = Math.min(low, value); high = Math.max(high, value); }
    if (panel.fromZero) low = Math.min(low, 0);
    if (high - low <= 1e-12 * Math.abs(high)) { low -= panel.fromZero ? 0 : 0.5; high += high || 1; }
    const margin = 0.05 * (high - low);
    return [panel.fromZero && low === 0 ? 0 : low - margin, high + margin];
  };

  // The point nearest to `at` by binary search; points are in the order of x.
  const nearest = (points, at) => {
    let low = 0, high = points.length - 1;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (points[middle][0] < at) low = middle + 1; else high = middle;
    }
    return low > 0 && at - points[low - 1][0] < points[low][0] - at ? points[low - 1] : points[low];
  };

  const legend = (panel, figure) => {
    const box = htmlElement("div", "legend", figure);
    const entries = panel.curves.length > 1 ? panel.curves : [];
    for (const curve of entries) {
      const entry = htmlElement("span", "", box);
      const dashed = runs > 1 && curve.part > 0 && !curve.dots;
      htmlElement("i", `swatch ${colour(curve)} ${curve.dots ? "dot" : ""} ${dashed ? "dashed" : ""}`, entry);
      entry.append(curve.name);
    }
    for (const level of panel.levels) {
      const entry = htmlElement("span", "", box);
      htmlElement("i", "swatch dashed", entry).style.color = level.colour;
      entry.append(`${level.name} = ${precise(level.value)}`);
    }
    if (resumes.length && panel === panels[0]) {
      const entry = htmlElement("span", "", box);
      htmlElement("i", "swatch resumed plain", entry);
      entry.append("resumed");
    }
  };

  // The frame of a panel: its margins have room for the longest labels of both axes.
  const frameOf = (width, height, low, high) => {
    const longest = (values, largest) => Math.max(1, ...values.map(value => short(value, largest).length));
    const frame = { top: margin.top, bottom: height - margin.bottom };
    frame.height = frame.bottom - frame.top;
    frame.left = Math.max(62, 14 + letterWidth * longest(yTicks(frame, low, high), high));
    frame.right = width - Math.max(14, letterWidth / 2 * longest(ticks(0, maxX, width / 90), maxX));
    frame.x = value => frame.left + value / maxX * (frame.right - frame.left);
    frame.y = value => frame.bottom - (value - low) / (high - low) * frame.height;
    return frame;
  };
  const yTicks = (frame, low, high) => ticks(low, high, frame.height / 48);

  const axes = (svg, frame, low, high) => {
    for (const value of yTicks(frame, low, high)) {
      svgElement("line", { class: "grid", x1: frame.left, x2: frame.right, y1: frame.y(value), y2: frame.y(value) }, svg);
      svgElement("text", { x: frame.left - 8, y: frame.y(value) + 4, "text-anchor": "end" }, svg).textContent = short(value, high);
    }
    for (const value of ticks(0, maxX, (frame.right - frame.left) / 90)) {
      svgElement("line", { class: "axis", x1: frame.x(value), x2: frame.x(value), y1: frame.bottom, y2: frame.bottom + 4 }, svg);
      svgElement("text", { x: frame.x(value), y: frame.bottom + 18, "text-anchor": "middle" }, svg).textContent = short(value, maxX);
    }
    svgElement("line", { class: "axis", x1: frame.left, x2: frame.right, y1: frame.bottom, y2: frame.bottom }, svg);
    svgElement("text", { x: (frame.left + frame.right) / 2, y: frame.bottom + 35, "text-anchor": "middle" }, svg).textContent = xLabel;
  };

  // A vertical line at each point at which a run was resumed.
  const resumeLines = (svg, frame) => {
    for (const mark of resumes)
      svgElement("line", { class: `resume ${resumeColour(mark)}`, x1: frame.x(mark.x), x2: frame.x(mark.x), y1: frame.top, y2: frame.bottom }, svg);
  };

  const curves = (svg, panel, frame) => {
    const path = points => "M" + points.map(([x, y]) => `${frame.x(x).toFixed(1)},${frame.y(y).toFixed(1)}`).join("L");
    for (const curve of panel.curves) {
      const group = svgElement("g", { class: colour(curve) }, svg);
      if (curve.dots || curve.points.length === 1) {
        group.classList.add("dots");
        for (const [x, y] of curve.points) svgElement("circle", { cx: frame.x(x), cy: frame.y(y), r: 3.5 }, group);
        continue;
      }
      const dashes = runs > 1 && curve.part > 0 ? { "stroke-dasharray": "6 4" } : {};
      if (curve.trend.length) svgElement("path", { class: "curve raw", d: path(curve.points) }, group);
      svgElement("path", { class: "curve trend", d: path(curve.trend.length ? curve.trend : curve.points), ...dashes }, group);
    }
    for (const { value, colour: stroke } of panel.levels)
      svgElement("line", { class: "level", stroke, x1: frame.left, x2: frame.right, y1: frame.y(value), y2: frame.y(value) }, svg);
  };

  // Adds the resume points within a few pixels of the pointer to the reading.
  const readResumes = (at, frame, reading) => {
    for (const mark of resumes) {
      if (Math.abs(frame.x(mark.x) - frame.x(at)) > 6) continue;
      const line = htmlElement("div", "resumed", reading);
      htmlElement("i", `swatch resumed ${resumeColour(mark)}`, line);
      line.append(mark.text);
    }
  };

  // A line under the pointer, a mark on each curve, and their values next to it.
  const readOut = (svg, panel, frame, reading) => {
    const marks = svgElement("g", {}, svg);
    const hide = () => { marks.replaceChildren(); reading.hidden = true; };
    svg.onpointerleave = hide;
    svg.onpointermove = event => {
      const box = svg.getBoundingClientRect();
      const at = (event.clientX - box.left - frame.left) / (frame.right - frame.left) * maxX;
      if (at < -0.02 * maxX || at > 1.02 * maxX) return hide();
      marks.replaceChildren();
      reading.replaceChildren();
      const nearby = panel.curves.map(curve => ({ curve, point: nearest(curve.points, at) }));
      const candidates = nearby.filter(f => !f.curve.dots || nearby.length === 1 || nearby.every(g => g.curve.dots))
        .map(f => f.point[0]);
      const position = candidates.reduce((best, x) => Math.abs(x - at) < Math.abs(best - at) ? x : best);
      svgElement("line", { class: "cursor", x1: frame.x(position), x2: frame.x(position), y1: frame.top, y2: frame.bottom }, marks);
      htmlElement("div", "", reading, `${xLabel} ${precise(position)}`);
      for (const { curve, point } of nearby) {
        // A run has no value after its end.
        if (!curve.dots && at > curve.points[curve.points.length - 1][0] + 0.02 * maxX) continue;
        svgElement("circle", { class: `mark ${colour(curve)}`, cx: frame.x(point[0]), cy: frame.y(point[1]), r: 4 }, marks);
        const line = htmlElement("div", "", reading);
        htmlElement("i", `swatch ${colour(curve)} ${curve.dots ? "dot" : ""}`, line);
        const trend = curve.trend.length ? ` (mean ${precise(nearest(curve.trend, point[0])[1])})` : "";
        const positionText = point[0] === position ? "" : ` at ${precise(point[0])}`;
        line.append(`${panel.curves.length > 1 ? curve.name + " " : ""}${precise(point[1])}${trend}${positionText}`);
      }
      readResumes(at, frame, reading);
      reading.hidden = false;
      const right = frame.x(position) > (frame.left + frame.right) / 2;
      reading.style.left = right ? "" : `${frame.x(position) + 26}px`;
      reading.style.right = right ? `${box.width - frame.x(position) + 26}px` : "";
      reading.style.top = `${svg.parentElement.offsetTop}px`;
    };
  };

  const addPanel = (panel, first) => {
    const figure = htmlElement("figure", "", document.getElementById("panels"));
    const caption = htmlElement("figcaption", "", figure, panel.label);
    if (panel.note) htmlElement("div", "note", caption, panel.note);
    legend(panel, figure);
    const holder = htmlElement("div", "", figure);
    const reading = htmlElement("div", "reading", figure);
    reading.hidden = true;
    const [low, high] = range(panel);
    const draw = () => {
      const width = Math.max(240, holder.clientWidth), height = first ? 340 : 240;
      const frame = frameOf(width, height, low, high);
      const svg = svgElement("svg", { viewBox: `0 0 ${width} ${height}`, height, role: "img", "aria-label": `${panel.label} ${panel.note}`.trim() });
      axes(svg, frame, low, high);
      resumeLines(svg, frame);
      curves(svg, panel, frame);
      readOut(svg, panel, frame, reading);
      reading.hidden = true;
      holder.replaceChildren(svg);
    };
    redraws.push(draw);
  };

  panels.forEach((panel, i) => addPanel(panel, i === 0));
  const redraw = () => redraws.forEach(draw => draw());
  redraw();
  let lastWidth = window.innerWidth;
  window.addEventListener("resize", () => {
    if (window.innerWidth !== lastWidth) redraw();
    lastWidth = window.innerWidth;
  });
})();
