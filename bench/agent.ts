/** The agent by itself: how fast it starts, how small it stays, what a create and a restore cost. */
import { Site } from '../test/helpers/site.ts'
import { median, printTable, progress, quantile, residentMb, scratchFolder } from './tools.ts'

const TUNNELS = 1_000
const STARTS = 7
const UPSTREAM_PORT = 9
const WITH_POLICY = 100
const OWN_POLICY = {
  on_http_request: [{ expressions: ["req.method == 'TRACE'"], actions: [{ type: 'deny' }] }],
}
/** V8 gives memory back when nothing happened for some seconds. */
const QUIET_MS = 15_000

const site = await Site.start(scratchFolder())

async function idleMb(when: string): Promise<number> {
  progress(`idle memory ${when}`)
  await new Promise((resolve) => setTimeout(resolve, QUIET_MS))
  return residentMb(site.agent.pid)
}

/** Milliseconds until the answer to a create. */
async function timeCreate(name: string, policy?: unknown): Promise<number> {
  const startedAt = performance.now()
  const answer = await site.create(`${name}.site.localhost`, UPSTREAM_PORT, policy)
  if (answer.status !== 200) throw new Error(`POST /tunnels: ${answer.status}`)
  await answer.arrayBuffer()
  return performance.now() - startedAt
}

const firstMb = await idleMb('at the first start')
progress('start times')
const starts: number[] = []
for (let start = 0; start < STARTS; start += 1) starts.push(await site.restartAgent())

const laterMb = await idleMb('at a later start')

await timeCreate('first', OWN_POLICY)
const checkedMb = await idleMb('after a policy was checked')
await site.call('DELETE', '/tunnels/first.site.localhost')

progress(`creating ${WITH_POLICY} tunnels with policies of their own`)
const checkedCreates: number[] = []
for (let index = 0; index < WITH_POLICY; index += 1) {
  checkedCreates.push(await timeCreate(`checked${index}`, OWN_POLICY))
}
for (let index = 0; index < WITH_POLICY; index += 1) {
  await site.call('DELETE', `/tunnels/checked${index}.site.localhost`)
}

const creates: number[] = []
for (let index = 0; index < TUNNELS; index += 1) {
  creates.push(await timeCreate(`device${index}`))
  if (index % 100 === 99) progress(`created ${index + 1} of ${TUNNELS} tunnels`)
}

const restores: number[] = []
for (let restart = 0; restart < 3; restart += 1) {
  progress(`restart ${restart + 1} of 3 with ${TUNNELS} tunnels`)
  const listeningMs = await site.restartAgent(restart === 2 ? 'SIGKILL' : 'SIGTERM')
  const startedAt = performance.now()
  await site.online(TUNNELS)
  restores.push(listeningMs + performance.now() - startedAt)
}
progress('')

const ms = (value: number) => `${value.toFixed(1)} ms`
printTable(
  ['what', 'median', 'worst', 'aim'],
  [
    [
      'run listening, from the start of the process',
      ms(median(starts)),
      ms(Math.max(...starts)),
      '300 ms',
    ],
    [
      'POST /tunnels, until the endpoint is public',
      ms(median(creates)),
      ms(quantile(creates, 0.99)),
      '10 ms',
    ],
    [
      'the same with a policy of its own (worst: the first)',
      ms(median(checkedCreates)),
      ms(Math.max(...checkedCreates)),
      '',
    ],
    [
      `${TUNNELS} tunnels online, from the start of the process`,
      ms(median(restores)),
      ms(Math.max(...restores)),
      '1500 ms',
    ],
    ['idle resident memory, first start', `${firstMb.toFixed(1)} MB`, '', '80 MB'],
    ['idle resident memory, later start', `${laterMb.toFixed(1)} MB`, '', '80 MB'],
    ['idle resident memory, after a policy was checked', `${checkedMb.toFixed(1)} MB`, '', '80 MB'],
    [
      `resident memory with ${TUNNELS} tunnels`,
      `${residentMb(site.agent.pid).toFixed(1)} MB`,
      '',
      '',
    ],
  ],
)
await site.stop()
process.exit(0)
