// Draws step time against hosts, the best of each kind of topology, and for each
// scale step time against servers, from the scales in #data.
(function () {
  'use strict';
  const scales = JSON.parse(document.getElementById('data').textContent);
  const {SHAPES, colour, seriesColour, axis, legend, time, figure, keepDrawn} =
    chartTools;
  const KINDS = [
    ['ring', (p) => p.mode === 'ring'],
    ['servers of their own',
     (p) => p.mode === 'ps' && !p.server_on_every_host],
    ['a server on every host',
     (p) => p.server_on_every_host && p.server_hosts === 0],
    ['a server on every host, and hosts of servers only',
     (p) => p.server_on_every_host && p.server_hosts > 0],
  ];

  const line = (i, label, data) => ({
    label,
    borderColor: seriesColour(i),
    backgroundColor: seriesColour(i),
    pointStyle: SHAPES[i % SHAPES.length],
    pointRadius: 4,
    borderWidth: 2,
    data,
  });

  // Of one value, a dash.
  function computeLine(points) {
    const single = points.every((p) => p.x === points[0].x);
    return {
      label: 'computing',
      borderColor: colour('--faint'),
      backgroundColor: colour('--faint'),
      borderDash: [6, 4],
      borderWidth: 2,
      pointStyle: 'line',
      pointRadius: single ? 8 : 0,
      data: points,
    };
  }

  // The best of each kind at each scale.
  function againstHosts(value) {
    const lines = KINDS.map(([name, is], i) => line(i, name, scales.flatMap(
      (scale) => scale.predictions.filter((p) => p.best_of_its_kind && is(p))
        .map((p) => ({x: scale.hosts, y: value(p)})))));
    return lines.filter((l) => l.data.length > 0);
  }

  // From the least to the most hosts that are only servers'.
  function againstServers(scale, counts) {
    const ends = [Math.min(...counts), Math.max(...counts)];
    const at = (is) => scale.predictions.filter(is)
      .map((p) => ({x: p.server_hosts, y: p.step_s}));
    const flat = (is) => ends.flatMap((x) => scale.predictions.filter(is)
      .map((p) => ({x, y: p.step_s})));
    return [
      line(0, KINDS[0][0], flat(KINDS[0][1])),
      line(1, KINDS[1][0], at(KINDS[1][1])),
      line(2, KINDS[2][0], flat(KINDS[2][1])),
      line(3, KINDS[3][0], at(KINDS[3][1])),
      computeLine(ends.map((x) => ({x, y: scale.predictions[0].compute_s}))),
    ].filter((l) => l.data.length > 0);
  }

  // Labels at the values themselves, or at powers of ten.
  function countAxis(title, values) {
    const plain = axis(title, {type: 'logarithmic'});
    plain.ticks = {...plain.ticks, autoSkip: true};
    const ends = [Math.min(...values), Math.max(...values)];
    if (ends[0] < ends[1]) [plain.min, plain.max] = ends;
    plain.afterBuildTicks = (scale) => {
      scale.ticks = values.map((value) => ({value}));
    };
    plain.ticks.callback = (value) => String(value);
    return plain;
  }

  function timeAxis() {
    const plain = axis('mean step', {beginAtZero: true});
    plain.ticks = {...plain.ticks,
                   callback: (value) => (value === 0 ? '0' : time(value))};
    return plain;
  }

  // Few servers of many workers are slower than all else by orders: labels at
  // 1, 2 and 5 times powers of ten.
  function logTimeAxis() {
    const plain = axis('mean step', {type: 'logarithmic'});
    const labelled = (value) =>
      [1, 2, 5].includes(+(value / 10 ** Math.floor(
        Math.log10(value) + 1e-9)).toPrecision(6));
    plain.ticks = {...plain.ticks, autoSkip: true,
                   callback: (value) => (labelled(value) ? time(value) : '')};
    return plain;
  }

  const percentAxis = () => {
    const plain = axis('computing, of a step', {min: 0, max: 1});
    plain.ticks = {...plain.ticks,
                   callback: (value) => Math.round(value * 100) + '%'};
    return plain;
  };

  const hosts = scales.map((scale) => scale.hosts);
  const pictures = [
    {title: 'A step, against hosts',
     x: () => countAxis('hosts with a worker', hosts),
     y: timeAxis, format: time,
     datasets: () => [
       ...againstHosts((p) => p.step_s),
       computeLine(scales.map((scale) => ({
         x: scale.hosts, y: scale.predictions[0].compute_s})))]},
    {title: 'What a worker computes of it',
     x: () => countAxis('hosts with a worker', hosts), y: percentAxis,
     format: (part) => (part * 100).toFixed(1) + '%',
     datasets: () => againstHosts((p) => p.efficiency)},
    ...scales.map((scale) => {
      const counts = [...new Set(scale.predictions
        .filter((p) => p.server_hosts > 0).map((p) => p.server_hosts))];
      return {
        title: scale.hosts + ' hosts, against servers',
        x: () => countAxis('hosts with nothing but a server', counts),
        y: logTimeAxis, format: time,
        datasets: () => againstServers(scale, counts)};
    }),
  ];

  for (const picture of pictures) {
    picture.canvas = figure(document.getElementById('charts'), picture.title,
                            picture.title);
  }

  keepDrawn(() => pictures.map((picture) => new Chart(picture.canvas, {
    type: 'line',
    data: {datasets: picture.datasets()},
    options: {
      animation: false,
      maintainAspectRatio: false,
      interaction: {mode: 'nearest', axis: 'x', intersect: false},
      scales: {x: picture.x(), y: picture.y()},
      plugins: {
        tooltip: {callbacks: {
          title: (items) => String(items[0].parsed.x),
          label: (item) =>
            item.dataset.label + ': ' + picture.format(item.parsed.y),
        }},
        legend: legend(),
      },
    },
  })));
})();
