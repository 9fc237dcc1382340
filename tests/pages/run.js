// Opens Bobbin's pages in Chromium and checks what a user meets there: node run.js PLAN, where PLAN
// is a file of JSON that says where the pages are (xtask/src/pages.rs writes it). Prints what holds
// and what does not, and exits with 1 where something does not.

import { readFileSync, mkdirSync } from 'node:fs';
import { join } from 'node:path';
import { chromium } from 'playwright-core';

import { checkDashboard, checkSignIn } from './dashboard.js';
import { reachByKeyboard } from './keyboard.js';

const plan = JSON.parse(readFileSync(process.argv[2], 'utf8'));
const FLAGS = ['--no-sandbox', '--disable-gpu', '--disable-quic', '--no-first-run',
  '--disable-background-networking', '--disable-component-update', '--disable-sync'];
const WIDTHS = [1280, 400];
const SCHEMES = ['light', 'dark'];
const HEIGHT = 800;
const PICTURES_OF_FIRST = 15;
/** How many answers of the server a picture of the dashboard shows. */
const POINTS_SHOWN = 10;

/**
 * What axe looks at in the book: what is around the text is mdBook's own. The browser lets the
 * keyboard scroll what it finds too wide.
 */
const BOOK = { scope: 'main', rules: { 'scrollable-region-focusable': { enabled: false } } };

let faults = 0;

/** Notes whether something holds; `found` tells more where it does not. */
function check(what, holds, found) {
  if (!holds) faults += 1;
  console.log(`${holds ? 'ok     ' : 'FAULT  '} ${what}${holds || found === undefined ? '' : `: ${
    typeof found === 'string' ? found : JSON.stringify(found)}`}`);
}

/** A page in a browser of its own, which notes what goes wrong and where it asks. */
async function open(browser, address, { width = WIDTHS[0], scheme = SCHEMES[0], ...more } = {}) {
  const context = await browser.newContext({
    viewport: { width, height: HEIGHT }, colorScheme: scheme, ...more,
  });
  // As the browser's own, so that the page's policy does not keep them out.
  await context.addInitScript({ path: 'node_modules/axe-core/axe.min.js' });
  const page = await context.newPage();
  const [errors, requests] = [[], []];
  page.on('console', (message) => {
    if (['error', 'warning'].includes(message.type())) errors.push(message.text());
  });
  page.on('pageerror', (error) => errors.push(String(error)));
  page.on('request', (request) => requests.push(request.url()));
  await page.goto(address);
  return { context, page, errors, requests };
}

/** What holds of every page at each width and in each scheme. */
async function checkEverywhere(browser, name, address, settled,
  { scope = 'html', rules = {} } = {}) {
  const own = new URL(address);
  for (const width of WIDTHS) {
    for (const scheme of SCHEMES) {
      const { context, page, errors, requests } = await open(browser, address, { width, scheme });
      const where = `${name}, ${width} pixels, ${scheme}`;
      await settled(page);
      const file = `${name.replaceAll(/\W+/g, '-')}-${width}-${scheme}.png`;
      await page.screenshot({ path: join(plan.pictures, file), fullPage: true });
      const overflow = await page.evaluate(() => {
        const { scrollWidth, clientWidth } = document.documentElement;
        return scrollWidth - clientWidth;
      });
      check(`${where}: nothing to scroll sideways`, overflow <= 0, `${overflow} pixels`);
      const cut = await page.evaluate(cutTexts);
      check(`${where}: no text is cut`, cut.length === 0, cut);
      // What is folded away must be as good as the rest.
      await page.evaluate(() => document.querySelectorAll('details').forEach((it) => {
        it.open = true;
      }));
      await settled(page);
      // Sheets of files must not be asked for by scripts, so axe does not.
      const { violations } = await page.evaluate(([place, options]) =>
        window.axe.run(place, options), [scope, { rules, preload: false }]);
      check(`${where}: axe finds nothing`, violations.length === 0, violations.map((violation) => ({
        rule: violation.id,
        nodes: violation.nodes.map((node) => `${node.target} ${node.failureSummary}`).slice(0, 3),
      })));
      check(`${where}: no errors`, errors.length === 0, errors);
      const foreign = requests.filter((url) => {
        const { protocol, host } = new URL(url);
        return protocol !== 'data:' && (protocol !== own.protocol || host !== own.host);
      });
      check(`${where}: asks no other host`, requests.length > 0 && foreign.length === 0, foreign);
      await context.close();
    }
  }
}

