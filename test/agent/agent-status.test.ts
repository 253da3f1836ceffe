import { describe, expect, it } from 'vitest'
import { type AgentFacts, concludeStatus, type LinkStatus } from '../../src/agent/agent-status.ts'
import { shownStatus, withSurroundings } from '../../src/agent/shown-status.ts'
import type { Tunnel, TunnelStatus } from '../../src/agent/tunnel.ts'
import type { SupervisedStatus } from '../../src/agent/tunnel-supervisor.ts'
import { DEFAULT_UPSTREAM } from '../../src/agent/upstreams/upstream-options.ts'
import { type Upstream, upstreamProblem } from '../../src/agent/upstreams/upstream-state.ts'
import { verdictFrom } from '../../src/agent/verdict.ts'

const NOW = Date.UTC(2030, 0, 1)
const UP: LinkStatus = {
  state: 'up',
  since: NOW - 60_000,
  forMs: 60_000,
  serverAddr: 'gateway.test:4443',
}
const DOWN: LinkStatus = {
  state: 'waiting',
  since: NOW - 180_000,
  forMs: 180_000,
  reason: 'dns',
  remedy: 'Check the name.',
  lastError: 'no such name',
  nextRetryAt: NOW + 1,
}
const SUSPECT: LinkStatus = { ...DOWN, state: 'suspect', reason: 'network' }

let made = 0
function tunnel(change: Partial<TunnelStatus> = {}): Tunnel {
  made += 1
  const forwardsTo = `localhost:${made}`
  const status = {
    state: 'online' as const,
    since: NOW,
    upstream: 'up' as const,
    upstreamSettings: DEFAULT_UPSTREAM,
    ...change,
  }
  const seen = { isSlowLink: false, reach: { name: 'unknown' } as const }
  return {
    id: `tun_${made}`,
    spec: { protocol: 'http', forwardsTo, domain: `t${made}.test`, policy: null },
    url: `https://t${made}.test`,
    createdAt: 0,
    updatedAt: 0,
    status: { ...withSurroundings(status, seen), conditionSince: NOW, ...change },
  }
}

/** A tunnel whose service is in this state, with the problem that the agent then shows. */
function serviceIs(upstream: Upstream): Tunnel {
  const problem = upstreamProblem(`localhost:${made + 1}`, upstream, DEFAULT_UPSTREAM)
  return tunnel({
    upstream,
    ...(problem && { reason: 'upstream', remedy: problem.remedy, lastError: problem.detail }),
  })
}

function conclude(change: Partial<AgentFacts> = {}) {
  const status = concludeStatus({
    startedAt: 0,
    deviceId: 'dev_1',
    link: UP,
    tunnels: [],
    damagedRows: [],
    ownEndpoint: undefined,
    defaultPolicy: { source: 'file', loadedAt: 0 },
    resources: { name: 'enough' },
    versions: { agent: '1', node: '20', sdk: '1' },
    clock: { now: NOW, skewMs: undefined },
    ...change,
  })
  made = 0
  return { ...status, ...verdictFrom(status.serving, [...status.causes, ...status.notes]) }
}

const own = (change: object) => ({
  domain: 'agent.test',
  url: 'https://agent.test',
  state: 'online' as const,
  since: 0,
  reachable: 'yes' as const,
  ...change,
})
const refused = (reason: 'acl' | 'policy') =>
  tunnel({ state: 'refused', reason, lastError: `bad ${reason}`, remedy: 'Change it.' })

