import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { PageServer } from '../../../src/api/page/page-server.ts'
import { captureLog } from '../../helpers/captured-log.ts'
import { eventually } from '../../helpers/eventually.ts'
import { ManualClock } from '../../helpers/manual-clock.ts'

async function occupy() {
  const server = createServer().listen(0, '127.0.0.1')
  await once(server, 'listening')
  return { server, port: (server.address() as AddressInfo).port }
}

function pageOn(port: number) {
  const clock = new ManualClock()
  const { log, lines } = captureLog()
  const page = new PageServer({
    listener: (_request, response) => response.end('page'),
    target: { host: '127.0.0.1', port },
    log,
    clock,
  })
  onTestFinished(() => page.stop())
  return { page, clock, lines }
}

it('tries again until its address is free, and says it once', async () => {
  const { server, port } = await occupy()
  const { page, clock, lines } = pageOn(port)
  await page.start()
  expect(page.address).toBeUndefined()
  const seen = () => lines.filter(({ msg }) => msg === 'device page not available yet')
  await eventually(async () => {
    await clock.advance(10_000)
    expect(seen().length).toBeGreaterThan(2)
  })
  server.close()
  await once(server, 'close')
  await eventually(async () => {
    await clock.advance(10_000)
    expect(page.address).toEqual({ host: '127.0.0.1', port })
  })
  expect(await (await fetch(`http://127.0.0.1:${port}/`)).text()).toBe('page')
  expect(seen().filter(({ level }) => level === 'error')).toEqual([
    expect.objectContaining({ remedy: expect.stringContaining('AGENT_PAGE_LISTEN') }),
  ])
})

it('ends while it waits for its address', async () => {
  const { server, port } = await occupy()
  onTestFinished(() => void server.close())
  const { page } = pageOn(port)
  await page.start()
  await page.stop()
  expect(page.address).toBeUndefined()
})
