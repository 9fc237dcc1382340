// What a job queue does all day, with BullMQ's own scripts. Prints what was seen, in an order that is the same
// in each run, so that two servers can be compared: node run.js PORT.

import { FlowProducer, Queue, QueueEvents, UnrecoverableError, Worker } from 'bullmq';

const connection = { host: '127.0.0.1', port: Number(process.argv[2]), maxRetriesPerRequest: null };
const sleep = (ms) => new Promise((done) => setTimeout(done, ms));
const open = [];
const keep = (thing) => {
  open.push(thing);
  thing.on('error', (error) => console.log('ERROR', error.message));
  return thing;
};
const show = (name, value) => console.log(`${name}: ${JSON.stringify(value)}`);
const sorted = (values) => [...values].sort();

// Runs all jobs of a queue, until `count` have ended.
async function work(queue, count, handler, options = {}) {
  const ended = [];
  const worker = keep(new Worker(queue.name, handler, { connection, ...options }));
  await new Promise((done) => {
    const note = (job, how) => {
      ended.push(`${job?.name} ${how}`);
      if (ended.length === count) done();
    };
    worker.on('completed', (job) => note(job, 'completed'));
    worker.on('failed', (job, error) => {
      if (!job || job.attemptsMade >= (job.opts.attempts ?? 1) || error instanceof UnrecoverableError) {
        note(job, `failed: ${error.message}`);
      }
    });
  });
  await worker.close();
  return ended;
}

const queue = (name) => keep(new Queue(name, { connection }));

async function plain() {
  const jobs = queue('plain');
  await jobs.add('one', { n: 1 });
  await jobs.addBulk([2, 3, 4, 5].map((n) => ({ name: `bulk${n}`, data: { n } })));
  show('plain counts', await jobs.getJobCounts());
  const order = [];
  const ended = await work(jobs, 5, async (job) => {
    order.push(job.name);
    await job.updateProgress(50);
    await job.log('working');
    return job.data.n * 2;
  });
  show('plain order', order);
  show('plain ended', ended);
  const completed = await jobs.getCompleted();
  show('plain results', completed.map((job) => [job.name, job.returnvalue, job.progress]));
  show('plain log', await jobs.getJobLogs(completed[0].id));
  show('plain state', await completed[0].getState());
}

async function priorities() {
  const jobs = queue('priorities');
  for (const [name, priority] of [['low', 10], ['high', 1], ['middle', 5], ['none', 0], ['high2', 1]]) {
    await jobs.add(name, {}, { priority });
  }
  show('priorities counts', await jobs.getJobCounts());
  show('priorities per', await jobs.getCountsPerPriority([0, 1, 5, 10]));
  const order = [];
  await work(jobs, 5, async (job) => order.push(job.name));
  show('priorities order', order);
  await jobs.add('lifo1', {}, { lifo: true });
  await jobs.add('lifo2', {}, { lifo: true });
  const reversed = [];
  await work(jobs, 2, async (job) => reversed.push(job.name));
  show('lifo order', reversed);
}

async function delays() {
  const jobs = queue('delays');
  const added = Date.now();
  await jobs.add('later', {}, { delay: 600 });
  await jobs.add('soon', {}, { delay: 200 });
  await jobs.add('now', {});
  const never = await jobs.add('never', {}, { delay: 600000 });
  show('delays counts', await jobs.getJobCounts());
  const order = [];
  await work(jobs, 3, async (job) => order.push([job.name, Date.now() - added >= (job.opts.delay ?? 0)]));
  show('delays order', order);
  await never.changeDelay(1);
  await work(jobs, 1, async (job) => order.push(job.name));
  show('delays changed', order.at(-1));
  const promoted = await jobs.add('promoted', {}, { delay: 600000 });
  await promoted.promote();
  show('promoted state', await promoted.getState());
  await promoted.remove();
  show('removed', await jobs.getJob(promoted.id) === undefined);
}

async function retries() {
  const jobs = queue('retries');
  await jobs.add('third', {}, { attempts: 3, backoff: { type: 'fixed', delay: 50 } });
  await jobs.add('never', {}, { attempts: 2, backoff: { type: 'exponential', delay: 20 } });
  await jobs.add('fatal', {}, { attempts: 5 });
  const ended = await work(jobs, 3, async (job) => {
    if (job.name === 'fatal') throw new UnrecoverableError('fatal');
    if (job.name === 'never' || job.attemptsMade < 2) throw new Error(`attempt ${job.attemptsMade}`);
    return job.attemptsMade;
  });
  show('retries ended', sorted(ended));
  const failed = await jobs.getFailed();
  show('retries failed', sorted(failed.map((job) => `${job.name} ${job.attemptsMade} ${job.failedReason}`)));
  await failed.find((job) => job.name === 'never').retry();
  show('retried', await work(jobs, 1, async () => 'at last'));
  show('retries counts', await jobs.getJobCounts());
}

async function limits() {
  const jobs = queue('limits');
  await jobs.addBulk([1, 2, 3, 4, 5, 6].map((n) => ({ name: `job${n}`, data: {} })));
  const times = [];
  const ended = await work(jobs, 6, async () => times.push(Date.now()), {
    limiter: { max: 2, duration: 300 },
  });
  show('limits ended', ended.length);
  show('limits kept', times[5] - times[0] >= 500);
  const wide = queue('wide');
  await wide.addBulk([1, 2, 3, 4].map((n) => ({ name: `job${n}`, data: {} })));
  let [now, most] = [0, 0];
  await work(wide, 4, async () => {
    most = Math.max(most, ++now);
    await sleep(100);
    now--;
  }, { concurrency: 4 });
  show('concurrency', most);
  await wide.setGlobalConcurrency(1);
  await wide.addBulk([1, 2, 3].map((n) => ({ name: `job${n}`, data: {} })));
  most = 0;
  await work(wide, 3, async () => {
    most = Math.max(most, ++now);
    await sleep(50);
    now--;
  }, { concurrency: 4 });
  show('global concurrency', most);
}

