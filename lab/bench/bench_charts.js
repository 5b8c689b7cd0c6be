// Draws time against size, a chart for each operation and number of ranks, from
// the points in #data.
(function () {
  'use strict';
  const points = JSON.parse(document.getElementById('data').textContent);
  const {SHAPES, colour, seriesColour, axis, legend, size, time, figure,
         keepDrawn} = chartTools;

  const titleOf = (point) => point.operation + ', ' + point.ranks + ' ranks' +
    (point.servers ? ', ' + point.servers +
       (point.servers === 1 ? ' server' : ' servers') : '');

  const groups = new Map();
  for (const point of points) {
    const title = titleOf(point);
    if (!groups.has(title)) groups.set(title, []);
    groups.get(title).push(point);
  }
  if (points.length === 0) document.getElementById('pictures').remove();

  // Labels at powers of ten only.
  const atPowers = (format) => (value) => {
    const power = Math.log10(value);
    return Math.abs(power - Math.round(power)) < 1e-6 ? format(value) : '';
  };

  function datasets(group) {
    const sorted = [...group].sort((a, b) => a.size_bytes - b.size_bytes);
    const names = [...new Set(
      sorted.flatMap((point) => point.measurements.map((m) => m.contender)))];
    const lines = names.map((name, i) => ({
      label: name,
      borderColor: seriesColour(i),
      backgroundColor: seriesColour(i),
      pointStyle: SHAPES[i % SHAPES.length],
      pointRadius: 4,
      borderWidth: name === 'psring' ? 3 : 2,
      data: sorted.flatMap((point) => point.measurements
        .filter((m) => m.contender === name)
        .map((m) => ({x: point.size_bytes, y: m.median_s}))),
    }));
    lines.push({
      label: 'limit',
      borderColor: colour('--faint'),
      backgroundColor: colour('--faint'),
      borderDash: [6, 4],
      borderWidth: 2,
      pointRadius: 0,
      data: sorted.map((p) => ({x: p.size_bytes, y: p.limit_s})),
    });
    return lines;
  }

  function logarithmic(title, format) {
    const plain = axis(title, {type: 'logarithmic'});
    plain.ticks = {...plain.ticks, callback: atPowers(format), autoSkip: false};
    return plain;
  }

  const tooltip = {callbacks: {
    title: (items) => size(items[0].parsed.x),
    label: (item) => item.dataset.label + ': ' + time(item.parsed.y),
  }};

  const canvases = [...groups].map(([title, group]) => [
    figure(document.getElementById('charts'), title, 'Time against size: ' + title),
    group,
  ]);

  keepDrawn(() => canvases.map(([canvas, group]) => new Chart(canvas, {
    type: 'line',
    data: {datasets: datasets(group)},
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {x: logarithmic('size of each rank\u2019s buffer', size),
               y: logarithmic('median time', time)},
      plugins: {tooltip, legend: legend()},
    },
  })));
})();
