import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import { Agent, type AgentOptions } from '../../src/agent/agent.ts'
import { PolicyProcess } from '../../src/agent/policies/policy-process.ts'
import type { AgentTimings } from '../../src/agent/timings.ts'
import { TUNNEL_MIGRATIONS } from '../../src/agent/tunnel-store.ts'
import { systemClock } from '../../src/base/clock.ts'
import { parseConfig } from '../../src/config.ts'
import { openDatabase } from '../../src/store/database.ts'
import { captureLog } from './captured-log.ts'
import { eventually } from './eventually.ts'

/** The default timings, a hundred times faster where somebody would have to wait. */
export const FAST_TIMINGS: AgentTimings = {
  link: {
    backoffBaseMs: 5,
    backoffCapMs: 80,
    stableMs: 300,
    quickMs: 5,
    quickAfterMs: 100,
    refusal: { baseMs: 60_000, capMs: 60_000 },
    duplicateRetryMs: 60_000,
    duplicateShownMs: 60_000,
    // Our gateway ends what another session has replaced.
    retireMs: 60_000,
    spareMs: 30,
  },
  preflight: { dnsMs: 1_000, connectMs: 500, tlsMs: 500 },
  tunnel: {
    backoffBaseMs: 5,
    backoffCapMs: 300,
    stableMs: 300,
    refusal: { baseMs: 60_000, capMs: 60_000 },
    ghostMs: 450,
    ghostRetryMs: 30,
    conflictRetryMs: 600,
  },
  probe: { intervalMs: 300, retryMs: 50, deadlineMs: 500, echoMs: 1_500 },
  upstream: { intervalMs: 100, maxIntervalMs: 200, connectMs: 200 },
  fileWatchMs: 20,
  settleMs: 2_000,
  drainMs: 500,
  stopMs: 2_000,
}

/** One that outlives the agents of a worker: each start costs half a second of the processor. */
class LastingPolicyProcess extends PolicyProcess {
  override stop(): void {}
}
let policyProcess: LastingPolicyProcess | undefined

type Needed = 'connector' | 'serverAddrs' | 'caCert' | 'authtoken'

/** An agent on a real database in `folder`, not started; stopped with the running test. */
export function agentInFolder(
  folder: string,
  options: Pick<AgentOptions, Needed> & Partial<AgentOptions>,
): Agent {
  const log = options.log ?? captureLog().log
  const database = openDatabase({
    path: join(folder, 'agent.db'),
    migrations: TUNNEL_MIGRATIONS,
    applicationId: 1,
    log,
    clock: systemClock,
  })
  policyProcess ??= new LastingPolicyProcess()
  const agent = new Agent({
    ...parseConfig({}).agent,
    policyProcess,
    database,
    dataDir: folder,
    own: undefined,
    defaultPolicyPath: join(folder, 'default-policy.json'),
    forward: { allow: [], ownAddresses: () => [{ host: '127.0.0.1', port: 7_040 }] },
    maxTunnels: 2_000,
    version: '1.2.3',
    log,
    clock: systemClock,
    onPoisoned: () => {},
    timings: FAST_TIMINGS,
    ...options,
  })
  onTestFinished(async () => {
    await agent.stop()
    database.close()
  })
  return agent
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
