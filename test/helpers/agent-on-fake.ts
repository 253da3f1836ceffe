import { once } from 'node:events'
import { writeFileSync } from 'node:fs'
import { createServer } from 'node:https'
import type { AddressInfo } from 'node:net'
import { join } from 'node:path'
import { onTestFinished } from 'vitest'
import type { Agent, AgentOptions } from '../../src/agent/agent.ts'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import { Secret } from '../../src/base/secret.ts'
import { agentInFolder } from './agent-in-folder.ts'
import { type CapturedLog, captureLog } from './captured-log.ts'
import { FakeConnector } from './fake-connector.ts'
import { temporaryFolder } from './temporary-folder.ts'
import { createTlsFixture } from './tls-fixture.ts'

export interface AgentOnFake {
  readonly agent: Agent
  readonly connector: FakeConnector
  readonly folder: string
  readonly policyPath: string
  readonly captured: CapturedLog
  /** Whether the public way to the agent works. */
  setReachable(isReachable: Reach): void
  /** Another agent on the same folder and the same fake service, not started. */
  again(change?: Partial<AgentOptions>): Agent
}

/** What a visitor of the agent's domain meets: the agent, a broken way, a busy device. */
export type Reach = boolean | 'saturated'

/** An agent on a real database and a fake service, not started; stopped with the running test. */
export async function agentOnFake(change: Partial<AgentOptions> = {}): Promise<AgentOnFake> {
  const folder = temporaryFolder()
  const policyPath = join(folder, 'default-policy.json')
  writeFileSync(policyPath, '{"on_http_request": []}')
  const captured = captureLog()
  const connector = new FakeConnector()
  const tls = await createTlsFixture()
  let reach: Reach = true
  let latest: Agent | undefined
  // Stands for the service: the preflight shakes hands with it, the probe comes back through it.
  const service = createServer({ cert: tls.certPem, key: tls.keyPem }, (request, response) => {
    const nonce = request.url?.slice(PROBE_PATH.length + 1) ?? ''
    if (reach === 'saturated') {
      response.writeHead(503, { 'ngrok-error-code': 'ERR_GATEWAY_SATURATED' }).end()
      return
    }
    const answer = reach ? latest?.answerProbe(nonce) : undefined
    response.writeHead(answer === undefined ? 502 : 200).end(answer)
  })
  service.listen(0, '127.0.0.1')
  await once(service, 'listening')
  onTestFinished(() => void service.close().closeAllConnections())
  const { port } = service.address() as AddressInfo

  const create = (more: Partial<AgentOptions> = {}): Agent => {
    latest = agentInFolder(folder, {
      connector,
      authtoken: { files: [join(folder, 'authtoken')], value: new Secret('good-token') },
      serverAddrs: [`localhost:${port}`],
      caCert: tls.caPem,
      ingress: { host: '127.0.0.1', port },
      log: captured.log,
      ...change,
      ...more,
    })
    return latest
  }
  return {
    agent: create(),
    connector,
    folder,
    policyPath,
    captured,
    setReachable: (next) => {
      reach = next
    },
    again: create,
  }
}
