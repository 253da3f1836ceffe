import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Binder } from '../src/gateway/agents/binder.ts'
import { parseBind } from '../src/gateway/agents/control-message.ts'
import { EndpointUrls } from '../src/gateway/endpoints/endpoint-urls.ts'
import { ACTIONS, UNAVAILABLE_ACTIONS } from '../src/policy/actions/all-actions.ts'
import { WEBHOOK_PROVIDERS } from '../src/policy/outbound/webhook-signature.ts'
import { PHASES } from '../src/policy/phase.ts'
import { ADDRESS_VARIABLES, TABLE_SETTINGS } from '../src/policy/vocabulary/address-variables.ts'
import { UNAVAILABLE_VARIABLES } from '../src/policy/vocabulary/variables.ts'
import { openGatewayStores } from './helpers/gateway-stores.ts'
import { serviceCode } from './helpers/service-code.ts'

const PAGE = readFileSync(join(import.meta.dirname, '..', 'docs', 'compatibility.md'), 'utf8')

/** The rows of the table below a heading, as cells. */
function rowsBelow(heading: string): string[][] {
  const [, section = ''] = PAGE.split(`\n## ${heading}\n`)
  const [own = ''] = section.split('\n## ')
  const lines = own.split('\n').filter((line) => line.startsWith('|'))
  return lines.slice(2).map((line) =>
    line
      .slice(1, -1)
      .split('|')
      .map((cell) => cell.trim()),
  )
}

const code = (cell = '') => /`([^`]+)`/.exec(cell)?.[1] ?? ''

/** As clients of those days send each option. */
const SENT: Readonly<Record<string, unknown>> = {
  IPRestriction: { allow_cidrs: ['10.0.0.0/8'], deny_cidrs: null },
  IPPolicyRef: 'ipp_office',
  UserAgentFilter: { allow: ['^curl/.*'], deny: ['(?i)bot'] },
  BasicAuth: { credentials: [{ username: 'ann', cleartext_password: 'a long password' }] },
  Auth: 'ann:a long password',
  WebhookVerification: { provider: 'github', secret: 'shared' },
  CircuitBreaker: { error_threshold: 0.5 },
  RequestHeaders: { add: ['x-a:2'], remove: ['x-b'] },
  ResponseHeaders: { add: ['x-c:2'], remove: ['x-d'] },
  Compression: {},
  TrafficPolicy: '{"on_http_request": []}',
  Policy: { Inbound: [], Outbound: null },
  HostHeaderRewrite: true,
  OAuth: { provider: 'google', client_id: 'id', client_secret: 'secret' },
  ForwardsProto: 'http2',
  OIDC: { issuer_url: 'https://id.test', client_id: 'id', client_secret: 'secret' },
  MutualTLSCA: { mutual_tls_ca: 'UEVN' },
  MutualTLSAtEdge: { mutual_tls_ca: 'UEVN' },
  MutualTLSAtAgent: true,
  TLSTermination: { cert: 'UEVN', key: 'UEVN', sealed_key: null },
  ProxyProto: 2,
  WebsocketTCPConverter: {},
  PoolingEnabled: true,
  '': { of: 'tomorrow' },
}

describe('the page on compatibility', () => {
  function openBinder() {
    const stores = openGatewayStores()
    stores.registrar.reserve({ domain: '*.site.test' })
    const { id } = stores.issuer.createCredential({}).credential
    const who = { credentialId: id, ownerId: null }
    const binder = new Binder({ ...stores, urls: new EndpointUrls({ http: 80, https: 443 }) })
    return (option: string, Proto = 'https') => {
      const asked = { [option || 'OfTomorrow']: SENT[option] }
      // It stands beside the options.
      const more = option === 'ForwardsProto' ? { ...asked, Opts: {} } : { Opts: asked }
      return binder.judge(parseBind({ Id: '', Proto, ForwardsTo: ':1', ...more }), who)
    }
  }

  const ROWS = ['HTTP', 'TLS'].flatMap((kind) =>
    rowsBelow(`Options of ${kind} endpoints`).map((row) => [kind, ...row]),
  )

  it.each(ROWS)('is true of the option of %s endpoints %s (%s): %s', (...row) => {
    const [kind, , wire, here = ''] = row
    const judge = openBinder()
    const option = code(wire)
    const protocol = kind === 'TLS' ? 'tls' : 'https'
    expect(SENT).toHaveProperty([option])
    if (here.startsWith('refused')) {
      expect(`\`ERR_NGROK_${serviceCode(() => judge(option, protocol))}\``).toBe(
        here.replace('refused: ', ''),
      )
      return
    }
    const { on_tcp_connect, on_http_request, on_http_response } =
      judge(option, protocol).around ?? {}
    const phases = [on_tcp_connect, on_http_request, on_http_response]
    const rules = phases.flatMap((list) => list ?? [])
    const actions = new Set(rules.flatMap((rule) => rule.actions.map(({ type }) => type)))
    for (const [, action = ''] of here.matchAll(/`([a-z-]+)`/g)) {
      expect(actions).toContain(action)
    }
  })

  it('has a row for each option that was ever seen', () => {
    const rows = new Set(ROWS.map(([, , wire]) => code(wire)))
    expect([...rows].sort()).toEqual(Object.keys(SENT).sort())
  })

  it('has each action, with its phases, and why there is none of others', () => {
    const phasesOf = (phases: readonly string[]) =>
      phases.length === PHASES.length ? 'all' : phases.map((phase) => `\`${phase}\``).join(', ')
    expect(rowsBelow('Actions')).toEqual([
      ...[...ACTIONS.values()].map(({ type, phases }) => [
        `\`${type}\``,
        phasesOf(phases),
        'works',
      ]),
      ...[...UNAVAILABLE_ACTIONS].map(([type, why]) => [`\`${type}\``, '', `refused: ${why}`]),
    ])
  })

  it('names the providers of webhooks', () => {
    const [, section = ''] = PAGE.split('### Providers of webhooks')
    const [own = ''] = section.split('\n## ')
    const names = [...own.matchAll(/`([a-z_]+)`/g)].map(([, name]) => name)
    expect(names).toEqual(Object.keys(WEBHOOK_PROVIDERS))
  })

  it('says which variables need which table', () => {
    const rows = rowsBelow('Tables of addresses').map(([start, setting]) => [
      code(start),
      code(setting),
    ])
    for (const [name, { table }] of Object.entries(ADDRESS_VARIABLES)) {
      const fitting = rows.filter(([start]) => name.startsWith(`${start}.`))
      expect([name, ...fitting.map(([, setting]) => setting)]).toEqual([
        name,
        TABLE_SETTINGS[table],
      ])
    }
    for (const [start] of rows) {
      expect(Object.keys(ADDRESS_VARIABLES).some((name) => name.startsWith(`${start}.`))).toBe(true)
    }
  })

  it('has the variables that cannot be', () => {
    expect(rowsBelow('Variables')).toEqual(
      Object.entries(UNAVAILABLE_VARIABLES).map(([start, why]) => [
        `\`${start}\``,
        `refused: ${why}`,
      ]),
    )
  })
})
