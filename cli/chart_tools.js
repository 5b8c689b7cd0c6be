// What the charts of all reports share: the page's colours, axes, and a new
// drawing when the page turns light or dark.
const chartTools = (function () {
  'use strict';
  const NUM_COLOURS = 8;

  const colour = (name) =>
    getComputedStyle(document.documentElement).getPropertyValue(name).trim();

  const seriesColour = (i) => colour('--c' + (i % NUM_COLOURS));

  function axis(title, more) {
    return {
      type: 'linear',
      title: {display: true, text: title, color: colour('--faint')},
      ticks: {color: colour('--faint'), maxRotation: 0},
      grid: {color: colour('--grid'), borderColor: colour('--line')},
      ...more,
    };
  }

  // `drawAll` returns its charts.
  function keepDrawn(drawAll) {
    let charts = drawAll();
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => {
      charts.forEach((chart) => chart.destroy());
      charts = drawAll();
    });
  }

  return {colour, seriesColour, axis, keepDrawn};
})();
