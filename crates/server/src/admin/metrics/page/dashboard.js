
// Asks the server once a second for its figures and shows them. The server keeps no history: the
// page does.

/** Until the second answer: before it there are no rates. */
const FIRST_PERIOD_MS = 250;
/** Rates of tables are means over that many answers. */
const ANSWERS_KEPT = 6;
const EVENTS_MAX = 50;
const WAIT_MAX_MS = 5000;

/** The last answers of the server, the newest last. */
let answers = [];
/** What the page saw happen, the newest first. */
let seen = [];
let timer = 0;
let isAsking = false;
let isPaused = false;

// Latency.

/** The bounds of the server's histograms in microseconds. */
const BOUNDS = Array.from({ length: 30 }, (_, at) => {
  const step = at + 10;
  return Math.floor((2 ** step + 2 ** (step - 7) - 1) / 1000);
});

/** How many calls are in each range, from [bound, calls up to it]. */
function ranges(buckets) {
  const calls = BOUNDS.map(() => 0);
  let before = 0;
  for (const [bound, upTo] of buckets) {
    const at = BOUNDS.indexOf(bound);
    if (at >= 0) calls[at] = upTo - before;
    before = upTo;
  }
  return calls;
}

/** The calls of each command by range, between two answers. */
function callsBetween(before, after) {
  const old = new Map(before.commands.map((command) => [command.name, command.ranges]));
  const changes = new Map();
  for (const command of after.commands) {
    const was = old.get(command.name);
    // Fewer than before: the statistics began anew.
    const change = command.ranges.map((calls, at) => Math.max(0, calls - (was ? was[at] : 0)));
    if (change.some((calls) => calls > 0)) changes.set(command.name, change);
  }
  return changes;
}

/** The sum of what a point has of a command, or of all of them. */
function callsOf(point, name) {
  const sum = BOUNDS.map(() => 0);
  for (const [command, calls] of point.calls || []) {
    if (name === '' || name === command) calls.forEach((number, at) => { sum[at] += number; });
  }
  return sum;
}

/** The bound below which this share of the calls lies. */
function quantile(calls, share) {
  const all = calls.reduce((sum, number) => sum + number, 0);
  let seenCalls = 0;
  const at = calls.findIndex((number) => {
    seenCalls += number;
    return number > 0 && seenCalls >= all * share;
  });
  return at < 0 ? NaN : BOUNDS[at];
}

function drawHeat() {
  const name = byId('heat-command').value;
  const columns = points.map((point) => callsOf(point, name));
  const total = BOUNDS.map((_, at) => columns.reduce((sum, column) => sum + column[at], 0));
  const used = BOUNDS.map((_, at) => at).filter((at) => total[at] > 0);
  const low = used.length > 0 ? used[0] : 0;
  const high = Math.min(BOUNDS.length - 1, Math.max(low + 7, used[used.length - 1] || 0));
  const canvas = byId('heat');
  const { clientWidth: width, clientHeight: height } = canvas;
  const scale = window.devicePixelRatio || 1;
  canvas.width = width * scale;
  canvas.height = height * scale;
  const context = canvas.getContext('2d');
  context.scale(scale, scale);
  const style = getComputedStyle(document.documentElement);
  const colour = (property) => style.getPropertyValue(property);
  const [left, bottom] = [64, 22];
  const rowHeight = (height - bottom) / (high - low + 1);
  const rowTop = (at) => (high - at) * rowHeight;
  const now = points.length > 0 ? points[points.length - 1].time : 0;
  const x = (time) => left + (width - left) * (1 - (now - time) / HISTORY_MS);
  context.fillStyle = colour('--first');
  columns.forEach((column, number) => {
    const calls = column.reduce((sum, value) => sum + value, 0);
    // The first has no earlier one to begin at.
    if (calls === 0 || number === 0) return;
    const start = Math.max(left, x(points[number - 1].time));
    const end = x(points[number].time);
    for (let at = low; at <= high; at += 1) {
      if (column[at] === 0) continue;
      context.globalAlpha = 0.22 + 0.78 * Math.sqrt(column[at] / calls);
      context.fillRect(start, rowTop(at), Math.max(1, end - start), rowHeight - 1);
    }
  });
  context.globalAlpha = 1;
  context.fillStyle = colour('--quiet');
  context.font = '13px system-ui, sans-serif';
  context.textBaseline = 'middle';
  const every = rowHeight < 15 ? 2 : 1;
  for (let at = low; at <= high; at += every) {
    context.fillText(`≤ ${micros(BOUNDS[at])}`, 4, rowTop(at) + rowHeight / 2);
  }
  context.fillText('3 minutes ago', left, height - 10);
  context.textAlign = 'right';
  context.fillText('now', width - 4, height - 10);
  tellHeat(name, total, used);
}

