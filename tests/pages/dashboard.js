// What the dashboard shows of a server whose data and load are known, and what its controls do.

/** How long nothing must happen while the page is paused. */
const QUIET_MS = 2500;

/** Numbers and how the page writes them. */
const FORMATS = [
  ['count', 0, '0'], ['count', 7.25, '7.3'], ['count', 9.96, '10'], ['count', 12.6, '13'],
  ['count', 1000, '1,000'], ['count', 99999, '99,999'], ['count', 100000, '100K'],
  ['count', 123456, '123.5K'], ['count', 999949, '999.9K'], ['count', 999950, '1M'],
  ['count', 1234567890, '1.2B'], ['count', NaN, '–'],
  ['bytes', 0, '0 B'], ['bytes', 1023, '1,023 B'], ['bytes', 1536, '1.5 KiB'],
  ['bytes', 2 ** 30, '1 GiB'], ['bytes', 5000 * 2 ** 40, '5,000 TiB'],
  ['micros', 2.44, '2.4 µs'], ['micros', 581, '581 µs'], ['micros', 1500, '1.5 ms'],
  ['micros', 12345, '12 ms'], ['micros', 2500000, '2.5 s'],
  ['percent', 0.0123, '1.2 %'], ['percent', 2, '200 %'],
  ['seconds', 119, '119 s'], ['seconds', 3600, '60 min'], ['seconds', 864000, '10 days'],
];

export async function checkDashboard({ context, page, requests }, wanted, check) {
  const rows = (id) => page.$$eval(`#${id} tbody tr`, (all) => all.map((row) =>
    Array.from(row.cells, (cell) => cell.textContent)));
  const becomes = async (what, holds, argument) => {
    const found = await page.waitForFunction(holds, argument, { timeout: 30000 })
      .then(() => true, () => false);
    check(`dashboard: ${what}`, found);
  };

  const size = await page.evaluate(async () => (await (await fetch('/')).text()).length);
  check(`dashboard: the page has ${size} bytes, at most 100 KB`, size > 1000 && size <= 100000);

  const wrong = await page.evaluate((formats) => {
    const makers = { count, bytes, micros, percent, seconds };
    return formats.map(([maker, value, text]) => [makers[maker](value), text])
      .filter(([found, text]) => found !== text);
  }, FORMATS);
  check('dashboard: numbers have their units', wrong.length === 0, wrong);
  check('dashboard: a moment of another day has its date',
    await page.evaluate(() => moment(new Date(2026, 0, 2, 3, 4, 5).getTime())) ===
      '2026-01-02 03:04:05');

  // Figures that live.
  const total = () => page.textContent('#tiles div:first-child .note');
  const before = await total();
  await becomes('its figures change by themselves', (old) =>
    document.querySelector('#tiles div:first-child .note').textContent !== old, before);
  await becomes('a line is drawn in each chart', () =>
    Array.from(document.querySelectorAll('.plot svg'))
      .every((drawing) => drawing.querySelector('polyline')?.points.length > 2));
  await becomes('the heat map has coloured fields', () => {
    const canvas = document.querySelector('#heat');
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let coloured = 0;
    for (let at = 0; at < data.length; at += 4) {
      // Labels are grey, fields are blue.
      if (data[at + 3] > 0 && data[at + 2] > data[at] + 60) coloured += 1;
    }
    return coloured > 100;
  });
  await becomes('the heat map is a table, too', () =>
    document.querySelectorAll('#heat-table tbody tr').length > 1);
  await page.selectOption('#heat-command', 'get');
  await becomes('the heat map shows one command', () =>
    document.querySelector('#heat-summary').textContent.includes('calls of get'));

  // What is in the lists.
  for (const [id, column, expected] of wanted.shown) {
    // The end of a text may be left open.
    await becomes(`${id} shows ${JSON.stringify(expected)}`, ([table, at, text]) =>
      Array.from(document.querySelectorAll(`#${table} tbody tr`), (row) =>
        row.cells[at].textContent).some((found) => found === text ||
        (text.endsWith('…') && found.startsWith(text.slice(0, -1)))), [id, column, expected]);
  }
  const empty = await page.$$eval('section', (sections) => sections
    .filter((section) => !section.querySelector('tbody tr, dl div, polyline, canvas'))
    .map((section) => section.id));
  check('dashboard: no section is empty', empty.length === 0, empty);
  const threads = await rows('threads-table');
  check('dashboard: each thread has a row', threads.length === wanted.threads, threads);
  const html = await page.$$eval('img, iframe, script', (all) => all.length);
  check('dashboard: what clients say is no HTML', html === 1, `${html} elements`);

  // Its controls, by keyboard.
  await page.focus('.skip');
  await page.keyboard.press('Enter');
  check('dashboard: the first link skips to the figures',
    await page.evaluate(() => document.activeElement.id === 'main'));
  await page.focus('#pause');
  await page.keyboard.press('Space');
  await becomes('Space pauses it', () => document.querySelector('#state').textContent ===
    'Paused' && document.querySelector('#pause').getAttribute('aria-pressed') === 'true');
  const asked = () => requests.filter((url) => url.endsWith('/status.json')).length;
  // One may be under way.
  await page.waitForLoadState('networkidle');
  const atPause = asked();
  await page.waitForTimeout(QUIET_MS);
  check('dashboard: it asks for nothing while it is paused', asked() === atPause);
  await page.keyboard.press('Space');
  await becomes('Space lets it go on', () => document.querySelector('#state').textContent ===
    'Live');
  await page.focus('summary');
  const isOpen = () => page.$eval('details', (details) => details.open);
  const was = await isOpen();
  await page.keyboard.press('Enter');
  check('dashboard: Enter unfolds the table of the heat map', await isOpen() !== was);
  await context.close();
}

/** A server with a password shows figures; to a user with all rights it shows everything. */
export async function checkSignIn(open, { secret, user, password }, check) {
  const text = (page) => page.evaluate(() => document.body.textContent);
  const live = (page) => page.waitForFunction(() =>
    document.querySelector('#state').textContent === 'Live' &&
    document.querySelectorAll('#commands-table tbody tr').length > 0);

  const stranger = await open();
  await live(stranger.page);
  check('sign in: a stranger sees figures alone', !(await text(stranger.page)).includes(secret));
  check('sign in: a stranger is offered to sign in', await stranger.page.isVisible('#sign-in'));
  const [response] = await Promise.all([
    stranger.page.waitForResponse((answer) => answer.url().endsWith('/sign-in')),
    stranger.page.click('#sign-in').catch(() => {}),
  ]);
  const asks = await response.headerValue('www-authenticate');
  check('sign in: the browser asks for a name and a password',
    response.status() === 401 && asks.startsWith('Basic '), asks);
  await stranger.context.close();

  for (const [credentials, isRight] of [[password, true], [`${password}x`, false]]) {
    const { context, page } = await open({
      httpCredentials: { username: user, password: credentials },
    });
    await live(page);
    await page.click('#sign-in').catch(() => {});
    if (isRight) {
      await page.waitForURL((url) => url.pathname === '/');
      const shown = await page.waitForFunction((wanted) =>
        document.querySelector('#clients-table').textContent.includes(wanted), secret)
        .then(() => true, () => false);
      check('sign in: a user with all rights sees everything', shown);
      check('sign in: the page says so', await page.isVisible('#signed-in') &&
        !await page.isVisible('#sign-in'));
    } else {
      check('sign in: a wrong password opens nothing', !(await text(page)).includes(secret));
    }
    await context.close();
  }
}
