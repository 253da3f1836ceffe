import { once } from 'node:events'
import { cpSync, mkdtempSync, readFileSync, rmSync } from 'node:fs'
import type { AddressInfo } from 'node:net'
import { tmpdir } from 'node:os'
import { join } from 'node:path'
import { setTimeout as sleep } from 'node:timers/promises'
import type { StatusView } from '../../src/api/status-view.ts'
import { Program } from '../helpers/program.ts'
import { type GatewayReady, type RunReady, SITE_API_TOKEN } from '../helpers/site.ts'
import type { Trial, TrialRow } from '../helpers/trials.ts'
import { createService, meanwhile, startAgent } from './always-on-site.ts'
import { rowOf, TIMES } from './planned.ts'
import { until } from './until.ts'
import { Visitors } from './visitors.ts'

const HOST = 't0.site.localhost'
const WORST_MS = 1_000

/** A gateway as on a machine of its own: it comes back where it was. */
interface PlainGateway {
  readonly ready: GatewayReady
  program: Program
}

async function startGateway(dataDir: string, at?: GatewayReady): Promise<PlainGateway> {
  const program = new Program({
    args: ['gateway', '--json'],
    env: {
      GATEWAY_DATA_DIR: dataDir,
      LOG_LEVEL: 'warn',
      ...(at && {
        GATEWAY_AGENT_LISTEN: at.agent_listen,
        GATEWAY_HTTP_LISTEN: new URL(at.ingress_http).host,
        GATEWAY_HTTPS_LISTEN: new URL(at.ingress_https).host,
        GATEWAY_API_LISTEN: new URL(at.management_api).host,
      }),
    },
  })
  return { program, ready: await program.ready<GatewayReady>() }
}

/** Two gateways that know the same authtoken, an agent that has the address of both, a service. */
async function tryBoth(folder: string): Promise<TrialRow> {
  const dirs = [join(folder, 'a'), join(folder, 'b')] as const
  const first = await startGateway(dirs[0])
  await first.program.end()
  cpSync(dirs[0], dirs[1], { recursive: true })
  const gateways = [await startGateway(dirs[0]), await startGateway(dirs[1])] as const
  const [a, b] = gateways
  const service = createService().listen(0, '127.0.0.1')
  await once(service, 'listening')
  cpSync(a.ready.authtoken_file, join(folder, 'authtoken'))
  const agent = startAgent(folder, a.ready, {
    SVC_SERVER_ADDR: `${a.ready.agent_listen},${b.ready.agent_listen}`,
  })
  try {
    const { agent_api } = await agent.ready<RunReady>()
    const call = (method: string, path: string, body?: object) =>
      fetch(`${agent_api}${path}`, {
        method,
        headers: { authorization: `Bearer ${SITE_API_TOKEN}`, 'content-type': 'application/json' },
        ...(body && { body: JSON.stringify(body) }),
      })
    const { port } = service.address() as AddressInfo
    const spec = { protocol: 'http', forwards_to: `localhost:${port}`, domain: HOST }
    await call('POST', '/tunnels', spec)
    const status = async () => (await call('GET', '/status')).json() as Promise<StatusView>
    const visitors = new Visitors({
      ingress: a.ready.ingress_http,
      other: b.ready.ingress_http,
      ca: readFileSync(a.ready.ca_cert, 'utf8'),
      hosts: [HOST],
      download: '',
      downloads: 0,
    })
    const isReady = async () => {
      const { link, tunnels } = await status()
      return tunnels.online === 1 && link.standby?.state === 'ready'
    }
    await until('a second session', isReady)
    const visits = await meanwhile(visitors, async () => {
      for (let time = 0; time < TIMES; time += 1) {
        await until('a second session', isReady)
        const { link } = await status()
        const index = link.server_addr === a.ready.agent_listen ? 0 : 1
        const serving = gateways[index]
        await serving.program.end('SIGKILL')
        await sleep(1_000)
        serving.program = (await startGateway(dirs[index], serving.ready)).program
      }
    })
    return rowOf(`${TIMES} times, GET`, visits, WORST_MS)
  } finally {
    await agent.end('SIGKILL')
    for (const { program } of gateways) await program.end('SIGKILL')
    service.closeAllConnections()
    service.close()
  }
}

export const twoAddresses: Trial = {
  name: 'two-addresses',
  what: 'of two gateways whose addresses the agent has, the one that serves is killed',
  run: async () => {
    const folder = mkdtempSync(join(tmpdir(), 'device-agent-always-on-'))
    try {
      return [await tryBoth(folder)]
    } finally {
      rmSync(folder, { recursive: true, force: true })
    }
  },
}