/** The heat map in words and as a table. */
function tellHeat(name, total, used) {
  const calls = total.reduce((sum, number) => sum + number, 0);
  const of = name === '' ? 'all commands' : name;
  const answer = answers[answers.length - 1];
  if (calls === 0) {
    const isOff = answer && !answer.latency_tracking;
    say(byId('heat-summary'), isOff
      ? 'The server does not follow latencies (latency-tracking no).'
      : `No calls of ${of} since the page was opened.`);
  } else {
    const at = (share) => micros(quantile(total, share));
    say(byId('heat-summary'),
      `${count(calls)} calls of ${of} in the last minutes: half took at most ${at(0.5)}, 99 % at ` +
      `most ${at(0.99)}, 99.9 % at most ${at(0.999)}, the slowest at most ${at(1)}.`);
  }
  showHeat(`Calls of ${of} by the time that they took, last three minutes`, used.map((at) => [
    `${at === 0 ? 0 : micros(BOUNDS[at - 1])} to ${micros(BOUNDS[at])}`,
    whole(total[at]), percent(total[at] / calls),
  ]));
}

/** Offers each command of the answer once. */
function offerCommands(answer) {
  const select = byId('heat-command');
  const known = new Set(Array.from(select.options, (option) => option.value));
  for (const { name } of answer.commands) {
    if (known.has(name)) continue;
    const option = make('option', '', name);
    option.value = name;
    const others = Array.from(select.options).slice(1);
    select.insertBefore(option, others.find((other) => other.value > name) || null);
  }
}

// From answers to points.

const number = (answer, field) => Number(answer.info[field]);

/** How fast a field of INFO rises between two answers, in a second. */
function rate(before, after, field) {
  const rise = number(after, field) - number(before, field);
  const elapsed_s = (after.time_ms - before.time_ms) / 1000;
  return elapsed_s > 0 ? Math.max(0, rise) / elapsed_s : NaN;
}

function cpuShare(before, after) {
  return rate(before, after, 'used_cpu_user') + rate(before, after, 'used_cpu_sys');
}

function addAnswer(answer) {
  for (const command of answer.commands) command.ranges = ranges(command.buckets);
  let before = answers[answers.length - 1];
  if (before && before.info.run_id !== answer.info.run_id) {
    note(answer.time_ms, 'The server was started anew.');
    answers = [];
    before = undefined;
  }
  if (before && answer.time_ms <= before.time_ms) return;
  const point = {
    time: answer.time_ms,
    used: number(answer, 'used_memory'),
    resident: number(answer, 'used_memory_rss'),
    clients: number(answer, 'connected_clients'),
  };
  if (before) {
    point.commands = rate(before, answer, 'total_commands_processed');
    point.input = rate(before, answer, 'total_net_input_bytes');
    point.output = rate(before, answer, 'total_net_output_bytes');
    point.calls = callsBetween(before, answer);
    compareWith(before, answer);
  }
  points.push(point);
  points = points.filter(({ time }) => time > answer.time_ms - HISTORY_MS);
  answers = [...answers, answer].slice(-ANSWERS_KEPT);
}

// Events that the page sees.

function note(time_ms, text) {
  seen = [{ time_ms, level: 'seen here', text }, ...seen].slice(0, EVENTS_MAX);
}

/** Fields whose changes are events, with what to say of a change. */
const WATCHED = [
  ['role', (value) => `The server is a ${roleName(value)} now.`],
  ['master_link_status', (value) => `The link to the primary is ${value || 'gone'}.`],
  ['connected_slaves', (value, old) => `Replicas: ${value}, before ${old}.`],
  ['rdb_bgsave_in_progress', (value) => `A snapshot ${value === '1' ? 'begins' : 'has ended'}.`],
  ['rdb_last_bgsave_status', (value) => `The last snapshot's state is ${value}.`],
  ['aof_rewrite_in_progress',
    (value) => `A rewrite of the append-only file ${value === '1' ? 'begins' : 'has ended'}.`],
  ['aof_last_write_status', (value) => `Writing the append-only file: ${value}.`],
  ['rejected_connections', (value, old) => `Connections refused: ${value - old} more.`],
  ['evicted_clients', (value, old) => `Clients evicted: ${value - old} more.`],
  ['paused_reason', (value) => `Clients are paused: ${value}.`],
];

