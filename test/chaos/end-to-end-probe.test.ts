import { createServer } from 'node:http'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import { agentOnGateway, isDown } from '../helpers/agent-on-gateway.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'

/** Serves what the agent's API serves to the probe, on a unix socket. */
async function serveProbe(path: string, agent: () => Agent): Promise<void> {
  const server = createServer((request, response) => {
    const answer = agent().answerProbe(request.url?.slice(PROBE_PATH.length + 1) ?? '')
    response.writeHead(answer === undefined ? 404 : 200).end(answer)
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => void server.close().closeAllConnections())
}

it('calls nothing online while visitors do not get through, though the link is fine', async () => {
  const running = await startGateway()
  // Between visitors and the ingress: the SDK's own connection is never touched.
  const street = await ChaosProxy.start(running.addresses.https)
  const socketPath = join(temporaryFolder(), 'api.sock')
  const on = await agentOnGateway({
    running,
    own: { domain: 'agent.site.test', socketPath },
    ingress: street.address,
  })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  await on.createTunnels('a')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))
  expect(on.agent.status()).toMatchObject({ ready: true, link: { state: 'up' } })

  street.blackHole('down')
  await isDown(on)
  expect(on.agent.status()).toMatchObject({
    ready: false,
    link: { state: 'suspect', reason: 'network' },
    ownEndpoint: { reachable: 'no' },
  })
  const { since } = on.agent.status().link
  await eventually(() => expect(on.agent.status().link.since).toBeGreaterThan(since))

  street.heal()
  await eventually(() => expect(on.states()).toEqual(['online']))
  expect(await on.visit('a')).toBe('hello')
})
