// Runs the script of a page that scripts/plot wrote, with the few parts of a browser that it needs, moves
// the pointer over every panel, and prints the drawn elements as JSON: node page_dom.js PAGE.html
"use strict";
const fs = require("fs");
const page = fs.readFileSync(process.argv[2], "utf8");
const json = page.match(/<script type="application\/json" id="data">(.*?)<\/script>/s)[1];
const script = page.match(/<script>\n(.*?)<\/script>/s)[1];

class Element {
  constructor(name) {
    Object.assign(this, { name, children: [], attributes: {}, style: {}, text: "", clientWidth: 800, offsetTop: 40 });
    this.classList = { add: word => { this.attributes.class = `${this.attributes.class ?? ""} ${word}`; } };
  }
  set className(text) { this.attributes.class = text; }
  set textContent(text) { this.text = String(text); }
  get textContent() { return this.text + this.children.map(c => c.textContent ?? c).join(""); }
  setAttribute(key, value) {
    if (typeof value === "number" && !Number.isFinite(value) || /NaN|Infinity|undefined/.test(String(value)))
      throw new Error(`${this.name} ${key}="${value}"`);
    this.attributes[key] = String(value);
  }
  append(child) { this.children.push(child); if (child instanceof Element) child.parentElement = this; }
  replaceChildren(...children) { this.children = []; children.forEach(c => this.append(c)); }
  getBoundingClientRect() { return { left: 0, top: 0, width: 800, height: 300 }; }
  all(name) { return this.children.filter(c => c instanceof Element).flatMap(c => (c.name === name ? [c] : []).concat(c.all(name))); }
  source() {
    const attributes = Object.entries(this.attributes).map(([k, v]) => ` ${k}="${v}"`).join("");
    return `<${this.name}${attributes}>${this.text}${this.children.map(c => c.source?.() ?? c).join("")}</${this.name}>`;
  }
}

const panels = new Element("div");
const data = new Element("script");
data.text = json;
globalThis.document = {
  getElementById: id => ({ panels, data })[id],
  createElement: name => new Element(name),
  createElementNS: (_, name) => new Element(name),
};
globalThis.window = { innerWidth: 800, addEventListener() {} };
eval(script);

const drawn = panels.children.map(figure => {
  const svg = figure.all("svg")[0];
  const reading = figure.all("div").find(d => (d.attributes.class ?? "") === "reading");
  const read = at => {
    svg.onpointermove({ clientX: at, clientY: 100 });
    return reading.hidden ? "" : reading.children.map(c => c.textContent).join("\n");
  };
  const readings = [62, 400, 786].map(read);
  const resumes = svg.all("line").filter(l => (l.attributes.class ?? "").startsWith("resume "))
    .map(l => ({ class: l.attributes.class, x: Number(l.attributes.x1), reading: read(Number(l.attributes.x1) + 3) }));
  svg.onpointerleave();
  return {
    label: figure.all("figcaption")[0].textContent,
    described: svg.attributes["aria-label"],
    legend: figure.all("span").map(s => s.textContent),
    paths: svg.all("path").length,
    circles: svg.all("circle").length,
    // The right end of each label of the vertical axis; 1e9 for others.
    ends: svg.all("text").map(t => t.attributes["text-anchor"] === "end" ? Number(t.attributes.x) : 1e9),
    labels: svg.all("text").map(t => t.textContent),
    readings,
    resumes,
    hidden: reading.hidden,
    svg: svg.source(),
  };
});
console.log(JSON.stringify(drawn));