function compareWith(before, answer) {
  for (const [field, text] of WATCHED) {
    const [old, value] = [before.info[field], answer.info[field]];
    if (old !== value) note(answer.time_ms, text(value, old));
  }
  const wasEvicting = answers.length > 1 && number(before, 'evicted_keys') >
    number(answers[answers.length - 2], 'evicted_keys');
  if (number(answer, 'evicted_keys') > number(before, 'evicted_keys') && !wasEvicting) {
    note(answer.time_ms, 'Keys are evicted for want of memory.');
  }
}

const roleName = (role) => (role === 'slave' ? 'replica' : 'primary');

// What is shown.

let charts = [];
let showThreads, showHeat, showCommands, showMemory, showKeys, showTypes, showLargest, showHot,
  showSlow, showClients, showReplicas, showEvents, showDelays, showErrors;

/** Makes what is below the overview. The first figures do not wait for it. */
function build() {
  const on = 'throughput-charts';
  charts = [
    chart(on, 'Commands a second', [['Commands a second', 'commands']], count),
    chart(on, 'Network', [['Received', 'input'], ['Sent', 'output']], bytesPerSecond),
    chart(on, 'Connections', [['Connections of clients', 'clients']], count),
    chart('memory-charts', 'Memory over time',
      [['In use', 'used'], ['Of the process', 'resident']], bytes),
  ];
  showThreads = table('threads-table', [['Thread', 'text'], ['Load', 'text meter'],
    ['Processor', ''], ['Commands a second', ''], ['Connections', ''], ['Posts', ''],
    ['Backlog', '']]);
  showHeat = table('heat-table', [['Time', 'text'], ['Calls', ''], ['Share', '']]);
  showCommands = table('commands-table', [['Command', 'text'], ['Calls a second', ''],
    ['Time per call', ''], ['99 % at most', ''], ['Share of time', 'text meter'],
    ['Calls in all', ''], ['Failed', ''], ['Refused', '']]);
  showMemory = table('memory-table', [['Part', 'text'], ['Size', ''], ['Share', '']]);
  showKeys = table('keys-table', [['Database', 'text'], ['Keys', ''], ['That expire', ''],
    ['Mean time left', '']]);
  showTypes = table('types-table', [['Type', 'text'], ['Share of keys', 'text meter'],
    ['Keys, about', ''], ['Mean size', ''], ['Share of size', 'text meter']]);
  showLargest = table('largest-table', [['Key', 'text wide given'], ['Database', ''],
    ['Type', 'text'], ['Size', ''], ['Met', '']]);
  showHot = table('hot-table', [['Key', 'text wide given'], ['Time', ''],
    ['Share of time', 'text meter'], ['Network', ''], ['Share of network', 'text meter']]);
  showSlow = table('slow-table', [['Time', 'text'], ['Took', ''], ['Command', 'text wide given'],
    ['Client', 'text given'], ['Name', 'text given']]);
  showClients = table('clients-table', [['Client', 'text'], ['Address', 'text given'],
    ['Name', 'text given'], ['User', 'text given'], ['Last command', 'text'],
    ['Commands a second', ''], ['Commands', ''], ['Memory', ''], ['Unsent', ''], ['Idle', ''],
    ['Age', ''], ['Database', ''], ['Thread', ''], ['Flags', 'text'], ['Library', 'text given']]);
  showReplicas = table('replicas-table', [['Replica', 'text given'], ['State', 'text'],
    ['Behind', ''], ['Heard', '']]);
  showEvents = table('events-table', [['Time', 'text'], ['From', 'text'],
    ['Event', 'text wide given']]);
  showDelays = table('delays-table', [['Kind', 'text'], ['Last', 'text'], ['Took', ''],
    ['Longest', ''], ['Times', '']]);
  showErrors = table('errors-table', [['Error', 'text given'], ['Times', '']]);
  byId('heat-command').addEventListener('change', drawHeat);
  window.addEventListener('resize', drawHeat);
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', drawHeat);
}