async function repeated() {
  const jobs = queue('repeated');
  await jobs.upsertJobScheduler('every', { every: 200, limit: 3 }, { name: 'tick', data: { a: 1 } });
  show('schedulers', (await jobs.getJobSchedulers()).map((it) => [it.key, it.name, it.every]));
  show('repeated', await work(jobs, 3, async (job) => job.data.a));
  await jobs.upsertJobScheduler('cron', { pattern: '0 0 3 * * *' }, { name: 'nightly' });
  show('cron delayed', (await jobs.getDelayed()).filter((job) => job.name === 'nightly').length);
  show('cron removed', await jobs.removeJobScheduler('cron'));
  show('schedulers left', (await jobs.getJobSchedulers()).map((it) => it.key));
}

async function flows() {
  const producer = keep(new FlowProducer({ connection }));
  const tree = await producer.add({
    name: 'parent',
    queueName: 'parents',
    data: {},
    children: [
      { name: 'child1', queueName: 'children', data: { n: 1 } },
      {
        name: 'child2',
        queueName: 'children',
        data: { n: 2 },
        children: [{ name: 'grandchild', queueName: 'children', data: { n: 4 } }],
      },
    ],
  });
  show('flow state', await tree.job.getState());
  const children = queue('children');
  const order = [];
  await work(children, 3, async (job) => {
    order.push(job.name);
    const below = Object.values(await job.getChildrenValues());
    return job.data.n + below.reduce((a, b) => a + b, 0);
  });
  show('flow children', [sorted(order.slice(0, 2)), order[2]]);
  const parents = queue('parents');
  let values;
  await work(parents, 1, async (job) => {
    values = sorted(Object.values(await job.getChildrenValues()));
  });
  show('flow values', values);
  const failing = await producer.add({
    name: 'parent',
    queueName: 'parents',
    children: [{ name: 'bad', queueName: 'children', opts: { failParentOnFailure: true } }],
  });
  await work(children, 1, async () => {
    throw new Error('bad child');
  });
  const worker = keep(new Worker('parents', async () => 1, { connection }));
  for (let i = 0; i < 100 && await failing.job.getState() !== 'failed'; i++) await sleep(50);
  show('flow failed', await failing.job.getState());
  await worker.close();
}

async function stalled() {
  const jobs = queue('stalled');
  const dying = keep(new Worker('stalled', undefined, { connection, lockDuration: 300, skipLockRenewal: true }));
  await jobs.add('dropped', {});
  const job = await dying.getNextJob('lost');
  show('stalled taken', [job.name, await job.getState()]);
  await dying.close(true);
  const seen = [];
  const events = keep(new QueueEvents('stalled', { connection }));
  await events.waitUntilReady();
  events.on('stalled', () => seen.push('stalled'));
  const ended = await work(jobs, 1, async () => 'again', { stalledInterval: 300, maxStalledCount: 1 });
  for (let i = 0; i < 50 && seen.length === 0; i++) await sleep(20);
  show('stalled ended', [ended, seen]);
}

async function upkeep() {
  const jobs = queue('upkeep');
  await jobs.addBulk([1, 2, 3, 4, 5].map((n) => ({ name: `job${n}`, data: {} })));
  await jobs.pause();
  show('paused', [await jobs.isPaused(), await jobs.getJobCounts('paused', 'waiting')]);
  await jobs.resume();
  await jobs.add('same', {}, { jobId: 'unique' });
  await jobs.add('same', {}, { jobId: 'unique' });
  show('unique', await jobs.count());
  await jobs.add('once', {}, { deduplication: { id: 'd', ttl: 60000 } });
  await jobs.add('once', {}, { deduplication: { id: 'd', ttl: 60000 } });
  show('deduplicated', await jobs.count());
  // From the first event on: one that comes before the first read would not be heard of.
  const events = keep(new QueueEvents('upkeep', { connection, lastEventId: '0' }));
  await events.waitUntilReady();
  const waited = await jobs.add('waited', {});
  const finished = waited.waitUntilFinished(events, 20000);
  await work(jobs, 8, async (job) => (job.name === 'waited' ? 'done' : 1), {
    removeOnComplete: { count: 3 },
  });
  show('waited', await finished);
  show('kept', (await jobs.getJobCounts()).completed);
  show('cleaned', (await jobs.clean(0, 2, 'completed')).length);
  await jobs.add('rest', {});
  await jobs.drain();
  show('drained', await jobs.count());
  await jobs.obliterate({ force: true });
  show('obliterated', await jobs.getJobCounts());
  show('metrics', (await jobs.getMetrics('completed')).count);
}

for (const part of [plain, priorities, delays, retries, limits, repeated, flows, stalled, upkeep]) {
  const timer = setTimeout(() => {
    console.log(`${part.name}: takes too long`);
    process.exit(1);
  }, 60000);
  await part();
  clearTimeout(timer);
}
await Promise.allSettled(open.map((thing) => thing.close()));
process.exit(0);
