import { setTimeout as sleep } from 'node:timers/promises'
import { expect, it, onTestFinished } from 'vitest'
import { startEchoUpstream } from '../helpers/echo-upstream.ts'
import { Site } from '../helpers/site.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

const HOST = 'limited.site.localhost'
const POLICY = {
  on_http_request: [
    {
      actions: [
        {
          type: 'rate-limit',
          config: {
            name: '30 per minute and client',
            algorithm: 'sliding_window',
            capacity: 30,
            rate: '60s',
            bucket_key: ['conn.client_ip'],
          },
        },
      ],
    },
  ],
}

it('lets a client in again after as many seconds as it was told, in real time', async () => {
  const upstream = await startEchoUpstream()
  onTestFinished(() => upstream.close())
  const site = await Site.start(temporaryFolder())
  onTestFinished(() => site.stop())
  await site.create(HOST, upstream.port, POLICY)
  await site.online(1)

  const statuses: number[] = []
  for (let call = 0; call < 100; call += 1) statuses.push((await site.visit(HOST)).status)
  expect(statuses.filter((status) => status === 200)).toHaveLength(30)
  const refused = await site.visit(HOST)
  const waitS = Number(refused.headers['retry-after'])
  expect([refused.status, waitS > 50 && waitS <= 60]).toEqual([429, true])
  await sleep((waitS - 3) * 1_000)
  expect((await site.visit(HOST)).status).toBe(429)
  await sleep(3_000)
  expect((await site.visit(HOST)).status).toBe(200)
}, 120_000)