function showOverview(answer, before) {
  tellIdentity(answer, before);
  tellOverview(answer, before);
}

/** Resolves when what was done before is on the screen, or would be if the page were visible. */
const nextPicture = () => new Promise((resolve) => {
  if (document.hidden) resolve();
  else requestAnimationFrame(() => setTimeout(resolve));
});

async function show() {
  const answer = answers[answers.length - 1];
  const before = answers.length > 1 ? answers[0] : undefined;
  showOverview(answer, before);
  tellRights(answer);
  if (charts.length === 0) {
    await nextPicture();
    build();
  }
  offerCommands(answer);
  charts.forEach((draw) => draw());
  drawHeat();
  tellThreads(answer, before);
  tellCommands(answer, before);
  tellMemory(answer);
  tellKeys(answer);
  tellTypes(answer);
  tellLargest(answer);
  tellHot(answer);
  tellSlow(answer);
  tellClients(answer, before);
  tellReplication(answer);
  tellPersistence(answer);
  tellEvents(answer);
}

function commandsPerSecond(answer, before) {
  return before ? rate(before, answer, 'total_commands_processed')
    : number(answer, 'instantaneous_ops_per_sec');
}

function tellIdentity(answer, before) {
  const { info } = answer;
  const role = roleName(info.role);
  say(byId('identity'), `Version ${info.bobbin_version}, ${role}, port ${info.tcp_port}, ` +
    `${info.io_driver}, up for ${seconds(Number(info.uptime_in_seconds))}`);
  document.title =
    `${count(commandsPerSecond(answer, before))}/s – Bobbin, port ${info.tcp_port}`;
}

function tellRights({ details, signed_in: isSignedIn }) {
  byId('sign-in').hidden = details;
  byId('signed-in').hidden = !isSignedIn;
}

function tellOverview(answer, before) {
  const { info } = answer;
  const from = before || answer;
  const [hits, misses] =
    ['keyspace_hits', 'keyspace_misses'].map((field) => rate(from, answer, field));
  const limit = Number(info.maxmemory);
  const databases = numbered(info, 'db').map(([, database]) => database);
  const sum = (field) => databases.reduce((all, database) => all + Number(database[field]), 0);
  facts(byId('tiles'), [
    ['Commands a second', count(commandsPerSecond(answer, before)),
      `${count(number(answer, 'total_commands_processed'))} in all`],
    ['Processor', percent(cpuShare(from, answer)),
      `100 % is a core; ${info.io_threads_active} threads`],
    ['Memory in use', bytes(Number(info.used_memory)),
      limit > 0 ? `of at most ${bytes(limit)}` : 'no limit'],
    ['Keys', count(sum('keys')), `${count(sum('expires'))} that expire`],
    ['Clients', count(Number(info.connected_clients)),
      `${info.blocked_clients} blocked, at most ${count(Number(info.maxclients))}`],
    ['Reads that found a key', percent(hits / (hits + misses)), 'of the last seconds'],
    ['Received', bytesPerSecond(rate(from, answer, 'total_net_input_bytes')),
      `${bytes(Number(info.total_net_input_bytes))} in all`],
    ['Sent', bytesPerSecond(rate(from, answer, 'total_net_output_bytes')),
      `${bytes(Number(info.total_net_output_bytes))} in all`],
    ['Errors a second', count(rate(from, answer, 'total_error_replies')),
      `${count(Number(info.total_error_replies))} in all`],
    ['Expired and evicted', count(rate(from, answer, 'expired_keys') +
      rate(from, answer, 'evicted_keys')), 'keys a second'],
  ]);
}

function tellThreads(answer, before) {
  const from = before || answer;
  const elapsed_s = (answer.time_ms - from.time_ms) / 1000;
  const old = new Map(numbered(from.info, 'worker_').map(([, worker]) => [worker.id, worker]));
  const workers = numbered(answer.info, 'worker_').map(([, worker]) => worker);
  showThreads(`Threads that serve clients: ${workers.length}`, workers.map((worker) => {
    const was = old.get(worker.id) || worker;
    const rise = (field) => Math.max(0, worker[field] - was[field]) / elapsed_s;
    return [`${worker.id} (${worker.driver})`, rise('busy_us') / 1e6,
      percent(rise('cpu_user') + rise('cpu_sys')), count(rise('commands')),
      worker.connections, worker.posts, bytes(Number(worker.backlog_bytes))];
  }));
}

