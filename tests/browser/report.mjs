// Opens a report in Chromium and uses it as a person would.
//
//   npm install playwright-core
//   node PATH/TO/tests/browser/report.mjs REPORT.html [CHROMIUM]
//
// playwright-core is looked for from the current directory. CHROMIUM is the browser's program,
// else the variable CHROMIUM names it, else it is /usr/bin/chromium. Any report will do, and a
// hostile one should do as well:
//
//   cargo run -p tenure-report --example sample -- 200 hostile > hostile.html
//
// Prints one line a check; exit 1 when one fails, 2 when nothing could be checked.
import { createRequire } from "node:module";
import { join, resolve } from "node:path";
import { pathToFileURL } from "node:url";

const [file, browserPath = process.env.CHROMIUM || "/usr/bin/chromium"] = process.argv.slice(2);
if (!file) {
  console.error("usage: node report.mjs REPORT.html [CHROMIUM]");
  process.exit(2);
}

let failures = 0;
function check(what, ok, seen) {
  console.log(`${ok ? "ok  " : "FAIL"} ${what}${ok ? "" : `: ${JSON.stringify(seen)}`}`);
  if (!ok) failures++;
}

async function run(browser) {
  const page = await browser.newPage({ viewport: { width: 1400, height: 1000 }, colorScheme: "light" });
  const errors = [];
  const requests = [];
  page.on("console", (m) => m.type() === "error" && errors.push(m.text()));
  page.on("pageerror", (e) => errors.push(String(e)));
  page.on("dialog", (d) => (errors.push(`dialog: ${d.message()}`), d.dismiss()));
  page.on("request", (r) => requests.push(r.url()));
  await page.goto(pathToFileURL(resolve(file)).href);
  const frame = () => page.evaluate(() => new Promise((done) => requestAnimationFrame(() => requestAnimationFrame(done))));
  await frame();

  const report = JSON.parse(await page.locator("#report").textContent());
  const arena = report.arenas[0];
  const visible = (id) => page.locator(id).isVisible();
  const text = async (id) => (await page.locator(id).allTextContents()).join(" ");
  // The page shows no control characters and no marks that turn the order of a line.
  const shown = (name) => name.replace(/[\p{Cc}\p{Cf}\u2028\u2029]/gu, "\ufffd");

  check("asks for nothing but the file", requests.length === 1, requests);
  check("has a figure for the arena", (await text("#figures")).includes("Arena"));
  check("starts at the peak", (await text("#step h2")).replace(/\s/g, "").startsWith(`Step${arena.peak.step}of`), await text("#step h2"));
  const rows = await page.locator("#holders tr").count();
  check("lists the holders at the peak", rows === Math.min(arena.holders.length, 200), rows);

  // A storage of the peak, picked from the table.
  await page.locator("#holders button").first().click();
  await frame();
  const storage = report.storages[arena.holders[0]];
  const member = storage.members.findLast((m) => m.made === null || m.made <= arena.peak.step) || storage.members[0];
  const name = shown(member.name);
  check("pins the storage that is clicked in the table", (await text("#details .title")) === name, await text("#details .title"));
  const outline = await page.locator("#map .outline.pinned").first().boundingBox();
  check("outlines the pinned storage", outline !== null && outline.width > 0, outline);

  const middle = [outline.x + outline.width / 2, outline.y + outline.height / 2];
  await page.mouse.move(...middle);
  await frame();
  check("shows a tooltip over its rectangle", await visible("#tip"));
  const names = storage.members.map((m) => shown(m.name).slice(0, 40));
  const tip = await text("#tip b");
  check("the tooltip has its name", names.some((n) => tip.startsWith(n)), tip.slice(0, 100));
  check("both charts show the step under the pointer", (await page.locator(".cross").count()) === 2);

  // Zoom: both charts show the same steps before and after.
  const stepMarks = (id) => page.locator(`${id} text[text-anchor=middle]:not(.peak)`).allTextContents();
  const before = await stepMarks("#map");
  for (let i = 0; i < 4; i++) await page.mouse.wheel(0, -400);
  await frame();
  const after = await stepMarks("#map");
  check("the wheel zooms", report.steps.length < 8 || after.join() !== before.join(), after);
  check("both charts zoom together", after.join() === (await stepMarks("#load")).join(), after);
  const place = await page.locator("#map .outline.pinned").first().boundingBox();
  await page.mouse.down();
  await page.mouse.move(middle[0] + 60, middle[1] + 5, { steps: 4 });
  await page.mouse.up();
  await frame();
  check("dragging keeps the pin", await visible("#details"), place);
  await page.keyboard.press("0");
  await frame();
  check("0 shows everything again", (await stepMarks("#map")).join() === before.join(), await stepMarks("#map"));

  // Search.
  const wanted = report.storages[0].members[0].name.slice(0, 30).toLowerCase();
  const matching = report.storages.filter((s) => s.members.some((m) => m.name.toLowerCase().includes(wanted.trim()))).length;
  await page.keyboard.press("/");
  await page.keyboard.insertText(wanted);
  await frame();
  const found = (await text("#found")).replace(/\s/g, "");
  check("search counts what it finds", found.startsWith(`${matching}of`), found);
  if (await page.locator("#map rect[data-storage]").count()) {
    const lit = await page.locator("#map rect[data-storage]:not(.faded)").evaluateAll((all) => new Set(all.map((e) => e.dataset.storage)).size);
    const inArena = report.storages.filter((s) => s.arena === 0 && s.size && s.members.some((m) => m.name.toLowerCase().includes(wanted.trim()))).length;
    check("search fades the others", lit === inArena, [lit, inArena]);
  }
  await page.keyboard.press("Enter");
  await frame();
  check("Enter goes to what was found", await visible("#details"));
  await page.keyboard.press("Escape");
  await frame();
  check("Escape ends the search", (await text("#found")) === "", await text("#found"));

  // Keys on the map.
  await page.locator("#map").focus();
  await page.keyboard.press("p");
  await page.keyboard.press("ArrowLeft");
  await page.keyboard.press("ArrowRight");
  await page.keyboard.press("ArrowUp");
  await frame();
  check("arrows walk over steps and storages", await visible("#details"));
  await page.keyboard.press("Escape");
  await frame();
  check("Escape lets go", !(await visible("#details")));

  // Dark.
  const paper = () => page.evaluate(() => getComputedStyle(document.body).backgroundColor);
  const light = await paper();
  await page.emulateMedia({ colorScheme: "dark" });
  check("has a dark theme", (await paper()) !== light, light);
  for (const width of [900, 2500]) {
    await page.setViewportSize({ width, height: 1000 });
    await frame();
    const over = await page.evaluate(() => document.documentElement.scrollWidth - innerWidth);
    check(`fits ${width} pixels`, over <= 0, over);
  }
  check("reports no errors", errors.length === 0, errors);
}

let browser;
try {
  const { chromium } = createRequire(join(process.cwd(), "here.js"))("playwright-core");
  browser = await chromium.launch({
    executablePath: browserPath,
    args: ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking", "--disable-component-update", "--disable-sync"],
  });
} catch (e) {
  console.error(`cannot start the browser: ${e.message}`);
  process.exit(2);
}
try {
  await run(browser);
} catch (e) {
  console.log(`FAIL ${e.stack}`);
  failures++;
} finally {
  await browser.close();
}
process.exit(failures ? 1 : 0);
