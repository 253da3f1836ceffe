import { once } from 'node:events'
import { type AddressInfo, createServer } from 'node:net'
import { expect, it, onTestFinished } from 'vitest'
import { FAST_TIMINGS, specOf } from '../helpers/agent-in-folder.ts'
import { startedOnGateway } from '../helpers/agent-on-gateway.ts'
import { eventually } from '../helpers/eventually.ts'

// How long that takes is measured by `npm run bench:recovery`: this machine may be busy.
/** How quick it is, bench/recovery.ts says; this only has to end on a busy machine. */
const SOON_MS = 90_000

it(
  'brings 1,000 tunnels back after the gateway was started again',
  async () => {
    const on = await startedOnGateway({
      timings: { ...FAST_TIMINGS, settleMs: 10_000 },
    })
    const port = await listenNowhere()
    const creations = Array.from({ length: 1_000 }, (_, n) =>
      on.agent.create(specOf(`t${n}`, `localhost:${port}`)),
    )
    await Promise.all(creations)
    await eventually(() => expect(on.agent.status().tunnels.online).toBe(1_000), SOON_MS)
    const { parts } = await on.restartGateway()
    await eventually(() => expect(parts.registry.size).toBe(1_000), SOON_MS)
    await eventually(() => expect(on.agent.status().tunnels.online).toBe(1_000), SOON_MS)
  },
  3 * SOON_MS,
)

async function listenNowhere(): Promise<number> {
  const server = createServer((socket) => socket.destroy())
  server.listen(0, '127.0.0.1')
  await once(server, 'listening')
  onTestFinished(() => void server.close())
  return (server.address() as AddressInfo).port
}