/** Texts that are wider or higher than the box that hides the rest of them. */
function cutTexts() {
  const isCut = (element) => {
    const { overflowX, overflowY } = getComputedStyle(element);
    const hides = (overflow) => overflow === 'hidden' || overflow === 'clip';
    return element.clientWidth > 1 &&
      ((hides(overflowX) && element.scrollWidth > element.clientWidth + 1) ||
        (hides(overflowY) && element.scrollHeight > element.clientHeight + 1));
  };
  return Array.from(document.body.querySelectorAll('*')).filter(isCut)
    .map((element) => `${element.tagName} ${element.textContent.slice(0, 40)}`);
}

async function checkKeyboard(browser, name, address, settled) {
  for (const width of WIDTHS) {
    const { context, page } = await open(browser, address, { width });
    await settled(page);
    const { missed, unmarked, reached } = await reachByKeyboard(page);
    const where = `${name}, ${width} pixels`;
    check(`${where}: the keyboard reaches all ${reached} controls`,
      reached > 0 && missed.length === 0, missed);
    check(`${where}: the focus can be seen`, unmarked.length === 0, unmarked);
    await context.close();
  }
}

/** When the first figures are on the screen, in milliseconds after the address was entered. */
async function timeFirstPicture(browser, address) {
  const script = () => {
    const watch = new MutationObserver(() => {
      if (!document.querySelector('#tiles dd')?.textContent) return;
      watch.disconnect();
      // The frame that shows them has been drawn when the next one begins.
      requestAnimationFrame(() => requestAnimationFrame(() => {
        window.firstPictureMs = performance.now();
      }));
    });
    watch.observe(document, { childList: true, subtree: true, characterData: true });
  };
  const times = [];
  for (let round = 0; round < PICTURES_OF_FIRST; round += 1) {
    // Without axe, whose half a megabyte each page would read first.
    const context = await browser.newContext({ viewport: { width: WIDTHS[0], height: HEIGHT } });
    await context.addInitScript(script);
    const page = await context.newPage();
    await page.goto(address);
    await page.waitForFunction(() => window.firstPictureMs !== undefined);
    times.push(await page.evaluate(() => window.firstPictureMs));
    await context.close();
  }
  times.sort((a, b) => a - b);
  const shown = [times[0], times[times.length >> 1], times[times.length - 1]]
    .map((time) => Math.round(time));
  console.log(`        first figures of the dashboard after ${shown[1]} ms ` +
    `(median of ${times.length}; ${shown[0]} to ${shown[2]})`);
}

const isLive = (page) => page.waitForFunction(() =>
  document.querySelector('#state').textContent === 'Live' &&
  document.querySelectorAll('#hot-table tbody tr').length > 0 &&
  document.querySelectorAll('#heat-table tbody tr').length > 0);
/** With something to see in the charts. */
const isFilled = (page) => isLive(page).then(() => page.waitForFunction((wanted) =>
  document.querySelector('.plot polyline')?.points.length >= wanted, POINTS_SHOWN));
const isThere = (page) => page.waitForLoadState('load');

mkdirSync(plan.pictures, { recursive: true });
const browser = await chromium.launch({ executablePath: plan.browser, args: FLAGS });
try {
  const { dashboard, signIn, benchmark, book } = plan;
  await timeFirstPicture(browser, dashboard.address);
  await checkEverywhere(browser, 'dashboard', dashboard.address, isFilled);
  await checkKeyboard(browser, 'dashboard', dashboard.address, isLive);
  await checkDashboard(await open(browser, dashboard.address), dashboard, check);
  await checkSignIn((more) => open(browser, signIn.address, more), signIn, check);
  await checkEverywhere(browser, 'benchmark', benchmark, isThere);
  await checkKeyboard(browser, 'benchmark', benchmark, isThere);
  for (const [name, address] of Object.entries(book)) {
    await checkEverywhere(browser, `book ${name}`, address, isThere, BOOK);
  }
} finally {
  await browser.close();
}
console.log(faults === 0 ? `no faults; pictures are in ${plan.pictures}` : `${faults} faults`);
process.exit(faults === 0 ? 0 : 1);
