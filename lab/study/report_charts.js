// Draws the report's charts from the JSON in #data (its form: study_charts.h),
// in the colours of the page.
(function () {
  'use strict';
  const data = JSON.parse(document.getElementById('data').textContent);
  const {NUM_COLOURS, SHAPES, colour, seriesColour, axis, legend, figure,
         keepDrawn} = chartTools;
  const DASHES = [[], [8, 4], [2, 3], [10, 3, 2, 3]];
  // Where the colours begin again, a line has another dash and another mark than
  // the one of the same colour.
  const dashOf = (i) => DASHES[(i + Math.floor(i / NUM_COLOURS)) % DASHES.length];
  const shapeOf = (i) => SHAPES[(i + Math.floor(i / NUM_COLOURS)) % SHAPES.length];
  const percent = (value) => +(value * 100).toFixed(2) + '%';
  const rounded = (value) => +value.toPrecision(4);

  // Later lines lie above earlier ones; a wide solid line shows on both sides of
  // a dashed one that hides it.
  const look = (i, n, place = i) => ({
    order: n - place,
    borderColor: seriesColour(i),
    backgroundColor: seriesColour(i),
    borderDash: dashOf(i),
    pointStyle: shapeOf(i),
    borderWidth: dashOf(i).length ? 2 : 4,
    tension: 0,
  });

  // The edges of a line's band, the lower one filled up to the upper one.
  const band = (points, x, i, n, group) => ['min', 'max'].map((edge) => ({
    order: 2 * n,
    group,
    isBand: true,
    label: group + ', ' + edge,
    fill: edge === 'max' ? '-1' : false,
    backgroundColor: seriesColour(i) + '2e',
    borderWidth: 0,
    pointRadius: 0,
    pointHitRadius: 0,
    data: points.map((p) => ({x: p[x], y: p[edge]})),
  }));

  const means = (points, x) =>
    points.map((p) => ({x: p[x], y: p.mean, min: p.min, max: p.max}));

  function courseLines(lines, x, key) {
    return lines.flatMap((line, place) => {
      const n = lines.length;
      const i = line.look;
      const more = key === 'loss' ? [{
        ...look(i, n, place),
        group: line.label,
        isExtra: true,
        label: line.label + ', test',
        showLine: false,
        pointRadius: 5,
        data: means(line.test_loss, x),
      }] : [];
      return [
        ...(line.seeds > 1 ? band(line[key], x, i, n, line.label) : []),
        {...look(i, n, place), group: line.label, label: line.label,
         pointRadius: key === 'loss' ? 0 : 4, data: means(line[key], x)},
        ...more,
      ];
    });
  }

  // From the first to the last x of all lines.
  function targetLine(sets) {
    const xs = sets.flatMap((set) => set.data.map((p) => p.x));
    return {
      label: 'to reach: ' + data.target_text,
      order: 1000,
      borderColor: colour('--faint'),
      backgroundColor: colour('--faint'),
      borderWidth: 1,
      borderDash: [4, 4],
      pointRadius: 0,
      pointHitRadius: 0,
      data: [0, Math.max(0, ...xs)].map((x) => ({x, y: data.target})),
    };
  }

  // A line's band and test dots go with it.
  function toggle(event, item, itsLegend) {
    const chart = itsLegend.chart;
    const visible = chart.isDatasetVisible(item.datasetIndex);
    const group = chart.data.datasets[item.datasetIndex].group;
    chart.data.datasets.forEach((set, i) => {
      if (i === item.datasetIndex || (group && set.group === group)) {
        chart.setDatasetVisibility(i, !visible);
      }
    });
    chart.update();
  }

  const tooltip = (format) => ({
    filter: (item) => !item.dataset.isBand,
    callbacks: {
      label: ({dataset, parsed, raw}) => dataset.label + ': ' +
        format(parsed.y) + (raw.min < raw.max ?
          ' (' + format(raw.min) + ' to ' + format(raw.max) + ')' : ''),
    },
  });

  function drawLines(canvas, datasets, x, y, format) {
    return new Chart(canvas, {
      type: 'line',
      data: {datasets},
      options: {
        animation: false,
        maintainAspectRatio: false,
        interaction: {mode: 'nearest', axis: 'x', intersect: false},
        scales: {x, y},
        plugins: {
          tooltip: tooltip(format || rounded),
          legend: {
            ...legend({
              filter: (item, all) => !all.datasets[item.datasetIndex].isBand &&
                !all.datasets[item.datasetIndex].isExtra,
            }),
            onClick: toggle,
          },
        },
      },
    });
  }

  // Thin lines from the lowest to the highest seed of each bar.
  const whiskers = {
    id: 'whiskers',
    afterDatasetsDraw(chart) {
      const {ctx, scales: {x}} = chart;
      ctx.save();
      ctx.strokeStyle = colour('--text');
      ctx.lineWidth = 1.5;
      chart.getDatasetMeta(0).data.forEach((bar, i) => {
        const {min, max} = chart.data.datasets[0].data[i];
        if (!(min < max)) return;
        ctx.beginPath();
        ctx.moveTo(x.getPixelForValue(min), bar.y);
        ctx.lineTo(x.getPixelForValue(max), bar.y);
        for (const end of [min, max]) {
          ctx.moveTo(x.getPixelForValue(end), bar.y - 4);
          ctx.lineTo(x.getPixelForValue(end), bar.y + 4);
        }
        ctx.stroke();
      });
      ctx.restore();
    },
  };

  // A long label in several lines.
  const broken = (label) =>
    label.split(', ').flatMap((part) => part.match(/.{1,18}/g));

  const heightOf = (labels) =>
    5 + labels.reduce((sum, label) => sum + 0.6 + 0.9 * broken(label).length, 0);

  function drawBars(canvas, labels, datasets, x, more) {
    const y = axis('', {type: 'category', stacked: x.stacked});
    y.ticks.color = colour('--text');
    y.ticks.autoSkip = false;
    y.title.display = false;
    y.grid.display = false;
    return new Chart(canvas, {
      type: 'bar',
      data: {labels: labels.map(broken), datasets},
      options: {
        indexAxis: 'y',
        animation: false,
        maintainAspectRatio: false,
        scales: {x, y},
        ...more.options,
      },
      plugins: more.plugins || [],
    });
  }

  // Diagonal lines, to be told from plain areas without their colours.
  function hatched(name) {
    const tile = document.createElement('canvas');
    tile.width = tile.height = 8;
    const ctx = tile.getContext('2d');
    ctx.strokeStyle = colour(name);
    ctx.lineWidth = 2;
    for (const shift of [-8, 0, 8]) {
      ctx.moveTo(shift, 8);
      ctx.lineTo(shift + 8, 0);
    }
    ctx.stroke();
    return ctx.createPattern(tile, 'repeat');
  }

  function rates(container) {
    const labels = data.rates.map((rate) => rate.label);
    const canvas = figure(container, data.rate_title,
                          data.rate_title + ' of every way', heightOf(labels));
    canvas.closest('figure').className = 'wide';
    return () => drawBars(canvas, labels, [{
      label: data.rate_unit,
      backgroundColor: seriesColour(0),
      maxBarThickness: 22,
      data: data.rates.map((rate, i) => ({...rate, x: rate.mean, y: i})),
    }], axis(data.rate_unit, {
      beginAtZero: true,
      suggestedMax: Math.max(...data.rates.map((rate) => rate.max)),
    }), {
      options: {plugins: {legend: {display: false}},
                parsing: {xAxisKey: 'x', yAxisKey: 'y'}},
      plugins: [whiskers],
    });
  }

  // A script may not tell of its steps, nor a way reach the target.
  const known = (point, key) => point[key] && point[key].mean !== null;

  function scaling(container, study) {
    const tells = (key) =>
      study.lines.some((line) => line.points.some((p) => known(p, key)));
    const draw = (key, title, unit) => {
      const canvas = figure(container, title, title,
                            18 + 1.2 * study.lines.length);
      return () => {
        const sets = study.lines.map((line, i) => ({
          ...look(line.look, study.lines.length, i), label: line.label,
          pointRadius: 4,
          data: line.points.filter((p) => known(p, key))
            .map((p) => ({x: p.x, y: p[key].mean, ...p[key]})),
        }));
        const first = sets[0].data[0];
        if (key === 'rate' && study.axis === 'workers' && first) {
          const xs = sets[0].data.map((p) => p.x);
          sets.push({
            label: 'in proportion', order: 1000, borderColor: colour('--faint'),
            backgroundColor: colour('--faint'), borderWidth: 1,
            borderDash: [4, 4], pointRadius: 0,
            data: xs.map((x) => ({x, y: first.y * x / first.x})),
          });
        }
        const values = [...new Set(sets.flatMap((s) => s.data.map((p) => p.x)))];
        const x = axis(study.axis, {afterBuildTicks: (scale) => {
          scale.ticks = values.sort((a, b) => a - b).map((value) => ({value}));
        }});
        return drawLines(canvas, sets, x, axis(unit, {beginAtZero: true}));
      };
    };
    const drawings = [];
    if (tells('rate')) {
      drawings.push(draw('rate', data.rate_title + ' by ' + study.axis,
                         data.rate_unit));
    }
    if (tells('seconds')) {
      drawings.push(draw('seconds', 'Time to ' + data.target_text + ' by ' +
                         study.axis, 'seconds of training'));
    }
    return drawings;
  }

  function staleness(container, variant) {
    const longest = Math.max(...variant.workers.map(
      (worker) => worker.counts.findLastIndex((count) => count > 0) + 1), 2);
    const bins = variant.workers[0].counts.length;
    const labels = [...Array(longest).keys()]
      .map((i) => i + (i + 1 === bins ? ' or more' : ''));
    const canvas = figure(container, variant.label,
                          'Staleness of every worker: ' + variant.label);
    return () => new Chart(canvas, {
      type: 'line',
      data: {labels, datasets: variant.workers.map((worker, i) => {
        const sum = worker.counts.reduce((a, b) => a + b, 0) || 1;
        return {...look(i, variant.workers.length),
                label: 'worker ' + worker.rank, pointRadius: 4,
                data: worker.counts.slice(0, longest).map((c) => c / sum)};
      })},
      options: {
        animation: false,
        maintainAspectRatio: false,
        interaction: {mode: 'index', intersect: false},
        scales: {
          x: axis('updates missed', {type: 'category'}),
          y: axis('part of its gradients', {beginAtZero: true, ticks: {
            color: colour('--faint'), callback: percent}}),
        },
        plugins: {legend: legend(), tooltip: {callbacks: {
          label: (item) => item.dataset.label + ': ' + percent(item.parsed.y)}}},
      },
    });
  }

  function stepTimes(container) {
    const labels = data.step_times.map((time) => time.label);
    const canvas = figure(container, 'An average step',
                          'Where the time of a step went', heightOf(labels) + 2);
    const part = (key, label, fill) => ({
      label, backgroundColor: fill, maxBarThickness: 22,
      borderColor: colour('--page'), borderWidth: {right: 2},
      data: data.step_times.map((time) => time[key] * 1000),
    });
    return () => drawBars(canvas, labels, [
      part('compute', 'computing', seriesColour(0)),
      part('exposed', 'exchange, and waiting for others', seriesColour(1)),
      part('wait', 'injected', hatched('--faint')),
    ], axis('milliseconds', {beginAtZero: true, stacked: true}), {
      options: {plugins: {
        legend: {position: 'bottom', labels: {color: colour('--text')}},
        tooltip: {callbacks: {label: (item) =>
          item.dataset.label + ': ' + rounded(item.parsed.x) + ' ms'}},
      }},
    });
  }

  const goalKey = data.by_loss ? 'test_loss' : 'accuracy';
  const AXES = {seconds: 'seconds of training', step: 'step'};

  function course(container, {title, lines}) {
    if (title) {
      const heading = document.createElement('h3');
      heading.textContent = title;
      container.append(heading);
    }
    const grid = document.createElement('div');
    grid.className = 'charts';
    container.append(grid);
    const draw = (name, key, x, y, format) => {
      const heading = name + ' against ' + (x === 'step' ? 'step' : 'time');
      const canvas = figure(grid, heading, heading + ' ' + title);
      return () => {
        const sets = courseLines(lines, x, key);
        if (key === goalKey && data.target !== null) sets.push(targetLine(sets));
        return drawLines(canvas, sets, axis(AXES[x], {beginAtZero: true}), y(),
                         format);
      };
    };
    const accuracyAxis = () => axis('test accuracy', {
      ticks: {color: colour('--faint'), callback: percent}});
    const lossAxis = () => axis('loss', {beginAtZero: true});
    // A script may tell of none, nor of its steps.
    const tellsSteps = lines.some((line) =>
      [...line.accuracy, ...line.loss, ...line.test_loss].some((p) => p.step > 0));
    // Without a training loss the test loss is a picture already where it counts.
    const hasLoss = lines.some((line) =>
      line.loss.length || (!data.by_loss && line.test_loss.length));
    const hasAccuracy = lines.some((line) => line.accuracy.length);
    const axes = Object.keys(AXES).filter((x) => x !== 'step' || tellsSteps);
    return axes.flatMap((x) => [
      ...(data.by_loss ? [draw('Test loss', 'test_loss', x, lossAxis)] : []),
      ...(hasAccuracy ? [draw('Test accuracy', 'accuracy', x, accuracyAxis, percent)] : []),
      ...(hasLoss ? [draw('Loss', 'loss', x, lossAxis)] : []),
    ]);
  }

  const section = (id) => document.getElementById(id);
  const drawings = [
    ...data.courses.flatMap((each) => course(section('courses'), each)),
    ...(data.rates.some((rate) => rate.mean !== null) ?
      [rates(section('speed'))] : []),
    ...data.scaling.flatMap((each) => scaling(section('speed'), each)),
    ...data.staleness.map((each) => staleness(section('staleness'), each)),
    ...(data.step_times.length ? [stepTimes(section('step-times'))] : []),
  ];
  keepDrawn(() => drawings.map((draw) => draw()));
})();