describe('the verdict', () => {
  it.each([
    ['No tunnels.', {}],
    ['The tunnel works.', { tunnels: [tunnel()] }],
    ['All 2 tunnels work.', { tunnels: [tunnel(), tunnel()] }],
    ['All 2 tunnels work.', { tunnels: [tunnel(), tunnel()], ownEndpoint: own({}) }],
  ])('is healthy: %s', (headline, facts) => {
    expect(conclude(facts)).toMatchObject({
      ...{ headline, verdict: headline, advice: [] },
      ...{ healthy: true, ready: true, notReady: [] },
    })
  })

  it('names the service that most tunnels miss, then the others, one remedy each', () => {
    const tunnels = [
      ...[tunnel(), serviceIs('slow'), serviceIs('down'), serviceIs('down'), refused('policy')],
      ...[serviceIs('untrusted'), serviceIs('garbage')],
    ]
    expect(conclude({ tunnels })).toMatchObject({
      headline:
        '1 of 7 tunnels work. Localhost:3 refuses connections (and 1 more service).'.replace(
          'L',
          'l',
        ),
      advice: [
        {
          problem: 'localhost:3 refuses connections (and 1 more service).',
          remedy: 'Start the service on localhost:3, or forward to the port that it uses.',
        },
        { problem: 'localhost:2 does not answer in time.', remedy: expect.any(String) },
        { problem: 't5.test: bad policy.', remedy: 'Change it.' },
      ],
      healthy: false,
      ready: true,
    })
  })

  it.each<[string, Tunnel]>([
    ['The tunnel does not work. localhost:1 refuses connections.', serviceIs('down')],
    ['The tunnel does not work. localhost:1 does not answer in time.', serviceIs('slow')],
    ['The tunnel is busy. localhost:1 is busy: all its connections are in use.', serviceIs('busy')],
    ['The tunnel is opening.', tunnel({ state: 'opening' })],
    ['Checking the tunnel.', serviceIs('unknown')],
    ['The tunnel does not work. The gateway does not allow t1.test.', refused('acl')],
  ])('of one tunnel: %s', (headline, only) => {
    made = 0
    const named = JSON.parse(JSON.stringify(only).replace(/\b(t|localhost:|tun_)\d+/g, '$11'))
    expect(conclude({ tunnels: [named] }).headline).toBe(headline)
  })

  it.each<[string, Upstream[]]>([
    ['2 of 3 tunnels work. 1 is being checked.', ['up', 'unknown', 'up']],
    ['Checking all 2 tunnels.', ['unknown', 'unknown']],
    ['0 of 3 tunnels work. 2 are being checked.', ['unknown', 'down', 'unknown']],
  ])('counts no tunnel as working before the first check of its service: %s', (start, states) => {
    const { headline, healthy } = conclude({ tunnels: states.map(serviceIs) })
    expect(headline.startsWith(start)).toBe(true)
    expect(healthy).toBe(!states.includes('down'))
  })

  it('counts a tunnel without checks as working, as far as the device knows', () => {
    const upstreamSettings = { ...DEFAULT_UPSTREAM, health: 'off' as const }
    const { headline } = conclude({ tunnels: [tunnel({ upstream: 'unknown', upstreamSettings })] })
    expect(headline).toBe('The tunnel works.')
  })

  it('counts no tunnel as working while the device is saturated', () => {
    const problem = { reason: 'saturated', detail: 'x', remedy: 'Wait.', permanent: false } as const
    const { status, ...rest } = tunnel()
    const seen = { isSlowLink: false, reach: { name: 'busy', problem } as const }
    const ownEndpoint = own({ reason: 'saturated', remedy: 'Wait.', reachable: 'no' })
    const tunnels = [{ ...rest, status: withSurroundings(status, seen) }]
    expect(conclude({ tunnels, ownEndpoint })).toMatchObject({
      headline: 'The tunnel is busy. Too many concurrent requests.',
      healthy: false,
      ready: true,
    })
  })

  it('says that the certificate of the gateway has expired, before anything about tunnels', () => {
    const ownEndpoint = own({
      ...{ reason: 'tls', lastError: "the gateway's certificate has expired", remedy: 'Renew it.' },
      reachable: 'no',
    })
    const tunnels = [tunnel({ condition: 'unverified' }), serviceIs('down')]
    expect(conclude({ ownEndpoint, tunnels })).toMatchObject({
      headline: "1 of 2 tunnels are online. The gateway's certificate has expired.",
      advice: [
        { problem: "The gateway's certificate has expired.", remedy: 'Renew it.' },
        { problem: 'localhost:2 refuses connections.' },
      ],
      healthy: false,
      unverified: [],
    })
  })

  it('says that the link is slow, with its figures, and calls no device unhealthy for that', () => {
    const link = { ...UP, latencyMs: 1_400 }
    expect(conclude({ link, tunnels: [tunnel({ condition: 'slow_link' })] })).toMatchObject({
      headline: 'The tunnel works. The link is slow: a round trip takes 1.4 s.',
      healthy: true,
    })
    expect(conclude({ link: { ...link, latencyMs: 999 }, tunnels: [tunnel()] }).headline).toBe(
      'The tunnel works.',
    )
  })

  it('tells of an unstable link, but not beside a decision of the gateway', () => {
    const problems = (change: Partial<LinkStatus>) =>
      conclude({ link: { ...DOWN, losses: 4, ...change } }).advice.map(({ problem }) => problem)
    const unstable = 'The link is lost again and again: 4 times in 10 minutes.'
    expect(problems({})).toEqual([expect.any(String), unstable])
    for (const state of ['refused', 'parked', 'duplicate'] as const) {
      expect(problems({ state, reason: 'auth', lastError: 'no' })).toEqual(['No.'])
    }
  })

  it.each<[string, string, Partial<LinkStatus>]>([
    [
      'The session cannot be renewed.',
      'The session cannot be renewed: refused. Put a valid one there.',
      { renewal: { reason: 'auth', remedy: 'Put a valid one there.', lastError: 'refused' } },
    ],
    [
      'A second device has the identity of this device: 10.0.0.3.',
      'A second device has the identity of this device: 10.0.0.3. Stop the agent on one of the two devices: after a move, on the old device. To keep both, run device-agent identity reset --yes on the copy.',
      { duplicate: { ip: '10.0.0.3', seenAt: NOW } },
    ],
    [
      'No standby connection to b.test:1.',
      'No standby connection to b.test:1: gone. Check it.',
      {
        standby: {
          state: 'waiting',
          serverAddr: 'b.test:1',
          reason: 'network',
          lastError: 'gone',
          remedy: 'Check it.',
        },
      },
    ],
  ])('tells what is wrong beside working tunnels: %s', (_short, line, change) => {
    const { headline, advice, healthy, ready } = conclude({
      tunnels: [tunnel()],
      link: { ...UP, ...change },
    })
    expect(headline.startsWith('The tunnel works. ')).toBe(true)
    expect(advice.map(({ problem, remedy }) => `${problem} ${remedy}`)).toEqual([line])
    expect([healthy, ready]).toEqual([false, true])
  })

  it('is healthy while the second session is being connected', () => {
    const standby = { state: 'connecting', serverAddr: 'b.test:1' } as const
    expect(conclude({ tunnels: [tunnel()], link: { ...UP, standby } }).healthy).toBe(true)
  })

  it('says that a change is not in effect, while the previous version serves', () => {
    const kept = { reason: 'policy', lastError: 'bad', remedy: 'Correct it.' } as const
    expect(conclude({ tunnels: [tunnel(kept)], ownEndpoint: own(kept) })).toMatchObject({
      headline: 'The tunnel works. The change of t1.test is not in effect.',
      advice: [
        { problem: 't1.test: bad.', remedy: 'Correct it.' },
        { problem: 'The change of agent.test is not in effect: bad.', remedy: 'Correct it.' },
      ],
      healthy: false,
      ready: true,
    })
  })

  it.each<[string, string, Partial<LinkStatus>]>([
    ['gw.test cannot be resolved by DNS.', 'gw.test cannot be resolved by DNS.', {}],
    [
      'The gateway refuses the authtoken.',
      'No.',
      { state: 'refused', reason: 'auth', lastError: 'no' },
    ],
    [
      'A limit of the account is reached.',
      'No.',
      { state: 'refused', reason: 'limit', lastError: 'no' },
    ],
    [
      'The gateway refuses this device.',
      'No.',
      { state: 'refused', reason: 'acl', lastError: 'no' },
    ],
    ['The gateway told this device to stop.', 'No.', { state: 'parked', lastError: 'no' }],
    ['Another device has the same identity.', 'No.', { state: 'duplicate', lastError: 'no' }],
    [
      'The public address does not answer.',
      'No.',
      { state: 'suspect', reason: 'network', lastError: 'no' },
    ],
  ])('names the problem of the link once for all tunnels: %s', (short, problem, change) => {
    const waiting = { state: 'waiting', reason: 'dns', lastError: 'x' } as const
    const status = conclude({
      link: {
        ...DOWN,
        serverAddr: 'gw.test:1',
        lastError: 'gw.test cannot be resolved by DNS',
        ...change,
      },
      tunnels: [tunnel(waiting), tunnel(waiting)],
      ownEndpoint: own({ state: 'waiting', reason: 'dns' }),
    })
    expect(status).toMatchObject({
      headline: `0 of 2 tunnels work. ${short}`,
      advice: [{ problem, remedy: 'Check the name.' }],
      healthy: false,
      ready: false,
    })
  })

  it('says that it connects, and not that the service is unreachable, before the first try', () => {
    const link = { state: 'waiting', since: NOW, forMs: 0, serverAddr: 'gw.test:1' } as const
    expect(conclude({ link })).toMatchObject({
      headline: 'No tunnels. Connecting to gw.test:1.',
      advice: [],
      notReady: ['There is no link to the gateway.'],
    })
  })

  it('is not ready while tunnels are being opened or the API is not online', () => {
    expect(conclude({ tunnels: [tunnel({ state: 'opening' })] }).notReady).toEqual([
      '1 tunnel still opening.',
    ])
    expect(conclude({ ownEndpoint: own({ state: 'waiting' }) }).notReady).toEqual([
      'The agent API is not online.',
    ])
  })

  it.each(['waiting', 'refused'])('says why the API is %s and what to do', (state) => {
    const ownEndpoint = own({ state, reason: 'acl', lastError: 'no', remedy: 'Widen the ACL.' })
    expect(conclude({ ownEndpoint })).toMatchObject({
      headline: 'No tunnels. The agent API is not online at agent.test.',
      advice: [
        { problem: 'The agent API is not online at agent.test: no.', remedy: 'Widen the ACL.' },
      ],
      healthy: false,
    })
  })

  it('tells of damaged rows, of a bad default policy and of the authtoken file', () => {
    const { headline, advice, healthy } = conclude({
      damagedRows: [{ id: 'tun_x', domain: 'x.test', problem: 'the checksum is wrong' }],
      defaultPolicy: { source: 'kept', loadedAt: 0, problem: 'The default policy is bad.' },
      authtokenProblem: 'cannot use the authtoken file: it is empty. Write an authtoken to /a',
    })
    expect(headline).toBe('No tunnels. The stored tunnel x.test is damaged.')
    expect(advice.map(({ problem, remedy }) => `${problem} ${remedy}`)).toEqual([
      'The stored tunnel x.test is damaged. Create it again.',
      'The default policy is bad. Correct the file. Until then, the last valid policy is in effect.',
      'Cannot use the authtoken file: it is empty. Write an authtoken to /a.',
    ])
    expect(healthy).toBe(false)
  })

  it('says where to correct a policy that new checks refuse', () => {
    const outdated = tunnel({ policyWarning: 'no action.' })
    const withPolicy = { ...outdated, spec: { ...outdated.spec, policy: { on_http_request: [] } } }
    const defaultPolicy = { source: 'file', loadedAt: 0, path: '/etc/a/policy.json' } as const
    const remedy = (...tunnels: Tunnel[]) => conclude({ tunnels, defaultPolicy }).notes[0]?.remedy
    expect(remedy(withPolicy)).toBe('Correct the policy and replace the tunnel.')
    expect(remedy(outdated)).toBe('Correct the default policy (/etc/a/policy.json).')
  })

  it.each([
    [59_000, 'No tunnels.'],
    [400_000, 'No tunnels. The device clock is 7 min ahead of the gateway.'],
    [-86_400_000, 'No tunnels. The device clock is 24 h behind the gateway.'],
  ])('tells of a clock that is %i ms off', (skewMs, headline) => {
    expect(conclude({ clock: { now: NOW, skewMs } }).headline).toBe(headline)
  })

  it('says first what the process has none left of', () => {
    const problem = {
      reason: 'resources',
      detail: 'd',
      remedy: 'Do it.',
      permanent: false,
    } as const
    const tunnels = [serviceIs('slow'), tunnel()]
    expect(conclude({ tunnels, resources: { name: 'descriptors', problem } })).toMatchObject({
      headline: '1 of 2 tunnels work. The agent has no open files left.',
      advice: [{ remedy: 'Do it.' }, { problem: 'localhost:1 does not answer in time.' }],
      healthy: false,
      ready: false,
      notReady: ['The agent is out of descriptors.'],
    })
  })

  const unverified = own({
    reachable: 'unverified',
    reason: 'network',
    remedy: 'Try it from elsewhere.',
  })

  it('says that only this device does not reach its address, which is no trouble', () => {
    const tunnels = [tunnel({ condition: 'unverified' })]
    expect(conclude({ tunnels, ownEndpoint: unverified })).toMatchObject({
      headline: 'The tunnel is online. This device cannot reach its public address.',
      healthy: true,
      ready: true,
      unverified: ['This device cannot reach agent.test itself (network). Try it from elsewhere.'],
    })
    const domain = 'cam01.with-a-long-name.site.example.com'
    const named = conclude({ tunnels, ownEndpoint: { ...unverified, domain } })
    expect(named.headline).not.toContain('…')
    expect(named.advice[0]?.problem).toBe(`This device cannot reach ${domain} itself (network).`)
    expect(conclude({ link: DOWN, ownEndpoint: unverified }).unverified).toEqual([])
    const waiting = { ...unverified, state: 'waiting' as const }
    expect(conclude({ ownEndpoint: waiting }).unverified).toEqual([])
  })
})

