import { expect, it } from 'vitest'
import * as z from 'zod'
import { DEFAULT_TIMINGS } from '../../../src/agent/timings.ts'
import { StatusView } from '../../../src/api/status-view.ts'
import { TunnelStatusView } from '../../../src/api/tunnel-view.ts'
import { agentChecks } from '../../../src/cli/doctor/agent-checks.ts'
import { statusText } from '../../../src/cli/local/status-text.ts'
import { readVersion } from '../../../src/cli/version.ts'
import { startApi } from '../../api/started-api.ts'
import { eventually } from '../../helpers/eventually.ts'
import { serveHttp } from '../../helpers/serve-http.ts'

const HOUR = 3_600_000

/** New checks refuse the policy of one tunnel, which is healthy. */
it('names the tunnel in the command of a remedy', async () => {
  const { agent, callLocal } = await startApi()
  const { server } = await serveHttp((_request, response) => response.end('hello'))
  for (const domain of ['cam.site.test', 'web-cam.site.test']) {
    const forwardsTo = `localhost:${server.port}`
    await agent.create({ protocol: 'http', domain, forwardsTo, policy: null })
  }
  const { json } = await callLocal('GET', '/tunnels?view=status')
  const status = StatusView.parse((await callLocal('GET', '/status')).json)
  const seen = {
    status: {
      ...status,
      versions: { ...status.versions, agent: readVersion() },
      advice: [
        {
          problem: 'New checks refuse the policy of web-cam.site.test, which runs as before.',
          remedy: 'Correct the policy and replace the tunnel.',
        },
      ],
    },
    tunnels: z.array(TunnelStatusView).parse(json),
  }
  const command = 'run device-agent tunnels set-policy web-cam.site.test FILE.'
  expect(statusText(seen.status, seen.tunnels, (_, plain) => plain)).toContain(command)
  const found = (await agentChecks(seen)).find(({ check }) => check === 'status')
  expect(found?.remedy).toContain(command)
})

it('shows each mistake of a refused policy on a line', async () => {
  const { callLocal } = await startApi()
  const status = StatusView.parse((await callLocal('GET', '/status')).json)
  const mistakes = [
    '/on_http_request/0/actions/0: One. (ERR_NGROK_2201)',
    '/on_http_response/1: Two. (ERR_NGROK_2206)',
  ]
  const problem = `The traffic policy cannot be used. ${mistakes.join(' ')}`
  const seen = { ...status, advice: [{ problem, remedy: 'Correct the policy.' }] }
  const lines = statusText(seen, [], (_, plain) => plain).split('\n')
  expect(lines.slice(1, 5)).toEqual([
    '  - The traffic policy cannot be used.',
    ...[...mistakes, 'Correct the policy.'].map((line) => `      ${line}`),
  ])
})

it('says that the API has no connection yet', async () => {
  const { callLocal } = await startApi()
  const status = StatusView.parse((await callLocal('GET', '/status')).json)
  const own_endpoint = {
    ...{ domain: 'cam.site.test', url: 'https://cam.site.test', state: 'waiting' as const },
    ...{ since: status.link.since, reason: null, remedy: null, last_error: null },
    ...{ reachable: 'unknown' as const, last_probe_at: null },
  }
  const text = statusText({ ...status, own_endpoint }, [], (_, plain) => plain)
  expect(text).toContain('  API  not connected yet, https://cam.site.test\n')
})

it('shows a tunnel as checking until its service was checked', async () => {
  // The second check of a service that refused the first one is hours away.
  const upstream = { ...DEFAULT_TIMINGS.upstream, intervalMs: HOUR }
  const { agent, callLocal } = await startApi({
    agent: { timings: { ...DEFAULT_TIMINGS, upstream } },
  })
  const { server } = await serveHttp((_request, response) => response.end('hello'))
  const add = (domain: string, forwardsTo: string) =>
    agent.create({ protocol: 'http', domain, forwardsTo, policy: null })
  const text = async () => {
    const status = StatusView.parse((await callLocal('GET', '/status')).json)
    const { json } = await callLocal('GET', '/tunnels?view=status')
    const tunnels = z.array(TunnelStatusView).parse(json)
    return statusText(status, tunnels, (colour, plain) => `<${colour}>${plain}</>`)
  }

  await add('cam.site.test', 'localhost:9')
  expect(await text()).toContain('<yellow>●</> <bold>Checking the tunnel.</>\n')
  await add('door.site.test', `localhost:${server.port}`)
  await eventually(async () =>
    expect(await text()).toContain(
      '<yellow>●</> <bold>1 of 2 tunnels work. 1 is being checked.</>\n',
    ),
  )
  expect(await text()).toMatch(/cam\.site\.test\S* +<yellow>checking/)
  await agent.remove('cam.site.test')
  expect(await text()).toContain('<green>●</> <bold>The tunnel works.</>\n')
})
