// What the charts of all reports share: the page's colours, axes, legends,
// figures, and a new drawing when the page turns light or dark.
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

  return {SHAPES, colour, seriesColour, axis, legend, figure, keepDrawn};
})();
