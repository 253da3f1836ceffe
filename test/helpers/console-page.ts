import type { Page } from 'playwright-core'
import { expect } from 'vitest'
import type { Secret } from '../../src/base/secret.ts'
import { accessibilityFindings, overflow, takePictures } from './chromium.ts'
import { eventually } from './eventually.ts'

export const PHONE = 360
export const DESK = 1280

/** A value that a page has instead of a text. */
const NO_TEXT = /\bundefined\b|\bNaN\b|\[object/

/** Placeholders that are wider than their fields. The browser keeps room for a button in a field for searches. */
const CUT_PLACEHOLDERS = `[...document.querySelectorAll('input[placeholder]')].filter((input) => {
  const { font, paddingLeft, paddingRight } = getComputedStyle(input)
  const canvas = document.createElement('canvas').getContext('2d')
  canvas.font = font
  const button = input.type === 'search' ? parseFloat(getComputedStyle(input).fontSize) : 0
  const room = input.clientWidth - parseFloat(paddingLeft) - parseFloat(paddingRight) - button
  return input.clientWidth > 0 && canvas.measureText(input.placeholder).width > room
}).map((input) => input.placeholder)`

/**
 * Holds for every view: nothing serious for axe, real texts, no cut placeholder, nothing beside the window of a
 * phone or a desk.
 */
export async function expectGoodView(page: Page, name: string) {
  await takePictures(page, { name, widths: [PHONE, DESK] })
  expect(await page.locator('body').textContent(), name).not.toMatch(NO_TEXT)
  expect(await accessibilityFindings(page), name).toEqual([])
  const own = page.viewportSize() ?? expect.fail('the page has no size')
  for (const width of [own.width === PHONE ? DESK : PHONE, own.width]) {
    await page.setViewportSize({ ...own, width })
    expect(await overflow(page), `${name} at ${width} px`).toBeLessThanOrEqual(0)
    expect(await page.evaluate(CUT_PLACEHOLDERS), `${name} at ${width} px`).toEqual([])
  }
}

/** A page gives up an answer after ten seconds, which a busy machine may need: it is opened again then. */
export async function signIn(page: Page, key: Secret) {
  const form = page.getByLabel('API key')
  const devices = page.getByRole('heading', { name: 'Devices', level: 1 })
  await eventually(async () => {
    await page.goto('/')
    await form.or(devices).waitFor({ timeout: 20_000 })
    if (await form.isVisible()) {
      await form.fill(key.reveal())
      await page.getByRole('button', { name: 'Sign in' }).click()
    }
    await devices.waitFor({ timeout: 30_000 })
  }, 150_000)
}

export async function goTo(page: Page, view: string) {
  await page.getByRole('navigation').getByRole('link', { name: view }).click()
  await page.getByRole('heading', { name: view, level: 1 }).waitFor()
}

export const button = (page: Page, name: string) => page.getByRole('button', { name, exact: true })
export const dialogButton = (page: Page, name: string) =>
  page.getByRole('dialog').getByRole('button', { name, exact: true })

export const field = (page: Page, label: string) =>
  page.getByRole('dialog').getByLabel(label, { exact: true })
export const heading = (page: Page, name: string) =>
  page.getByRole('heading', { name, exact: true })

/** Text of the focused element. */
export const focusedText = (page: Page) => page.evaluate<string>('document.activeElement.innerText')

/** Presses Tab until the focused element has this text. */
export async function tabTo(page: Page, text: string | RegExp) {
  for (let n = 0; n < 30; n += 1) {
    await page.keyboard.press('Tab')
    const focused = await focusedText(page)
    if (typeof text === 'string' ? focused === text : text.test(focused)) return
  }
  throw new Error(`Tab does not lead to ${text}`)
}

/** The line of an item in a list. */
export const line = (page: Page, name: string | RegExp) =>
  page.locator('.item-line').filter({
    has: page.locator('.item-name').getByText(name, { exact: true }),
  })

/** Shows the details of an item. */
export async function openLine(page: Page, name: string | RegExp) {
  const item = page.locator('.item').filter({ has: line(page, name) })
  if ((await line(page, name).getAttribute('aria-expanded')) === 'false') {
    await line(page, name).click()
  }
  await item.locator('.item-below > div').waitFor()
  return item
}
