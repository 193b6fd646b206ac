"use strict";
(() => {
  const read = (id) => JSON.parse(document.getElementById(id).textContent);
  const data = read("planner-data"), charts = read("planner-charts");
  const DAY = 86400, SAME = 1e-9;
  const money = (value) => "$" + Math.round(value).toLocaleString("en-US");
  const days = (seconds) => (seconds / DAY).toFixed(1) + " days";

  // The planner's rule: what the run takes, the limits, the objective, ties by time and then by GPUs.
  function figures(one, setting) {
    const rent = one.rent * setting.prices[one.pool];
    const cost = (seconds) => rent * Math.max(seconds, one.committed);
    const totals = {
      time: one.seconds, cost: cost(one.seconds), energy: one.draw * one.seconds, carbon: one.emission * one.seconds,
    };
    const expected = one.seconds * one.margin;
    const inside = !(expected > setting.deadline) && !(cost(expected) > setting.budget);
    const terms = data.rule.objective, weight = { cost: 1, time: 1 / DAY };
    const goals = data.rule.lexicographic
      ? terms.map(([name]) => totals[name])
      : [terms.reduce((sum, [name, factor]) => sum + totals[name] * (weight[name] ?? 1) * factor, 0)];
    return { inside, dollars: totals.cost, seconds: one.seconds, keys: [...goals, one.seconds, one.gpus] };
  }

  function before(a, b) {
    for (let i = 0; i < a.length; i += 1) {
      if (Math.abs(a[i] - b[i]) > SAME * Math.max(Math.abs(a[i]), Math.abs(b[i]))) return a[i] < b[i];
    }
    return false;
  }

  function choose(setting) {
    const all = data.candidates.map((one) => figures(one, setting));
    let best = null;
    all.forEach((of, i) => { if (of.inside && (best === null || before(of.keys, all[best].keys))) best = i; });
    return { best, all };
  }

  function frontier(all) {
    const order = all.map((of, i) => i).filter((i) => all[i].inside)
      .sort((a, b) => all[a].seconds - all[b].seconds || all[a].dollars - all[b].dollars);
    let least = Infinity;
    return new Set(order.filter((i) => all[i].dollars < least * (1 - SAME) && ((least = all[i].dollars), true)));
  }

  const inputs = [...document.querySelectorAll("input[data-kind]")];

  function asked() {
    const setting = { deadline: Infinity, budget: Infinity, prices: data.rule.prices.map(() => 1) };
    const moved = [];
    for (const input of inputs) {
      const factor = Number(input.value), base = Number(input.dataset.base), kind = input.dataset.kind;
      const off = input.dataset.none === "yes" && factor >= Number(input.max);
      const value = off ? Infinity : base * factor;
      let words = "none";
      if (kind === "price") {
        setting.prices[Number(input.dataset.pool)] = factor;
        words = "$" + value.toFixed(2);
      } else {
        setting[kind] = value;
        if (!off) words = kind === "deadline" ? days(value) : money(value);
      }
      document.getElementById(input.id + "-value").textContent = words;
      if (input.value !== input.defaultValue) moved.push(flag(input, kind, value));
    }
    return { setting, moved };
  }

  function flag(input, kind, value) {
    if (kind === "price") return `-s "hardware.${input.dataset.pool}.price=${value.toFixed(4)} USD/gpu-hour"`;
    if (kind === "deadline") return `-s "limits.deadline=${(value / DAY).toFixed(4)} days"`;
    return `-s "limits.budget=${value.toFixed(2)} USD"`;
  }

  function difference(of) {
    const plan = data.reported === null ? null : data.solution.plans[0].estimate;
    if (!plan) return "";
    const longer = of.seconds / DAY - plan.days, dearer = of.dollars - plan.dollars;
    const time = Math.abs(longer) < 0.05 ? "as long" : `${Math.abs(longer).toFixed(1)} days ${longer > 0 ? "longer" : "shorter"}`;
    const cost = Math.abs(dearer) < 0.5 ? "as dear" : `${money(Math.abs(dearer))} ${dearer > 0 ? "dearer" : "cheaper"}`;
    return ` ${time} and ${cost} than reported above.`.replace(/^ ./, (text) => text.toUpperCase());
  }

  const views = {};
  // A copy: Vega marks the rows it is given as its own, and would take changed copies of them for the same rows.
  const points = charts.frontier ? structuredClone(charts.frontier.datasets.points) : [];

  function answer() {
    const { setting, moved } = asked();
    const { best, all } = choose(setting);
    const box = document.getElementById("answer");
    const show = (name, text) => { box.querySelector(`[data-part=${name}]`).textContent = text; };
    if (best === null) {
      show("plan", data.complete ? "No plan is within these limits" : "No plan that is known here is within these limits");
      show("layout", "");
      show("status", "");
    } else {
      const one = data.candidates[best], of = all[best];
      show("plan", `${one.words}: ${days(of.seconds)}, ${money(of.dollars)}`);
      show("layout", one.layout);
      const reported = best === data.reported;
      const known = !one.exact ? "Its stages are a plain split; solve again for the exact plan."
        : data.complete ? "The exact plan, and the best there is." : "An exact plan; others may be better, solve again to be sure.";
      const open = moved.length && !data.complete ? " Others may be better here, solve again to be sure." : "";
      show("status", (reported ? `The reported plan.${open}` : known) + (moved.length ? difference(of) : ""));
    }
    show("command", moved.length ? `planner solve problem.yaml ${moved.join(" ")}` : "");
    box.dataset.chosen = best === null ? "none" : String(best);
    redraw(setting, best, all);
  }

  function redraw(setting, best, all) {
    if (!views.frontier) return;
    const front = frontier(all);
    const rows = points.map((row) => ({
      ...row, dollars: all[row.index].dollars, cost: money(all[row.index].dollars),
      state: front.has(row.index) ? "on the frontier" : "other", chosen: row.index === best,
    }));
    const limits = [];
    if (Number.isFinite(setting.deadline)) limits.push({ days: setting.deadline / DAY, words: "deadline" });
    if (Number.isFinite(setting.budget)) limits.push({ dollars: setting.budget, words: "budget" });
    views.frontier.data("points", rows).data("limits", limits).runAsync();
  }

  async function start() {
    // A layer without rows, such as a limit that the problem does not have, is nothing to warn of.
    const options = { actions: false, renderer: "svg", tooltip: { theme: "custom" }, logLevel: 1 };
    for (const [name, spec] of Object.entries(charts)) {
      const place = document.getElementById("chart-" + name);
      if (!place) continue;
      const made = await vegaEmbed(place, spec, options);
      views[name] = made.view;
    }
    inputs.forEach((input) => input.addEventListener("input", answer));
    document.getElementById("reset")?.addEventListener("click", () => {
      inputs.forEach((input) => { input.value = input.defaultValue; });
      answer();
    });
    if (document.getElementById("answer")) answer();
    document.documentElement.dataset.ready = "yes";
  }
  window.addEventListener("load", start);
})();
