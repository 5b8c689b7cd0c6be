// What the charts of all reports share: the page's colours, axes, legends,
// units, figures, and a new drawing when the page turns light or dark.
const chartTools = (function () {
  'use strict';
  const NUM_COLOURS = 8;
  const SHAPES = ['circle', 'rect', 'triangle', 'rectRot'];

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

  // The standard labels as lines, dashed as in the picture.
  const dashedLabels = (chart) =>
    Chart.defaults.plugins.legend.labels.generateLabels(chart).map((label) => ({
      ...label,
      pointStyle: 'line',
      lineDash: chart.data.datasets[label.datasetIndex].borderDash || [],
    }));

  const legend = (more) => ({
    position: 'bottom',
    labels: {
      color: colour('--text'),
      usePointStyle: true,
      pointStyleWidth: 36,
      boxHeight: 8,
      generateLabels: dashedLabels,
      sort: (a, b) => a.datasetIndex - b.datasetIndex,
      ...more,
    },
  });

  // A number in the largest unit that leaves it at 1 or more.
  function inUnits(value, units) {
    const [name, factor] =
      units.filter((unit) => value >= unit[1] * 0.9995).pop() || units[0];
    return +(value / factor).toPrecision(3) + ' ' + name;
  }
  const size = (bytes) =>
    inUnits(bytes, [['B', 1], ['KB', 1e3], ['MB', 1e6], ['GB', 1e9]]);
  const time = (seconds) =>
    inUnits(seconds, [['ns', 1e-9], ['\u00b5s', 1e-6], ['ms', 1e-3], ['s', 1]]);

  // A titled canvas at the end of `container`; `rem` is its height.
  function figure(container, title, description, rem) {
    const box = document.createElement('div');
    box.className = 'canvas';
    if (rem) box.style.height = rem + 'rem';
    const canvas = document.createElement('canvas');
    canvas.setAttribute('role', 'img');
    canvas.setAttribute('aria-label', description);
    box.append(canvas);
    const whole = document.createElement('figure');
    const heading = document.createElement('h4');
    heading.textContent = title;
    whole.append(heading, box);
    container.append(whole);
    return canvas;
  }

  // `drawAll` returns its charts. Returns what draws all of them anew.
  function keepDrawn(drawAll) {
    let charts = drawAll();
    const redraw = () => {
      charts.forEach((chart) => chart.destroy());
      charts = drawAll();
    };
    matchMedia('(prefers-color-scheme: dark)').addEventListener('change', redraw);
    return redraw;
  }

  return {NUM_COLOURS, SHAPES, colour, seriesColour, axis, legend, size, time,
          figure, keepDrawn};
})();
