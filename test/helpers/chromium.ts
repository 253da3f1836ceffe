import { existsSync, readFileSync } from 'node:fs'
import { createRequire } from 'node:module'
import { join } from 'node:path'
import { type Browser, chromium, type Page } from 'playwright-core'
import { onTestFinished } from 'vitest'

const CHROMIUM = '/usr/bin/chromium'
const FLAGS = [
  '--no-sandbox',
  '--disable-gpu',
  '--disable-quic',
  '--no-first-run',
  '--disable-background-networking',
  '--disable-component-update',
  '--disable-sync',
]
const AXE = readFileSync(createRequire(import.meta.url).resolve('axe-core/axe.min.js'), 'utf8')
/** Pictures for whoever works on the looks are put there. */
const PICTURES = process.env.CONSOLE_PICTURES

export const hasChromium = existsSync(CHROMIUM)

type ColorScheme = 'light' | 'dark'

export function launchChromium(flags: readonly string[] = []): Promise<Browser> {
  return chromium.launch({ executablePath: CHROMIUM, args: [...FLAGS, ...flags] })
}

let shared: Promise<Browser> | undefined

/** One browser for all test files of a worker, ended with it: each page has a profile of its own. */
function sharedChromium(): Promise<Browser> {
  shared ??= launchChromium()
  return shared
}

export interface OpenPage {
  readonly page: Page
  /** What the browser complained about: errors, refused content, requests to other origins. */
  readonly complaints: string[]
}

/** A page in a browser profile of its own, closed with the running test. */
export async function openPage(width: number, baseUrl: string) {
  const browser = await sharedChromium()
  const context = await browser.newContext({
    baseURL: baseUrl,
    viewport: { width, height: 800 },
    hasTouch: width < 600,
    permissions: ['clipboard-read', 'clipboard-write'],
  })
  onTestFinished(() => context.close())
  context.setDefaultTimeout(60_000)
  const page = await context.newPage()
  const complaints: string[] = []
  page.on('pageerror', (error) => complaints.push(`thrown: ${error.message}`))
  page.on('console', (message) => {
    // Chromium logs every refusal of a request too; those are part of the walk.
    const isRefusal = message.text().startsWith('Failed to load resource')
    if (['error', 'warning'].includes(message.type()) && !isRefusal) complaints.push(message.text())
  })
  page.on('request', (request) => {
    const url = request.url()
    if (!url.startsWith(`${baseUrl}/`) && !url.startsWith('data:')) complaints.push(`asked ${url}`)
  })
  return { page, complaints } satisfies OpenPage
}

/** Everything serious that axe finds in the page as it stands, in both color schemes. */
export async function accessibilityFindings(page: Page): Promise<string[]> {
  if (!(await page.evaluate<boolean>("'axe' in window"))) await page.evaluate(AXE)
  const inScheme = async (colorScheme: ColorScheme, rules: object) => {
    await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
    const options = JSON.stringify({ ...rules, resultTypes: ['violations'] })
    return page.evaluate<string[]>(
      `axe.run(document, ${options}).then(({ violations }) => violations
        .filter(({ impact }) => impact === 'serious' || impact === 'critical')
        .flatMap(({ id, nodes }) => nodes.map(({ target, failureSummary }) =>
          '${colorScheme}: ' + id + ' ' + target + ' ' + failureSummary)))`,
    )
  }
  // The schemes differ in nothing but colors.
  const dark = await inScheme('dark', { runOnly: ['color-contrast'] })
  return [...dark, ...(await inScheme('light', {}))]
}

/** How far the page is wider than its window, in CSS pixels. */
export function overflow(page: Page): Promise<number> {
  return page.evaluate<number>('document.documentElement.scrollWidth - window.innerWidth')
}

/** Takes pictures of the page at these widths and in both color schemes, if `CONSOLE_PICTURES` is set. */
export async function takePictures(
  page: Page,
  { name, widths }: { name: string; widths: readonly number[] },
): Promise<void> {
  const size = page.viewportSize()
  if (!PICTURES || !size) return
  const fullPage = (await page.locator('dialog').count()) === 0
  for (const width of widths) {
    await page.setViewportSize({ ...size, width })
    // The skip link and the navigation have their place relative to the window.
    await page.evaluate('scrollTo(0, 0)')
    for (const colorScheme of ['dark', 'light'] as const) {
      await page.emulateMedia({ colorScheme, reducedMotion: 'reduce' })
      await page.screenshot({
        path: join(PICTURES, `${name}-${width}-${colorScheme}.png`),
        fullPage,
      })
    }
  }
  await page.setViewportSize(size)
}
