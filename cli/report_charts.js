// Draws the report's charts from the JSON in #data, in the colours of the page.
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  const SHAPES = ['circle', 'rect', 'triangle', 'rectRot'];
  const {colour, seriesColour, axis, keepDrawn} = chartTools;

  const finite = (points) =>
    points.filter((p) => Number.isFinite(p.x) && Number.isFinite(p.y));

  // The mean of each value with its neighbours, a fiftieth of all to each side.
  function smooth(points) {
    const reach = Math.floor(points.length / 50);
    return points.map((point, i) => {
      const near = points.slice(Math.max(0, i - reach), i + reach + 1);
      return {x: point.x, y: near.reduce((sum, p) => sum + p.y, 0) / near.length};
    });
  }

  // Later modes lie above earlier ones; a wide solid line shows on both sides of
  // a dashed one that hides it.
  const look = (i) => ({
    order: data.modes.length - i,
    borderColor: seriesColour(i),
    backgroundColor: seriesColour(i),
    borderDash: DASHES[i % DASHES.length],
    pointStyle: SHAPES[i % SHAPES.length],
    borderWidth: DASHES[i % DASHES.length].length ? 2 : 4,
  });

  const accuracy = (x) => data.modes.map((mode, i) => ({
    ...look(i),
    label: mode.name,
    pointRadius: 4,
    data: finite(mode.epochs.map((e) => ({x: e[x], y: e.test_accuracy}))),
  }));

  const loss = (x) => data.modes.flatMap((mode, i) => [{
    ...look(i),
    label: mode.name,
    pointRadius: 0,
    data: smooth(finite(mode.steps.map((s) => ({x: s[x], y: s.loss})))),
  }, {
    ...look(i),
    label: mode.name + ', test',
    showLine: false,
    pointRadius: 5,
    data: finite(mode.epochs.map((e) => ({x: e[x], y: e.test_loss}))),
  }]);

  const isTest = (label) => label.endsWith(', test');

  // A mode's test dots go with its line.
  function toggle(event, item, legend) {
    const chart = legend.chart;
    const visible = chart.isDatasetVisible(item.datasetIndex);
    chart.data.datasets.forEach((set, i) => {
      if (set.label === item.text || set.label === item.text + ', test') {
        chart.setDatasetVisibility(i, !visible);
      }
    });
    chart.update();
  }

  function draw(id, datasets, x, y) {
    return new Chart(document.getElementById(id), {
      type: 'line',
      data: {datasets},
      options: {
        animation: false,
        maintainAspectRatio: false,
        interaction: {mode: 'nearest', axis: 'x', intersect: false},
        scales: {x, y},
        plugins: {
          legend: {
            position: 'bottom',
            onClick: toggle,
            labels: {
              color: colour('--text'),
              boxWidth: 40,
              boxHeight: 0,
              filter: (item) => !isTest(item.text),
              sort: (a, b) => a.datasetIndex - b.datasetIndex,
            },
          },
        },
      },
    });
  }

  const AXES = {
    seconds: ['seconds of training', {beginAtZero: true}],
    step: ['step', {beginAtZero: true}],
  };
  const percent = (value) => +(value * 100).toFixed(2) + '%';

  function drawAll() {
    return Object.entries(AXES).flatMap(([x, args]) => {
      const faint = {color: colour('--faint')};
      return [
        draw('accuracy-' + x, accuracy(x), axis(...args),
             axis('test accuracy', {ticks: {...faint, callback: percent}})),
        draw('loss-' + x, loss(x), axis(...args),
             axis('loss', {beginAtZero: true})),
      ];
    });
  }

  keepDrawn(drawAll);
})();