function tellCommands(answer, before) {
  const from = before || answer;
  const elapsed_s = (answer.time_ms - from.time_ms) / 1000;
  const old = new Map(from.commands.map((command) => [command.name, command]));
  const rows = answer.commands.map((command) => {
    const was = old.get(command.name) || { calls: 0, us: 0, ranges: command.ranges };
    const [calls, us] = [command.calls - was.calls, command.us - was.us];
    const change = command.ranges.map((value, at) => Math.max(0, value - was.ranges[at]));
    return { command, calls, us, change };
  });
  const us_all = rows.reduce((sum, { us }) => sum + Math.max(0, us), 0);
  rows.sort((a, b) => b.us - a.us || b.command.us - a.command.us);
  const title = 'Commands by the time that they took in the last seconds';
  showCommands(`${title}${left(answer, 'commands')}`,
    rows.map(({ command, calls, us, change }) => [command.name, count(calls / elapsed_s),
      micros(calls > 0 ? us / calls : command.us / command.calls),
      micros(quantile(calls > 0 ? change : command.ranges, 0.99)), us_all > 0 ? us / us_all : 0,
      count(command.calls), count(command.failed), count(command.rejected)]));
}

/** What to add to a caption whose list is not complete. */
function left(answer, list) {
  const number = answer.left_out[list];
  return number > 0 ? `; ${count(number)} more are left out` : '';
}

function tellMemory({ info }) {
  const value = (field) => Number(info[field]);
  const used = value('used_memory');
  const replication = value('mem_total_replication_buffers');
  const parts = [
    ['Keys and values', value('used_memory_dataset')],
    ['Tables and the rest', value('used_memory_overhead') - value('used_memory_startup') -
      value('mem_clients_normal')],
    ['Clients', value('mem_clients_normal')],
    ['At the start', value('used_memory_startup')],
  ];
  const peak = bytes(value('used_memory_peak'));
  showMemory(`Memory in use: ${bytes(used)}, the most so far: ${peak}. ` +
    `Of the process: ${bytes(value('used_memory_rss'))}. Replication: ${bytes(replication)}. ` +
    `Lua: ${bytes(value('used_memory_vm_total'))}. When memory ends: ${info.maxmemory_policy}.`,
  parts.map(([name, size]) => [name, bytes(Math.max(0, size)), percent(Math.max(0, size) / used)]));
}

function tellKeys(answer) {
  const age_s = answer.keys_age_s;
  const age = age_s === null ? 'not counted yet' : `counted ${seconds(age_s)} ago`;
  const databases = numbered(answer.info, 'db');
  showKeys(databases.length > 0 ? `Keys by database, ${age}` : `There are no keys, ${age}.`,
    databases.map(([name, database]) => [name.slice(2), count(Number(database.keys)),
      count(Number(database.expires)),
      Number(database.avg_ttl) > 0 ? seconds(database.avg_ttl / 1000) : '–']));
}

function tellTypes(answer) {
  const { kinds } = answer.keys;
  const sum = (field) => kinds.reduce((all, kind) => all + kind[field], 0);
  const [keys, size] = [sum('keys'), sum('bytes')];
  const inAll = numbered(answer.info, 'db')
    .reduce((all, [, database]) => all + Number(database.keys), 0);
  byId('types-table').hidden = keys === 0;
  const of = keys < inAll ? `, by a sample of ${count(keys)} keys` : '';
  const about = (kind) => count(Math.round(inAll * kind.keys / keys));
  showTypes(`Keys by type${of}`, [...kinds].sort((a, b) => b.keys - a.keys).map((kind) => [
    kind.type, kind.keys / keys, about(kind), bytes(kind.bytes / kind.keys), kind.bytes / size]));
}

function tellLargest({ keys, details }) {
  byId('largest-table').hidden = keys.kinds.length === 0;
  showLargest(details ? 'The largest of the keys that were met in the last ten minutes'
    : `Large keys are not listed. ${WITHHELD}`,
  keys.largest.map((large) => [quoted(large.key), large.database, large.type, bytes(large.bytes),
    `${seconds(large.seen_s)} ago`]));
}

