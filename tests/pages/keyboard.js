// What a user reaches by the Tab key.

const STEPS_MAX = 500;

/** Presses Tab until the focus has been everywhere, and tells what it has not met. */
export async function reachByKeyboard(page) {
  const wanted = await page.evaluate(() => {
    const controls = 'a[href], button, select, input, textarea, summary, [tabindex="0"]';
    const isThere = (element) => element.checkVisibility({ visibilityProperty: true }) &&
      !element.disabled;
    const all = Array.from(document.querySelectorAll(controls)).filter(isThere);
    all.forEach((element, at) => { element.dataset.tested = String(at); });
    return all.map((element) => `${element.tagName} ${element.textContent.trim().slice(0, 40)}`);
  });
  await page.evaluate(() => document.activeElement.blur());
  const [met, unmarked] = [new Set(), []];
  for (let step = 0; step < STEPS_MAX && met.size < wanted.length; step += 1) {
    await page.keyboard.press('Tab');
    const { at, isMarked } = await page.evaluate(() => {
      const element = document.activeElement;
      const { outlineStyle, outlineWidth } = getComputedStyle(element);
      return {
        at: element.dataset.tested,
        isMarked: outlineStyle !== 'none' && parseFloat(outlineWidth) > 0,
      };
    });
    if (at === undefined) continue;
    met.add(Number(at));
    if (!isMarked) unmarked.push(wanted[at]);
  }
  return { reached: wanted.length, missed: wanted.filter((_, at) => !met.has(at)), unmarked };
}
