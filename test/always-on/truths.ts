import { createServer as createHttpServer } from 'node:http'
import { setTimeout as sleep } from 'node:timers/promises'
import { createServer as createTlsServer } from 'node:tls'
import type { StatusView } from '../../src/api/status-view.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { createTlsFixture } from '../helpers/tls-fixture.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { AlwaysOnSite } from './always-on-site.ts'
import { type Behaviour, FickleService } from './fickle-service.ts'
import { until } from './until.ts'

const WITHIN_MS = 30_000
const VISIT_EVERY_MS = 1_000
const POLL_MS = 250
const HELLO = 'hello'
const CUT = 'cut off'

interface Fault {
  readonly what: string
  readonly behaviour: Behaviour | undefined
  /** What a visitor gets: a text or a status. */
  readonly visitor: string | number
  /** `upstream` of the tunnel. */
  readonly upstream: string
}

interface ShownTunnel {
  readonly domain: string
  readonly state: string
  readonly upstream: string
  readonly reason: string | null
  readonly remedy: string | null
}

const well = createHttpServer((_, response) => response.end(HELLO))
const ill = createHttpServer((_, response) => response.writeHead(500).end())
const broken = createHttpServer((_, response) => {
  response.writeHead(200, { 'content-length': 100 })
  response.write('half', () => response.destroy())
})
const isWell: Behaviour = (socket) => void well.emit('connection', socket)
const afterRequest = (text: string): Behaviour => {
  return (socket) => void socket.once('data', () => socket.end(text))
}

async function faultsOfServices(): Promise<Fault[]> {
  const { certPem, keyPem } = await createTlsFixture()
  const tls = createTlsServer({ cert: certPem, key: keyPem }, (socket) => socket.end('secret'))
  tls.on('tlsClientError', () => {})
  const fault = (
    what: string,
    behaviour: Behaviour | undefined,
    visitor: string | number,
    upstream: string,
  ): Fault => ({ what, behaviour, visitor, upstream })
  return [
    fault('answers 500', (socket) => void ill.emit('connection', socket), 500, 'up'),
    fault('is not there', undefined, 502, 'down'),
    fault('closes each connection', (socket) => void socket.destroy(), 502, 'garbage'),
    fault('resets each connection', (socket) => void socket.resetAndDestroy(), 502, 'garbage'),
    fault('closes after a request', afterRequest(''), 502, 'garbage'),
    fault('speaks first', (socket) => void socket.write('SSH-2.0-x\r\n'), 502, 'garbage'),
    fault('answers garbage', afterRequest('\0\0\0 not HTTP\r\n\r\n'), 502, 'garbage'),
    fault('breaks its head off', afterRequest('HTTP/1.1 200 OK\r\nContent-'), 502, 'garbage'),
    fault('speaks TLS alone', (socket) => void tls.emit('connection', socket), 502, 'garbage'),
    fault(
      'breaks its body off',
      (socket) => void broken.emit('connection', socket),
      CUT,
      'garbage',
    ),
    fault('hangs', (socket) => void socket.resume(), 504, 'slow'),
  ]
}

/** A tunnel to a service that fails in one way, and its visitors. */
class Suspect {
  readonly fault: Fault
  readonly host: string
  readonly service = new FickleService(isWell)
  readonly #site: AlwaysOnSite
  #isOver = false
  /** What the last visitor got. */
  got: string | number | undefined

  constructor(site: AlwaysOnSite, fault: Fault, index: number) {
    this.#site = site
    this.fault = fault
    this.host = site.host(index)
  }

  async open(): Promise<void> {
    await this.service.start()
    const spec = {
      protocol: 'http',
      forwards_to: `localhost:${this.service.port}`,
      domain: this.host,
      upstream: { timeout: 1 },
    }
    const answer = await this.#site.call('POST', '/tunnels', spec)
    if (!answer.ok) throw new Error(`${answer.status}: ${await answer.text()}`)
    void this.#visit()
  }

  async close(): Promise<void> {
    this.#isOver = true
    await this.service.stop()
  }

