// The live page: draws what /events tells, or what a saved file holds.
'use strict';
(function () {
  // The page as it came, before anything is drawn into it.
  const source = '<!DOCTYPE html>\n' + document.documentElement.outerHTML;
  const EMPTY_SAVED = '<script type="application/json" id="saved">null<';
  const saved = JSON.parse(document.getElementById('saved').textContent);
  const token = new URLSearchParams(location.search).get('token') || '';
  const get = (id) => document.getElementById(id);

  let job = null;
  let points = [];
  let evaluations = [];
  let earlier = [];  // jobs that were shown before, where there are several
  let connected = false;

  // Text, for people.

  function duration(seconds) {
    const s = Math.round(seconds);
    const two = (n) => String(n).padStart(2, '0');
    const h = Math.floor(s / 3600), m = Math.floor(s / 60) % 60;
    return h > 0 ? h + ':' + two(m) + ':' + two(s % 60) : m + ':' + two(s % 60);
  }

  function figure(value, digits) {
    if (value === null || value === undefined) return '';
    if (value !== 0 && Math.abs(value) < 0.01) return value.toExponential(1);
    return value.toLocaleString('en-US', {maximumSignificantDigits: digits || 4});
  }

  function seconds(value) {
    if (!value) return value === 0 ? '0' : '';
    if (value >= 1) return figure(value, 3) + ' s';
    return value >= 1e-3 ? figure(value * 1e3, 3) + ' ms'
                         : figure(value * 1e6, 3) + ' µs';
  }

  function bytes(value) {
    if (value === null || value === undefined) return '';
    const units = ['B', 'KB', 'MB', 'GB', 'TB', 'PB'];
    let i = 0;
    while (value >= 1000 && i < units.length - 1) { value /= 1000; ++i; }
    return figure(value, 3) + ' ' + units[i];
  }

  function element(name, text, className) {
    const e = document.createElement(name);
    if (text !== undefined) e.textContent = text;
    if (className) e.className = className;
    return e;
  }

  // Charts against the time since the job was complete. Faults are lines.

  const faultLines = {
    id: 'faults',
    afterDatasetsDraw(chart) {
      const marks = job ? job.marks.filter((m) => m.fault) : [];
      const {ctx, chartArea, scales} = chart;
      ctx.save();
      ctx.strokeStyle = chartTools.colour('--c6');
      ctx.setLineDash([4, 3]);
      for (const mark of marks) {
        const x = scales.x.getPixelForValue(mark.seconds);
        if (x < chartArea.left || x > chartArea.right) continue;
        ctx.beginPath();
        ctx.moveTo(x, chartArea.top);
        ctx.lineTo(x, chartArea.bottom);
        ctx.stroke();
      }
      ctx.restore();
    },
  };

  // name, y axis, lines: [label, key or function of a point, more of Chart.js],
  // of points or evaluations, what of earlier jobs is beside them, and the range
  // of the axis while all values are one; hides itself as long as it has nothing
  // to show.
  const CHARTS = [
    {title: 'Training loss', y: 'loss', earlier: 'losses',
     lines: [['mean of the workers', 'loss']]},
    {title: 'Test accuracy', y: 'accuracy', of: 'evaluations', earlier: 'accuracies',
     lines: [['at evaluations', 'accuracy']], range: [0, 1]},
    {title: 'Test loss', y: 'loss', of: 'evaluations', earlier: 'test_losses',
     lines: [['at evaluations', 'test_loss']]},
    {title: 'Where a step\'s time goes', y: 'seconds', stacked: true, tick: seconds,
     lines: [['compute', 'compute_s'], ['slowed by a fault', 'slowed_s'],
             ['communication, exposed', 'exposed_s'],
             ['waiting for others', 'waiting_s']]},
    {title: 'Speed', y: 'samples/s', from0: true,
     lines: [['all workers', 'samples_per_second']]},
    {title: 'Speed in steps', y: 'steps/s', from0: true,
     lines: [['a mean worker', 'steps_per_second']]},
    {title: 'Network', y: 'bytes/s', from0: true, tick: bytes,
     lines: [['sent', 'sent_per_second'], ['received', 'received_per_second']]},
    {title: 'Memory', y: 'bytes', from0: true, tick: bytes,
     lines: [['of all processes', 'resident_bytes']]},
    {title: 'Staleness', y: 'updates', from0: true,
     lines: [['of a mean gradient', 'staleness']]},
  ];
  let drawn = [];

  function dataOf(line, of) {
    const list = of === 'evaluations' ? evaluations : points;
    return list.map((p) => ({x: p.seconds, y: p[line[1]]}));
  }

  // Thin and dashed, beside the one of now.
  function datasetsOfEarlier(spec) {
    if (!spec.earlier) return [];
    return earlier.map((before, i) => {
      const colour = chartTools.seriesColour(i + 1);
      return {
        label: before.name, borderColor: colour, backgroundColor: colour,
        data: before[spec.earlier].map(([x, y]) => ({x, y})),
        borderWidth: 1.5, borderDash: [5, 3], pointRadius: 0, pointHitRadius: 8,
        spanGaps: true,
      };
    });
  }

  function datasets(spec) {
    return spec.lines.map((line, i) => {
      const colour = chartTools.seriesColour(i);
      return {
        label: spec.earlier && earlier.length ? 'now' : line[0],
        data: dataOf(line, spec.of), borderColor: colour,
        backgroundColor: spec.stacked ? colour + '99' : colour, borderWidth: 2,
        pointRadius: spec.of === 'evaluations' ? 3 : 0, pointHitRadius: 8,
        fill: spec.stacked ? 'stack' : false, spanGaps: true,
      };
    }).concat(datasetsOfEarlier(spec));
  }

  function draw(spec) {
    const canvas = chartTools.figure(get('charts'), spec.title,
                                     spec.title + ' against time');
    const yAxis = chartTools.axis(spec.y, {
      stacked: Boolean(spec.stacked),
      beginAtZero: Boolean(spec.from0 || spec.stacked)});
    if (spec.tick) yAxis.ticks = {...yAxis.ticks, callback: spec.tick};
    const xAxis = chartTools.axis('time', {});
    // Not several ticks of the same second.
    xAxis.ticks = {...xAxis.ticks, callback: duration, maxTicksLimit: 7, precision: 0};
    const chart = new Chart(canvas, {
      type: 'line',
      data: {datasets: datasets(spec)},
      options: {
        animation: false, responsive: true, maintainAspectRatio: false,
        interaction: {mode: 'index', intersect: false},
        scales: {x: xAxis, y: yAxis},
        plugins: {
          legend: spec.lines.length > 1 || (spec.earlier && earlier.length)
              ? chartTools.legend({}) : {display: false},
          tooltip: {callbacks: {
            title: (items) => duration(items[0].parsed.x),
            label: (item) => item.dataset.label + ': ' +
                             (spec.tick || figure)(item.parsed.y),
          }},
        },
      },
      plugins: [faultLines],
    });
    return {spec, chart, box: canvas.closest('figure')};
  }

  function drawAll() {
    get('charts').textContent = '';
    drawn = CHARTS.map(draw);
    updateCharts();
    return drawn.map((d) => d.chart);
  }

  function updateCharts() {
    for (const {spec, chart, box} of drawn) {
      const list = spec.of === 'evaluations' ? evaluations : points;
      const before = spec.earlier ? earlier.flatMap((e) => e[spec.earlier]) : [];
      box.hidden = !before.length &&
          !list.some((p) => spec.lines.some((line) => p[line[1]]));
      if (box.hidden) continue;
      spec.lines.forEach((line, i) => {
        chart.data.datasets[i].data = dataOf(line, spec.of);
      });
      if (spec.range) {
        // One value alone says nothing of a scale.
        const values = new Set(chart.data.datasets.flatMap((set) =>
            set.data.map((p) => p.y).filter(Number.isFinite)));
        const [low, high] = values.size < 2 ? spec.range : [];
        chart.options.scales.y.suggestedMin = low;
        chart.options.scales.y.suggestedMax = high;
      }
      const last = points.length ? points[points.length - 1].seconds : 1;
      chart.options.scales.x.min = 0;
      chart.options.scales.x.max = Math.max(last, 1, ...before.map(([x]) => x));
      chart.update('none');
    }
  }

  // The rest of the page.

  function setTile(name, value, label) {
    let tile = document.querySelector('[data-tile="' + name + '"]');
    if (!tile) {
      tile = element('div', undefined, 'tile');
      tile.dataset.tile = name;
      tile.append(element('b'), element('span'));
      get('tiles').append(tile);
    }
    tile.hidden = value === '';
    tile.firstChild.textContent = value;
    tile.lastChild.textContent = label || name;
  }

  function showTiles() {
    const now = job.now || {};
    const last = evaluations[evaluations.length - 1] || {};
    const step = now.step || 0;
    setTile('step', figure(step, 9),
            job.total_steps ? 'step of ' + figure(job.total_steps, 9) : 'step');
    setTile('running', duration(job.seconds));
    const pace = job.processes.map((p) => p.steps_per_second || 0)
                     .reduce((a, b) => Math.max(a, b), 0);
    const left = job.state === 'running' && job.total_steps && pace > 0
        ? (job.total_steps - step) / pace : null;
    setTile('left, about', left === null ? '' : duration(Math.max(left, 0)));
    const told = (figures, name) =>
        (figures.not_finite || []).includes(name) ? 'not finite' : figure(figures[name]);
    setTile('loss', told(now, 'loss'));
    setTile('accuracy', told(last, 'accuracy'));
    setTile('test loss', told(last, 'test_loss'));
    setTile('samples/s', now.samples_per_second ? figure(now.samples_per_second) : '');
    setTile('a step takes', seconds(now.compute_s + now.exposed_s + now.waiting_s +
                                    now.slowed_s || undefined));
    setTile('staleness', now.staleness ? figure(now.staleness, 3) : '');
    setTile('memory', now.resident_bytes ? bytes(now.resident_bytes) : '');
    const progress = get('progress');
    progress.hidden = !job.total_steps;
    progress.value = job.total_steps ? Math.min(step / job.total_steps, 1) : 0;
  }

  function showStatus() {
    const way = job.mode === 'ps' ? 'ps' + (job.sync ? '-' + job.sync : '')
        : job.mode || 'no job';
    const size = job.workers + (job.workers === 1 ? ' worker' : ' workers') +
        (job.servers ? ', ' + job.servers + (job.servers === 1 ? ' server' : ' servers') : '');
    const title = job.series ? job.series.title : way + ', ' + size;
    get('title').textContent = title;
    document.title = 'psring: ' + (job.series ? title : way);
    const failed = job.state === 'over' && job.result;
    const words = {
      forming: job.workers === 0 ? 'starts'
          : 'waits for processes to join: ' + job.processes.length + ' of ' +
            (job.workers + job.servers) + ' have',
      running: 'runs', over: failed ? 'has failed' : 'has ended',
    };
    const lost = !connected && !saved && job.state !== 'over';
    get('status').textContent = (saved ? 'as it was saved: ' : '') + words[job.state] +
        (lost ? '; its coordinator does not answer any more' : '');
    get('dot').className = 'dot ' + (failed || lost ? 'bad'
        : job.state === 'running' ? 'good' : '');
    get('fault').hidden = !failed;
    get('fault').textContent = job.result;
    const who = job.straggler.who;
    get('straggler').hidden = !who || job.state !== 'running';
    get('straggler').textContent = 'The straggler: ' + who + '. ' +
        Math.round(100 * job.straggler.share) +
        '% of the time that workers waited for each other lately was for it.';
  }

  function stateOf(p) {
    if (p.state === 'silent') return 'silent for ' + seconds(p.silent_s);
    if (p.waits_for) return 'waits at ' + p.doing + ' for ' + seconds(p.waiting_s) +
        ': for ' + p.waits_for;
    if (p.state === 'left') return 'has left';
    return p.state === 'works' ? p.doing
        : 'waits' + (p.doing ? ' at ' + p.doing : '');
  }

  function showProcesses() {
    const body = document.querySelector('#processes tbody');
    const rows = job.processes.map((p) => {
      const row = element('tr', undefined,
          p.state === 'silent' || p.waits_for ? 'bad' : p.state === 'left' ? 'left' : '');
      const name = element('th', p.role + ' ' + (p.rank < 0 ? '' : p.rank));
      name.scope = 'row';
      name.append(element('small', p.host + ', pid ' + p.pid));
      row.append(name, element('td', stateOf(p), 'text state'));
      const cells = [
        ['Step', figure(p.step, 9)],
        ['Samples/s', p.samples_per_second ? figure(p.samples_per_second) : ''],
        ['Compute', seconds(p.compute_s)], ['Exchange', seconds(p.exposed_s)],
        ['Sent', bytes(p.bytes_sent)], ['Received', bytes(p.bytes_received)],
        ['Memory', bytes(p.resident_bytes)],
      ];
      for (const [label, text] of cells) {
        const cell = element('td', text);
        cell.dataset.name = label;
        row.append(cell);
      }
      row.append(element('td', p.last_word, 'text word'));
      return row;
    });
    body.replaceChildren(...rows);
  }

  function showMarks() {
    get('marks').replaceChildren(...job.marks.slice().reverse().map((mark) => {
      const item = element('li');
      item.append(element('time', duration(mark.seconds)),
                  element('span', mark.text, mark.fault ? 'bad' : ''));
      return item;
    }));
  }

  function show() {
    showStatus();
    showTiles();
    showProcesses();
    showMarks();
    updateCharts();
  }

  // What /events tells: all of the job, and of the curves what is new.
  function take(news) {
    const curves = news.curves;
    points = points.slice(0, curves.first_point).concat(curves.points);
    evaluations = evaluations.slice(0, curves.first_evaluation)
                      .concat(curves.evaluations);
    job = news;
    if (news.series && news.series.earlier) {
      earlier = news.series.earlier;
      redraw();  // other lines, another legend
    }
    show();
  }

  function save() {
    const whole = {...job, curves: {first_point: 0, points, first_evaluation: 0, evaluations}};
    if (job.series) whole.series = {...job.series, earlier};
    const json = JSON.stringify(whole).replace(/</g, '\\u003c');
    const file = source.replace(EMPTY_SAVED, () => EMPTY_SAVED.replace('null', () => json));
    const link = document.createElement('a');
    link.href = URL.createObjectURL(new Blob([file], {type: 'text/html'}));
    link.download = 'psring-job.html';
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 60000);
    return file;
  }

  function listen() {
    const events = new EventSource('events?token=' + encodeURIComponent(token));
    events.onmessage = (event) => {
      connected = true;
      take(JSON.parse(event.data));
    };
    events.addEventListener('end', () => {
      // One that has failed may be started again here (--max-restarts).
      if (!job || !job.result) events.close();
      connected = false;
      if (job) show();
    });
    events.onerror = () => {  // the browser tries again by itself
      connected = false;
      if (job) showStatus();
      if (job && job.state === 'over' && !job.result) events.close();
    };
  }

  const redraw = chartTools.keepDrawn(drawAll);
  get('save').hidden = Boolean(saved);
  get('save').addEventListener('click', save);
  if (saved) take(saved); else listen();
  // For tests: what a click on the button saves.
  window.psringSave = save;
})();