describe('shownStatus', () => {
  const supervised = (change: Partial<SupervisedStatus>): SupervisedStatus => ({
    state: 'online',
    since: NOW,
    problem: undefined,
    nextRetryAt: undefined,
    ...change,
  })

  it('is the own status on a link that is up', () => {
    expect(shownStatus(supervised({}), UP, 'up')).toEqual({
      state: 'online',
      since: NOW,
      upstream: 'up',
    })
    const problem = {
      reason: 'acl',
      detail: 'not yours',
      remedy: 'Ask.',
      permanent: true,
      serviceCode: 'ERR_NGROK_316',
    } as const
    expect(
      shownStatus(supervised({ state: 'refused', problem, nextRetryAt: 5 }), UP, 'down'),
    ).toEqual({
      state: 'refused',
      since: NOW,
      upstream: 'down',
      nextRetryAt: 5,
      reason: 'acl',
      serviceCode: 'ERR_NGROK_316',
      remedy: 'Ask.',
      lastError: 'not yours',
    })
  })

  it.each([DOWN, SUSPECT])('never claims online on a link that is $state', (link) => {
    expect(shownStatus(supervised({ since: 0 }), link, 'up')).toEqual({
      state: 'waiting',
      since: link.since,
      upstream: 'up',
      reason: link.reason,
      remedy: link.remedy,
      lastError: link.lastError,
      serviceCode: undefined,
      nextRetryAt: link.nextRetryAt,
    })
  })

  it('has the reason of the link while it waits for it', () => {
    const waiting = supervised({ state: 'waiting' })
    expect(shownStatus(waiting, DOWN, 'unknown')).toMatchObject({ state: 'waiting', reason: 'dns' })
  })

  it('is opening on a suspect link, and closing whatever the link does', () => {
    expect(shownStatus(supervised({ state: 'opening' }), SUSPECT, 'up').state).toBe('opening')
    expect(shownStatus(supervised({ state: 'opening' }), DOWN, 'up').state).toBe('waiting')
    expect(shownStatus(supervised({ state: 'closing' }), DOWN, 'up').state).toBe('closing')
  })
})