function tellHot({ hot_keys: hot, details }) {
  if (!hot.known) {
    showHot('Hot keys: nobody has the server look for them. ' +
      'HOTKEYS START METRICS 2 CPU NET does, or bobbin-cli --hotkeys.', []);
    return;
  }
  const all = new Map();
  for (const [at, list] of [hot.by_us, hot.by_bytes].entries()) {
    for (const [key, number] of list) {
      if (!all.has(key)) all.set(key, [NaN, NaN]);
      all.get(key)[at] = number;
    }
  }
  const length = seconds(hot.duration_ms / 1000);
  const title = hot.active ? `Hot keys of the last ${length}` : `Hot keys, of a look of ${length}`;
  showHot(details ? title : `Hot keys are not listed. ${WITHHELD}`,
    Array.from(all, ([key, [us, sent]]) => [quoted(key), micros(us), us / hot.us, bytes(sent),
      sent / hot.bytes]));
}

/** Why texts of clients are missing. */
const WITHHELD = 'The server shows them where no password is needed to read them, and to users ' +
  'with all rights that sign in.';

function tellSlow(answer) {
  const { slow, details } = answer;
  const limit = answer.slow_us < 0 ? 'the slow log is off'
    : `slow is ${micros(answer.slow_us)} or more`;
  const none = slow.length === 0 ? 'No slow commands' : 'The newest slow commands';
  const title = `${none}; ${limit}${left(answer, 'slow')}.`;
  showSlow(details ? title : `${title} Arguments and clients are left out. ${WITHHELD}`,
    slow.map((entry) => [moment(entry.time_s * 1000), micros(entry.us),
      entry.words.map(quoted).join(' '), entry.peer || '', entry.name || '']));
}

