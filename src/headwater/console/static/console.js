// One view at a time, live: a bar a row, the largest on top. The view is in the address (#name), so a link keeps it.
"use strict";

const LOGIN = "/console/login.html";
const SHOWN = 15, ROW = 26, LABEL = 190, SENT = 1000;
const $ = (id) => document.getElementById(id);
const state = { views: [], view: null, rows: [], measure: null, source: null, changes: [], changed: null };

async function start() {
  const answer = await fetch("/views");
  if (answer.status === 401) { location.href = LOGIN; return; }
  state.views = await answer.json();
  choose();
  window.addEventListener("hashchange", choose);
  setInterval(showAge, 500);
}

function choose() {
  const wanted = decodeURIComponent(location.hash.slice(1));
  state.view = state.views.find((view) => view.view === wanted) || state.views[0];
  $("views").replaceChildren(...state.views.map((view) => {
    const link = document.createElement("a");
    link.href = "#" + encodeURIComponent(view.view);
    link.textContent = view.view;
    if (view === state.view) link.setAttribute("aria-current", "page");
    return link;
  }));
  if (state.view) follow();
}

function follow() {
  const { view, key, columns, sql } = state.view;
  const numbers = Object.keys(columns).filter((name) => !key.includes(name) && /int|float|double/.test(columns[name]));
  state.measure = numbers[0];
  state.rows = [];
  state.changes = [];
  $("name").textContent = view;
  $("sql").textContent = sql.replace(/\s+/g, " ").trim();
  $("curl").textContent = `curl '${location.origin}/views/${view}'`;
  $("measure").replaceChildren(...numbers.map((name) => new Option(name, name)));
  $("measure").onchange = (event) => { state.measure = event.target.value; draw(); };
  if (state.source) state.source.close();
  state.source = new EventSource(`/views/${encodeURIComponent(view)}/live`);
  state.source.addEventListener("rows", (event) => {
    const told = JSON.parse(event.data);
    state.rows = told.rows;
    state.changed = Date.now();
    state.changes.push(state.changed);
    $("position").textContent = told.position || "nothing yet";
    link("live", false);
    draw();
  });
  state.source.onopen = () => link("live", false);
  state.source.onerror = () => {
    link("the server does not answer; trying again", true);
    if (state.source.readyState === EventSource.CLOSED) refused();
  };
}

// A feed that was refused is not tried again by the browser: maybe the session is over.
async function refused() {
  const answer = await fetch("/views").catch(() => null);
  if (answer && answer.status === 401) location.href = LOGIN;
  else setTimeout(follow, 2000);
}

function link(text, down) {
  $("link").textContent = text;
  $("link").classList.toggle("down", down);
}

function draw() {
  const { key } = state.view, measure = state.measure;
  const rows = [...state.rows].sort((a, b) => b[measure] - a[measure]).slice(0, SHOWN);
  const most = Math.max(1, ...rows.map((row) => row[measure]));
  const chart = $("chart"), width = chart.clientWidth || 800;
  chart.setAttribute("height", rows.length * ROW);
  while (chart.childElementCount < rows.length) chart.append(bar());
  while (chart.childElementCount > rows.length) chart.lastElementChild.remove();
  rows.forEach((row, place) => {
    const [label, shape, number] = chart.children[place].children;
    const long = (width - LABEL - 90) * row[measure] / most;
    chart.children[place].setAttribute("transform", `translate(0, ${place * ROW})`);
    label.textContent = key.map((name) => row[name]).join(" · ");
    shape.setAttribute("width", Math.max(0, long));
    number.setAttribute("x", LABEL + long + 8);
    number.textContent = row[measure].toLocaleString();
  });
  $("total-name").textContent = state.rows.length < SENT ? `total ${measure}` : `${measure} of ${SENT} rows`;
  $("total").textContent = state.rows.reduce((sum, row) => sum + row[measure], 0).toLocaleString();
}

function bar() {
  const make = (name, attributes) => {
    const node = document.createElementNS("http://www.w3.org/2000/svg", name);
    for (const [key, value] of Object.entries(attributes)) node.setAttribute(key, value);
    return node;
  };
  const group = make("g", {});
  group.append(make("text", { x: 0, y: 17 }), make("rect", { x: LABEL, y: 4, height: ROW - 8, rx: 3 }), make("text", { y: 17 }));
  return group;
}

function showAge() {
  const minute = Date.now() - 60_000;
  state.changes = state.changes.filter((at) => at > minute);
  $("rate").textContent = state.changes.length;
  $("age").textContent = state.changed ? `${((Date.now() - state.changed) / 1000).toFixed(1)} s ago` : "–";
}

start().catch((error) => link(`cannot start: ${error.message}`, true));
