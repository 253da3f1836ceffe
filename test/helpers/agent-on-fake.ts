import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { Agent, type AgentOptions } from '../../src/agent/agent.ts'
import { PROBE_PATH } from '../../src/agent/self-probe.ts'
import type { AgentTimings } from '../../src/agent/timings.ts'
import { TUNNEL_MIGRATIONS } from '../../src/agent/tunnel-store.ts'
import { systemClock } from '../../src/base/clock.ts'
import { Secret } from '../../src/base/secret.ts'
import { openDatabase } from '../../src/store/database.ts'
import { type CapturedLog, captureLog } from './captured-log.ts'
import { eventually } from './eventually.ts'
import { FakeConnector } from './fake-connector.ts'
import { temporaryFolder } from './temporary-folder.ts'
import { createTlsFixture } from './tls-fixture.ts'

/** The default timings, a hundred times faster where somebody would have to wait. */
export const FAST_TIMINGS: AgentTimings = {
  link: { backoffBaseMs: 5, backoffCapMs: 80, stableMs: 300, slowRetryMs: 60_000 },
  preflight: { dnsMs: 1_000, connectMs: 300, tlsMs: 300 },
  tunnel: {
    backoffBaseMs: 5,
    backoffCapMs: 300,
    stableMs: 300,
    slowRetryMs: 60_000,
    ghostMs: 450,
    ghostRetryMs: 30,
    conflictRetryMs: 600,
  },
  probe: { intervalMs: 300, retryMs: 50, deadlineMs: 500 },
  upstream: { intervalMs: 100, connectMs: 200 },
  fileWatchMs: 20,
  settleMs: 2_000,
  stopMs: 2_000,
}

export interface AgentOnFake {
  readonly agent: Agent
  readonly connector: FakeConnector
  readonly folder: string
  readonly policyPath: string
  readonly captured: CapturedLog
  /** Whether the public way to the agent works. */
  setReachable(isReachable: boolean): void
  /** Another agent on the same folder and the same fake service, not started. */
  again(change?: Partial<AgentOptions>): Agent
}

/** An agent on a real database and a fake service, not started; stopped with the running test. */
export async function agentOnFake(change: Partial<AgentOptions> = {}): Promise<AgentOnFake> {
  const folder = temporaryFolder()
  const policyPath = join(folder, 'default-policy.json')
  writeFileSync(policyPath, '{"on_http_request": []}')
  const captured = captureLog()
  const connector = new FakeConnector()
  const tls = await createTlsFixture()
  let isReachable = true
  let latest: Agent | undefined
  // Stands for the service: the preflight shakes hands with it, the probe comes back through it.
  const service = createServer({ cert: tls.certPem, key: tls.keyPem }, (request, response) => {
    const nonce = request.url?.slice(PROBE_PATH.length + 1) ?? ''
    const answer = isReachable ? latest?.answerProbe(nonce) : undefined
    response.writeHead(answer === undefined ? 502 : 200).end(answer)
  })
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  onTestFinished(() => void service.close().closeAllConnections())
  const { port } = service.address() as AddressInfo

  const create = (more: Partial<AgentOptions> = {}): Agent => {
    const database = openDatabase({
      path: join(folder, 'agent.db'),
      migrations: TUNNEL_MIGRATIONS,
      applicationId: 1,
      log: captured.log,
      clock: systemClock,
    })
    const agent = new Agent({
      database,
      connector,
      dataDir: folder,
      authtoken: { files: [join(folder, 'authtoken')], value: new Secret('good-token') },
      serverAddr: `localhost:${port}`,
      caCert: tls.caPem,
      own: undefined,
      defaultPolicyPath: policyPath,
      forward: { allow: [], ownAddresses: () => [{ host: '127.0.0.1', port: 7_040 }] },
      maxTunnels: 10,
      version: '1.2.3',
      log: captured.log,
      clock: systemClock,
      onPoisoned: () => {},
      ingress: { host: '127.0.0.1', port },
      timings: FAST_TIMINGS,
      ...change,
      ...more,
    })
    latest = agent
    onTestFinished(async () => {
      await agent.stop()
      database.close()
    })
    return agent
  }
  return {
    agent: create(),
    connector,
    folder,
    policyPath,
    captured,
    setReachable: (next) => {
      isReachable = next
    },
    again: create,
  }
}

/** Waits until the link of an agent is up. */
export async function linkUp(agent: Agent): Promise<void> {
  await eventually(() => {
    const { link } = agent.status()
    if (link.state !== 'up') throw new Error(`the link is ${link.state}: ${link.lastError}`)
  })
}

/** A tunnel spec for `<name>.site.test`. */
export function specOf(name: string, forwardsTo = 'localhost:1') {
  return { protocol: 'http', forwardsTo, domain: `${name}.site.test`, policy: null } as const
}