/** A word as a shell would want it. */
function quoted(word) {
  return word === '' || /[\s"']/.test(word) ? JSON.stringify(word) : word;
}

function tellClients(answer, before) {
  const { clients, details } = answer;
  const from = before || answer;
  const elapsed_s = (answer.time_ms - from.time_ms) / 1000;
  const old = new Map(from.clients.map((client) => [client.id, client]));
  const rows = clients.map((client) => {
    const was = old.get(client.id);
    // A client that is younger than the older answer had sent nothing then.
    const sent = was ? was.commands : client.age_s < elapsed_s ? 0 : NaN;
    return { client, rate: (client.commands - sent) / elapsed_s };
  });
  rows.sort((a, b) => (b.rate || 0) - (a.rate || 0) || b.client.memory - a.client.memory);
  showClients(details
    ? `Clients, the most active first${left(answer, 'clients')}`
    : `Clients are not listed. ${WITHHELD}`,
  rows.map(({ client, rate: perSecond }) => [client.id, client.address, client.name, client.user,
    client.command, count(perSecond), count(client.commands), bytes(client.memory),
    bytes(client.unsent), seconds(client.idle_s), seconds(client.age_s), client.database,
    client.thread, client.flags, client.library]));
}

function tellReplication({ info }) {
  const entries = [['Role', roleName(info.role)]];
  if (info.role === 'slave') {
    entries.push(['Primary', `${info.master_host}:${info.master_port}`],
      ['Link', info.master_link_status],
      ['Heard', `${seconds(Number(info.master_last_io_seconds_ago))} ago`]);
    if (info.master_sync_perc) entries.push(['Copy', `${info.master_sync_perc} %`]);
  }
  entries.push(['Replicas', info.connected_slaves],
    ['Stream', bytes(Number(info.master_repl_offset))],
    ['Backlog', bytes(Number(info.repl_backlog_histlen))]);
  facts(byId('replication-facts'), entries);
  const replicas = numbered(info, 'slave').map(([, replica]) => replica);
  byId('replicas-table').hidden = replicas.length === 0;
  showReplicas('Replicas', replicas.map((replica) => [`${replica.ip}:${replica.port}`,
    replica.state, bytes(Math.max(0, info.master_repl_offset - replica.offset)),
    `${seconds(Number(replica.lag))} ago`]));
}

function tellPersistence(answer) {
  const { info } = answer;
  const saved_s = answer.time_ms / 1000 - Number(info.rdb_last_save_time);
  const isSaving = info.rdb_bgsave_in_progress === '1';
  // Until there is one, the time is the server's start.
  const isNone = info.rdb_saves === '0' && info.rdb_last_bgsave_status === 'ok';
  const last = `${seconds(saved_s)} ago, ${info.rdb_last_bgsave_status}`;
  const entries = [
    ['Last snapshot', isNone ? 'none yet' : last],
    ['Changes since', count(Number(info.rdb_changes_since_last_save))],
    ['Snapshot at work', isSaving ? percent(info.current_save_keys_processed /
      Math.max(1, info.current_save_keys_total)) : 'none'],
    ['Append-only file', info.aof_enabled === '1' ? `on, ${info.aof_last_write_status}` : 'off'],
  ];
  if (info.aof_enabled === '1') {
    const rewrites = info.aof_rewrite_in_progress === '1' ? 'at work'
      : `${info.aof_rewrites}, ${info.aof_last_bgrewrite_status}`;
    entries.push(['Its size', `${bytes(Number(info.aof_current_size))}, ` +
      `${bytes(Number(info.aof_base_size))} after the last rewrite`],
    ['Rewrites', rewrites], ['Syncs delayed', info.aof_delayed_fsync]);
  }
  if (info.loading === '1') entries.push(['Loading', `${info.loading_loaded_perc} %`]);
  facts(byId('persistence-facts'), entries);
}

function tellEvents(answer) {
  const logged = answer.log.map((entry) => ({ ...entry, level: `log, ${entry.level}` }));
  const all = [...logged, ...seen].sort((a, b) => b.time_ms - a.time_ms).slice(0, EVENTS_MAX);
  const title =
    all.length === 0 ? 'No events since the page was opened' : 'Events, the newest first';
  showEvents(answer.details ? title : `${title}. The log is left out. ${WITHHELD}`,
    all.map(({ time_ms, level, text }) => [moment(time_ms), level, text]));
  const delays = answer.delays;
  byId('delays-table').hidden = delays.length === 0;
  showDelays('Delays that the latency monitor saw', delays.map((delay) => [delay.event,
    moment(delay.time_s * 1000), `${delay.last_ms} ms`, `${delay.longest_ms} ms`, delay.times]));
  const errors = Object.entries(answer.info)
    .filter(([name]) => name.startsWith('errorstat_'))
    .map(([name, value]) => [name.slice('errorstat_'.length), Number(pairs(value).count)])
    .sort((a, b) => b[1] - a[1]);
  byId('errors-table').hidden = errors.length === 0;
  showErrors('Errors by their first word', errors.map(([name, times]) => [name, count(times)]));
}

// Asking.

function setState(text, className) {
  const state = byId('state');
  say(state, text);
  state.className = className;
}

function isIdle() {
  return isPaused || document.hidden;
}

async function ask() {
  if (isAsking) return;
  isAsking = true;
  try {
    const options = { cache: 'no-store', signal: AbortSignal.timeout(WAIT_MAX_MS) };
    // Not where the page's own address may have a user's name and password: fetch refuses that.
    const status = new URL('status.json', location.origin + location.pathname);
    const response = await fetch(status, options);
    if (!response.ok) throw new Error(`answer ${response.status}`);
    addAnswer(await response.json());
    if (answers.length > 0) await show();
    if (!isPaused) setState('Live', '');
  } catch (error) {
    const last = answers[answers.length - 1];
    const since = last ? `since ${clock(last.time_ms)}` : 'yet';
    if (!isPaused) setState(`No answer ${since}`, 'bad');
    document.title = 'No answer – Bobbin';
    console.warn(error);
  }
  isAsking = false;
  plan();
}

function plan() {
  clearTimeout(timer);
  if (!isIdle()) timer = setTimeout(ask, answers.length < 2 ? FIRST_PERIOD_MS : PERIOD_MS);
}

function goOn() {
  clearTimeout(timer);
  if (!isIdle()) ask();
}

byId('pause').addEventListener('click', () => {
  isPaused = !isPaused;
  byId('pause').setAttribute('aria-pressed', String(isPaused));
  if (isPaused) setState('Paused', 'off');
  goOn();
});
document.addEventListener('visibilitychange', goOn);
// The page brings the first figures with it.
showOverview(JSON.parse(byId('first-figures').textContent));
ask();
