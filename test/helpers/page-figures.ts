import { appendFileSync } from 'node:fs'
import type { Page } from 'playwright-core'

/** Figures are appended to this file, a line of JSON per step. They depend on the machine and its load. */
const FIGURES = process.env.CONSOLE_FIGURES

/** Numbers of elements and requests do not depend on the machine. */
export interface Step {
  readonly name: string
  /** Elements of the document after the step. */
  readonly nodes: number
  /** Paths of the requests to the API of the console, without background refreshes of the list. */
  readonly requests: readonly string[]
}

interface Seen {
  readonly frames: readonly number[]
  readonly tasks: readonly number[]
  readonly nodes: number
}

const WATCH = `{
  const seen = { frames: [], tasks: [] }
  window.seenByTest = seen
  new PerformanceObserver((list) => {
    for (const { duration } of list.getEntries()) seen.tasks.push(Math.round(duration))
  }).observe({ type: 'longtask' })
  let last = performance.now()
  const frame = (now) => {
    seen.frames.push(Math.round(now - last))
    last = now
    requestAnimationFrame(frame)
  }
  requestAnimationFrame(frame)
}`
const START = 'seenByTest.frames.length = seenByTest.tasks.length = 0'
const READ = `({ ...seenByTest, nodes: document.getElementsByTagName('*').length })`

/** Resolves after this number of frames of the page. */
export function frames(page: Page, count: number): Promise<void> {
  return page.evaluate(`new Promise((resolve) => {
    let left = ${count}
    const frame = () => (left-- > 0 ? requestAnimationFrame(frame) : resolve())
    frame()
  })`)
}

/**
 * Watches a page: gaps between frames, tasks of 50 ms and more, processor time of the main thread, elements and
 * requests. Returns a function that runs one step.
 */
export async function watchPage(page: Page) {
  const asked: string[] = []
  page.on('request', (request) => {
    const [, path] = /\/console\/api\/(.*)/.exec(decodeURIComponent(request.url())) ?? []
    if (path !== undefined && !path.endsWith('_rows')) asked.push(path)
  })
  const devtools = await page.context().newCDPSession(page)
  await devtools.send('Performance.enable', { timeDomain: 'threadTicks' })
  await page.evaluate(WATCH)
  const processorMs = async () => {
    const { metrics } = await devtools.send('Performance.getMetrics')
    return (metrics.find(({ name }) => name === 'TaskDuration')?.value ?? 0) * 1_000
  }

  return async function step(name: string, run: () => Promise<unknown>): Promise<Step> {
    asked.length = 0
    const before = await processorMs()
    await page.evaluate(START)
    await run()
    await frames(page, 2)
    const { frames: gaps, tasks, nodes } = await page.evaluate<Seen>(READ)
    const line = {
      ...{ step: name, frames: gaps.length, worst_frame_ms: Math.max(...gaps) },
      frames_over_50_ms: gaps.filter((it) => it > 50).length,
      ...{ long_tasks: tasks.length, longest_task_ms: Math.max(0, ...tasks) },
      processor_ms: Math.round((await processorMs()) - before),
      ...{ nodes, requests: asked.length },
    }
    if (FIGURES) appendFileSync(FIGURES, `${JSON.stringify(line)}\n`)
    return { name, nodes, requests: [...asked] }
  }
}
