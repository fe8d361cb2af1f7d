// Draws the numbers of the tables beside it. Every `data-plot` has the days and the series as JSON.
"use strict";

(() => {
  const HEIGHT = 220;
  const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();
  const bytes = (count) => (count < 1e3 ? `${count} B` : count < 1e6 ? `${+(count / 1e3).toFixed(1)} kB` : `${+(count / 1e6).toFixed(1)} MB`);
  const units = { number: (value) => value.toLocaleString("en"), ms: (value) => `${value} ms`, size: bytes };

  function draw(place) {
    const { days, series } = JSON.parse(place.dataset.plot);
    const inks = ["--words", "--meaning"].map(colour);
    const shown = units[series[0].unit];
    const axis = { stroke: colour("--faint"), grid: { stroke: colour("--line"), width: 1 }, ticks: { stroke: colour("--line") } };
    const options = {
      width: place.clientWidth,
      height: HEIGHT,
      tzDate: (seconds) => uPlot.tzDate(new Date(seconds * 1e3), "UTC"),
      cursor: { drag: { x: false, y: false } },
      scales: { y: { range: (_, __, most) => [0, most > 0 ? most * 1.1 : 1] } },
      axes: [
        { ...axis, values: "{MMM} {D}" },
        { ...axis, size: 70, values: (_, ticks) => ticks.map((tick) => (Number.isInteger(tick) || series[0].unit === "ms" ? shown(tick) : "")) },
      ],
      series: [
        { label: "Day", value: "{YYYY}-{MM}-{DD}" },
        ...series.map((one, at) => ({
          label: one.label,
          stroke: inks[at],
          width: 2,
          dash: at ? [6, 4] : undefined,
          points: { show: days.length <= 31 || one.values.filter((value) => value !== null).length < 5, size: 5, fill: inks[at] },
          spanGaps: true,
          value: (_, value) => (value === null ? "–" : shown(value)),
        })),
      ],
    };
    place.replaceChildren();
    return new uPlot(options, [days, ...series.map((one) => one.values)], place);
  }

  const drawn = new Map();
  const places = [...document.querySelectorAll("[data-plot]")];
  const drawAll = () => places.forEach((place) => drawn.set(place, draw(place)));
  drawAll();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawAll);
  addEventListener("resize", () => drawn.forEach((plot, place) => plot.setSize({ width: place.clientWidth, height: HEIGHT })));
})();
