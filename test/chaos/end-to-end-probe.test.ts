import { readFileSync, writeFileSync } from 'node:fs'
import { createServer } from 'node:http'
import { join } from 'node:path'
import { expect, it, onTestFinished } from 'vitest'
import type { Agent } from '../../src/agent/agent.ts'
import { NgrokConnector } from '../../src/agent/ngrok-connector.ts'
import { PROBE_PATH } from '../../src/agent/probes/self-probe.ts'
import { FAST_TIMINGS } from '../helpers/agent-in-folder.ts'
import { agentOnGateway, isDown } from '../helpers/agent-on-gateway.ts'
import { captureLog } from '../helpers/captured-log.ts'
import { ChaosProxy } from '../helpers/chaos-proxy.ts'
import { eventually } from '../helpers/eventually.ts'
import { startGateway } from '../helpers/running-gateway.ts'
import { temporaryFolder } from '../helpers/temporary-folder.ts'
import { AN_HOUR_AGO, createAuthority } from '../helpers/tls-fixture.ts'

/** Serves what the agent's API serves to the probe, on a unix socket. */
async function serveProbe(path: string, agent: () => Agent): Promise<void> {
  const server = createServer((request, response) => {
    const answer = agent().answerProbe(request.url?.slice(PROBE_PATH.length + 1) ?? '')
    response.writeHead(answer === undefined ? 404 : 200).end(answer)
  })
  await new Promise<void>((resolve) => server.listen(path, resolve))
  onTestFinished(() => void server.close().closeAllConnections())
}

it('leaves tunnels and link alone where only the device does not reach itself', async () => {
  const running = await startGateway()
  // Between this device and the ingress: neither the SDK's connection nor visitors come by.
  const street = await ChaosProxy.start(running.addresses.https)
  const socketPath = join(temporaryFolder(), 'api.sock')
  const on = await agentOnGateway({
    running,
    own: { domain: 'agent.site.test', socketPath },
    ingress: street.address,
    connector: new NgrokConnector({
      version: '1.2.3',
      log: captureLog().log,
      // A busy machine answers late: that would be another link.
      heartbeat: { intervalS: 1, toleranceS: 60 },
    }),
    timings: { ...FAST_TIMINGS, probe: { ...FAST_TIMINGS.probe, echoMs: 60_000 } },
  })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  await on.createTunnels('a')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))
  const { since } = on.agent.status().link

  street.blackHole('down')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('unverified'))
  expect(on.agent.status()).toMatchObject({ ready: true, healthy: true, link: { state: 'up' } })
  expect(on.agent.status().verdict).toMatch(/This device cannot reach its public address/)
  expect(on.agent.list()[0]?.status).toMatchObject({ state: 'online', reachable: 'unverified' })
  expect(await on.visit('a')).toBe('hello')
  // As often as it once took to rebuild the link.
  const { lastProbeAt = 0 } = on.agent.status().ownEndpoint ?? {}
  await eventually(() => {
    expect(on.agent.status().ownEndpoint?.lastProbeAt).toBeGreaterThan(lastProbeAt)
  })
  expect(on.agent.status().link).toMatchObject({ state: 'up', since })

  street.heal()
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))
  expect(on.agent.status().link.since).toBe(since)
})

it('says that the certificate of the gateway has expired', async () => {
  const [authority, folder] = [await createAuthority(), temporaryFolder()]
  const { certPem, keyPem } = await authority.issue({
    name: 'agent.site.test',
    validity: AN_HOUR_AGO,
  })
  const tls = { certPath: join(folder, 'cert.pem'), keyPath: join(folder, 'key.pem') }
  writeFileSync(tls.certPath, certPem)
  writeFileSync(tls.keyPath, keyPem)
  const running = await startGateway({ tls })
  const socketPath = join(folder, 'api.sock')
  const on = await agentOnGateway({
    running,
    own: { domain: 'agent.site.test', socketPath },
    ingress: running.addresses.https,
    caCert: readFileSync(running.addresses.caCertPath, 'utf8') + authority.caPem,
  })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  const day = AN_HOUR_AGO.notAfter.toISOString().slice(0, 10)
  await eventually(() => {
    const { verdict, causes, healthy, link } = on.agent.status()
    expect(verdict).toMatch(/^No tunnels\. The gateway's certificate has expired/)
    expect(causes[0]?.problem).toMatch(new RegExp(`: https://agent\\.site\\.test\\S*, on ${day}$`))
    expect(causes[0]?.remedy).toContain('Renew the certificate at the gateway')
    expect([healthy, link.state]).toEqual([false, 'up'])
  })
})

it('calls nothing online while neither a probe nor the link is answered', async () => {
  const running = await startGateway()
  const street = await ChaosProxy.start(running.addresses.https)
  const socketPath = join(temporaryFolder(), 'api.sock')
  const on = await agentOnGateway({
    running,
    own: { domain: 'agent.site.test', socketPath },
    ingress: street.address,
    connector: new NgrokConnector({
      version: '1.2.3',
      log: captureLog().log,
      // Longer than the probe takes: it is the first to notice.
      heartbeat: { intervalS: 1, toleranceS: 20 },
    }),
  })
  await serveProbe(socketPath, () => on.agent)
  await on.agent.start()
  await on.createTunnels('a')
  await eventually(() => expect(on.agent.status().ownEndpoint?.reachable).toBe('yes'))

  street.blackHole('down')
  on.proxy.blackHole('down')
  await isDown(on)
  street.heal()
  on.proxy.heal()
  await eventually(() => expect(on.states()).toEqual(['online']))
  expect(await on.visit('a')).toBe('hello')
})
