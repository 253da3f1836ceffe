import { writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { describe, expect, it, onTestFinished } from 'vitest'
import type { Agent, AgentOptions } from '../../src/agent/agent.ts'
import type { AgentTimings } from '../../src/agent/timings.ts'
import { MAX_HEADLINE } from '../../src/agent/verdict.ts'
import { type StatusView, statusView } from '../../src/api/status-view.ts'
import { tunnelStatusView } from '../../src/api/tunnel-view.ts'
import { chainChecks } from '../../src/cli/doctor/chain.ts'
import type { Finding } from '../../src/cli/doctor/finding.ts'
import { readVersion } from '../../src/cli/version.ts'
import { type Config, parseConfig } from '../../src/config.ts'
import { readCaCert } from '../../src/daemon.ts'
import type { GatewayOptions } from '../../src/gateway/gateway.ts'
import { FAST_TIMINGS, specOf } from './agent-in-folder.ts'
import { type AgentOnGateway, agentOnGateway } from './agent-on-gateway.ts'
import { eventually } from './eventually.ts'

/** Time for the right sentence in the status. */
const TOLD_WITHIN_MS = 30_000
const WORKS = 'The tunnel works.'
/** A remedy at the gateway shows at the next try. */
const REFUSAL = { baseMs: 200, capMs: 400 }
const TIMINGS: AgentTimings = {
  ...FAST_TIMINGS,
  link: { ...FAST_TIMINGS.link, refusal: REFUSAL, duplicateRetryMs: 200, duplicateShownMs: 500 },
  tunnel: { ...FAST_TIMINGS.tunnel, refusal: REFUSAL },
}
const STORAGE = {
  ...{ fault: undefined, problem: undefined, risk: undefined, healing: undefined, losses: [] },
  ...{ lossProblem: undefined, lastBackupAt: undefined, putAside: [] },
}

/** Settings of the agent as its environment has them. Undefined: not set. */
export type DeviceSettings = Readonly<Record<string, string | undefined>>

/** One fault: what `status` and `doctor` say about it, and the remedy, which the table tries. */
export interface Fault {
  /** In place of settings that work. */
  readonly settings?: DeviceSettings | ((device: FaultyDevice) => unknown)
  readonly gateway?: Partial<GatewayOptions>
  readonly agent?: Partial<AgentOptions>
  /** Where the tunnel leads; a service that answers with `hello`, unless given. */
  readonly tunnel?: (device: FaultyDevice) => Promise<{ forwardsTo: string; upstream?: object }>
  /** Happens to the device once its agent runs. */
  readonly cause?: (device: FaultyDevice) => unknown
  readonly headline: RegExp
  /** The first check of the doctor that fails. Of a note, or without a remedy: a check that passes. */
  readonly check: string | RegExp
  readonly detail: RegExp
  /** Of the doctor, and of the status unless it has words of its own. Undefined: nothing has to be done. */
  readonly remedy?: RegExp
  readonly statusRemedy?: RegExp
  /** The device works. */
  readonly isNote?: true
  /** Does what the remedy says. All is well then. */
  readonly mend?: (device: FaultyDevice) => unknown
}

/** What `status` and `doctor` say. */
export interface Told {
  readonly status: StatusView
  readonly findings: readonly Finding[]
}

/** A device with a tunnel at a gateway of its own. The agent has what an environment says. */
export class FaultyDevice {
  readonly on: AgentOnGateway
  /** Settings that work, with the changes of the fault. */
  readonly settings: Record<string, string | undefined>
  readonly #options: Partial<AgentOptions>
  #agent: Agent | undefined

  private constructor(on: AgentOnGateway, options: Partial<AgentOptions>) {
    this.on = on
    this.#options = { ...options }
    this.settings = {
      AGENT_DATA_DIR: on.folder,
      AGENT_DEFAULT_POLICY: `${on.folder}/default-policy.json`,
      SVC_AUTHTOKEN_FILE: on.tokenPath,
      SVC_CA_CERT: on.addresses.caCertPath,
      SVC_SERVER_ADDR: this.serverAddr,
    }
  }

  /** Address of the gateway, through the proxy. */
  get serverAddr(): string {
    return `localhost:${this.on.proxy.address.port}`
  }

  static async open({ gateway, agent = {} }: Fault): Promise<FaultyDevice> {
    const on = await agentOnGateway(gateway ? { gateway } : {})
    return new FaultyDevice(on, agent)
  }

  /** Writes a file of the device, and returns its path. */
  file(name: string, text: string): string {
    const path = join(this.on.folder, name)
    writeFileSync(path, text, { mode: 0o600 })
    return path
  }

  get config(): Config['agent'] {
    return parseConfig(this.settings).agent
  }

  get agent(): Agent {
    if (!this.#agent) throw new Error('the agent has not started')
    return this.#agent
  }

  /** The tunnel `a.site.test`. */
  tunnel(forwardsTo: string, upstream: object = {}) {
    return this.agent.replace('a.site.test', { ...specOf('a', forwardsTo), upstream })
  }

  /** Starts the agent, or starts it again, with the settings and these changes. */
  async start(change: DeviceSettings = {}, options: Partial<AgentOptions> = {}): Promise<void> {
    Object.assign(this.settings, change)
    Object.assign(this.#options, options)
    await this.#agent?.stop()
    const { config } = this
    this.#agent = this.on.another({
      ...{ serverAddrs: config.serverAddrs, ingress: config.ingress, link: config.link },
      caCert: readCaCert(config.caCertPath),
      caCertPath: config.caCertPath,
      authtoken: {
        files: config.authtokenFile === undefined ? [] : [config.authtokenFile],
        value: config.authtoken,
      },
      ...{ version: readVersion(), timings: TIMINGS },
      ...this.#options,
    })
    await this.#agent.start()
  }

  get status(): StatusView {
    return statusView(this.agent.status(), STORAGE)
  }

  async examined(): Promise<Told> {
    const { agent, status } = this
    const tunnels = agent.list().map((it) => tunnelStatusView(it, agent.policyInForce(it)))
    const findings: Finding[] = []
    const { signal } = new AbortController()
    for await (const some of chainChecks(this.config, { status, tunnels }, signal)) {
      findings.push(...some)
    }
    return { status, findings }
  }
}

/** The port of a service that answers with `hello`. */
export function serveHello(port = 0): Promise<number> {
  const server = createServer((_, response) => response.end('hello'))
  onTestFinished(() => void server.close().closeAllConnections())
  return new Promise((resolve) =>
    server.listen(port, '127.0.0.1', () => resolve((server.address() as AddressInfo).port)),
  )
}

/** A port where nothing listens any more. */
export async function freedPort(): Promise<number> {
  const server = createServer().listen(0, '127.0.0.1')
  await new Promise((resolve) => server.once('listening', resolve))
  const { port } = server.address() as AddressInfo
  await new Promise((resolve) => server.close(resolve))
  return port
}

/** Makes each fault, reads what is told about it, and tries its remedy. */
export function faultTable(title: string, faults: Readonly<Record<string, Fault>>): void {
  describe(title, () => {
    it.each(Object.entries(faults))('%s', async (_, fault) => {
      const device = await FaultyDevice.open(fault)
      const { settings = {}, cause, tunnel, mend } = fault
      if (typeof settings === 'function') await settings(device)
      else Object.assign(device.settings, settings)
      await device.start()
      const { forwardsTo, upstream } = tunnel
        ? await tunnel(device)
        : { forwardsTo: `localhost:${await serveHello()}` }
      await device.tunnel(forwardsTo, upstream)
      await cause?.(device)
      await isTold(device, fault)
      if (!mend) return
      await mend(device)
      await isWell(device)
    })
  })
}

async function isTold(device: FaultyDevice, fault: Fault): Promise<void> {
  const { headline, check, detail, remedy, statusRemedy = remedy, isNote = false } = fault
  // Some faults show to visitors alone, who may get no answer.
  let isVisited = false
  const visit = () => {
    if (isVisited) return
    isVisited = true
    const over = () => {
      isVisited = false
    }
    device.on.visit('a').then(over, over)
  }
  await eventually(() => {
    visit()
    expect(device.status.verdict).toMatch(headline)
  }, TOLD_WITHIN_MS)
  const { status, findings } = await device.examined()
  expect(status.verdict.length).toBeLessThanOrEqual(MAX_HEADLINE)
  if (statusRemedy) expect(status.advice[0]?.remedy).toMatch(statusRemedy)
  const isMeant = (finding: Finding) =>
    typeof check === 'string' ? finding.check === check : check.test(finding.check)
  const isBad = remedy !== undefined && !isNote
  const found = isBad ? findings.find(({ outcome }) => outcome === 'bad') : findings.find(isMeant)
  expect(found).toMatchObject({
    check: typeof check === 'string' ? check : expect.stringMatching(check),
    outcome: isBad ? 'bad' : 'good',
    detail: expect.stringMatching(detail),
    remedy: remedy ? expect.stringMatching(remedy) : null,
  })
}

async function isWell(device: FaultyDevice): Promise<void> {
  await eventually(async () => {
    expect(device.status.verdict).toBe(WORKS)
    expect(await device.on.visit('a')).toBe('hello')
  })
  const { findings } = await device.examined()
  expect(findings.filter(({ outcome }) => outcome === 'bad')).toEqual([])
}
