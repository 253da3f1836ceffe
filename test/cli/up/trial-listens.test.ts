import { once } from 'node:events'
import { createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { findTrialListens } from '../../../src/cli/up/trial-listens.ts'
import { lastingAddress } from '../../helpers/some-ports.ts'

/** A port of the address that another program has, and nobody anywhere else. */
async function takenAt(host: string): Promise<number> {
  const { port } = lastingAddress()
  const other = createServer().listen(port, host)
  await once(other, 'listening')
  onTestFinished(() => void other.close())
  return port
}

it('takes one port for visitors at all addresses, another for HTTPS, and one for each peer', async () => {
  const { hosts, http, https, peers } = await findTrialListens(3, { http: 0, https: 0 })
  expect(hosts).toEqual(['127.0.0.1', '127.0.0.2', '127.0.0.3'])
  expect(peers).toHaveLength(3)
  for (const port of [http, https, ...peers]) expect(port).toBeGreaterThan(0)
  expect(https).not.toBe(http)
})

it('takes the usual ports where they are free, and again when they are once more', async () => {
  const [http, https] = [lastingAddress().port, lastingAddress().port]
  expect(await findTrialListens(3, { http, https })).toMatchObject({ http, https })
  expect(await findTrialListens(3, { http, https })).toMatchObject({ http, https })
})

it('takes no port that another program has at any of the addresses', async () => {
  const http = await takenAt('127.0.0.3')
  expect((await findTrialListens(2, { http, https: 0 })).http).toBe(http)
  expect((await findTrialListens(3, { http, https: 0 })).http).not.toBe(http)
})
