/** The agent by itself: how fast it starts, how small it stays, what a create and a restore cost. */
import { Site } from '../test/helpers/site.ts'
import { median, printTable, progress, quantile, residentMb, scratchFolder } from './tools.ts'

const TUNNELS = 1_000
const STARTS = 7
const UPSTREAM_PORT = 9

const site = await Site.start(scratchFolder())

progress('start times')
const starts: number[] = []
for (let start = 0; start < STARTS; start += 1) starts.push(await site.restartAgent())

progress('idle memory')
await new Promise((resolve) => setTimeout(resolve, 2_000))
const idleMb = residentMb(site.agent.pid)

const creates: number[] = []
for (let index = 0; index < TUNNELS; index += 1) {
  const startedAt = performance.now()
  const answer = await site.create(`device${index}.site.localhost`, UPSTREAM_PORT)
  if (answer.status !== 200) throw new Error(`POST /tunnels: ${answer.status}`)
  await answer.arrayBuffer()
  creates.push(performance.now() - startedAt)
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
      `${TUNNELS} tunnels online, from the start of the process`,
      ms(median(restores)),
      ms(Math.max(...restores)),
      '1500 ms',
    ],
    ['idle resident memory', `${idleMb.toFixed(1)} MB`, '', '80 MB'],
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