  async #visit(): Promise<void> {
    while (!this.#isOver) {
      const visitor = { ingress: this.#site.ready.ingress_http, host: this.host }
      const answer = await publicRequest(visitor).catch(() => undefined)
      this.got = answer === undefined ? CUT : answer.status === 200 ? answer.text : answer.status
      await sleep(VISIT_EVERY_MS)
    }
  }
}

async function shown(site: AlwaysOnSite, host: string): Promise<ShownTunnel | undefined> {
  const answer = await site.call('GET', '/tunnels?view=status')
  const tunnels = (await answer.json()) as ShownTunnel[]
  return tunnels.find(({ domain }) => domain === host)
}

/** Until the tunnel says what its visitors get; in ms. */
async function timeUntilTold(site: AlwaysOnSite, suspect: Suspect, fault: Fault): Promise<number> {
  const since = performance.now()
  const isTrouble = fault.upstream !== 'up'
  await until(
    `${suspect.host} is told to be ${fault.upstream}`,
    async () => {
      const tunnel = await shown(site, suspect.host)
      if (tunnel?.state !== 'online' || suspect.got !== fault.visitor) return false
      if (tunnel.upstream !== fault.upstream) return false
      return (tunnel.reason === 'upstream') === isTrouble && (tunnel.remedy !== null) === isTrouble
    },
    POLL_MS,
  )
  return performance.now() - since
}

const WELL: Fault = { what: 'is well', behaviour: isWell, visitor: HELLO, upstream: 'up' }

async function trySuspect(site: AlwaysOnSite, suspect: Suspect): Promise<TrialRow> {
  await timeUntilTold(site, suspect, WELL)
  await suspect.service.become(suspect.fault.behaviour)
  const told = await timeUntilTold(site, suspect, suspect.fault)
  await suspect.service.become(isWell)
  const well = await timeUntilTold(site, suspect, WELL)
  return told30(`a service that ${suspect.fault.what}`, told, well)
}

function told30(what: string, toldMs: number, wellMs: number): TrialRow {
  const s = (ms: number) => `${(ms / 1_000).toFixed(1)} s`
  const isMet = toldMs < WITHIN_MS && wellMs < WITHIN_MS
  return row(what, `after ${s(toldMs)}, well after ${s(wellMs)}`, 'each < 30 s', isMet)
}

/** A fault of the way to the gateway, and what ends it. */
async function tryWay(
  site: AlwaysOnSite,
  what: string,
  strike: () => Promise<void>,
  mend: () => Promise<void>,
): Promise<TrialRow> {
  const isSo = (check: (status: StatusView) => boolean) =>
    until(
      what,
      async () => {
        const status = await site.status()
        return status !== undefined && check(status)
      },
      POLL_MS,
    )
  await isSo(({ healthy }) => healthy)
  const struckAt = performance.now()
  await strike()
  await isSo(({ ready, link }) => !ready && /network|auth/.test(link.reason ?? ''))
  const toldMs = performance.now() - struckAt
  await mend()
  const mendedAt = performance.now()
  await isSo(({ healthy }) => healthy)
  return told30(what, toldMs, performance.now() - mendedAt)
}

/** Every fault once, with the timings that ship: those of services all at once, a tunnel each. */
export async function tryTruths(site: AlwaysOnSite): Promise<TrialRow[]> {
  const faults = await faultsOfServices()
  const suspects = faults.map((fault, index) => new Suspect(site, fault, index))
  const rows: TrialRow[] = []
  try {
    for (const suspect of suspects) await suspect.open()
    rows.push(...(await Promise.all(suspects.map((suspect) => trySuspect(site, suspect)))))
    const { gateway } = site
    const freeze = async () => gateway.signal('SIGSTOP')
    const thaw = async () => gateway.signal('SIGCONT')
    rows.push(await tryWay(site, 'a gateway that stands still', freeze, thaw))
    const kill = () => gateway.end('SIGKILL')
    rows.push(await tryWay(site, 'a gateway that is gone', kill, () => gateway.startAgain()))
  } finally {
    for (const suspect of suspects) await suspect.close()
  }
  return rows
}
