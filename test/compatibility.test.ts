import { readFileSync } from 'node:fs'
import { join } from 'node:path'
import { describe, expect, it } from 'vitest'
import { Binder } from '../src/gateway/agents/binder.ts'
import { parseBind } from '../src/gateway/agents/control-message.ts'
import { EndpointUrls } from '../src/gateway/endpoints/endpoint-host.ts'
import { ACTIONS, UNAVAILABLE_ACTIONS } from '../src/policy/actions/all-actions.ts'
import { WEBHOOK_ADVICE, WEBHOOK_NAMES } from '../src/policy/actions/verify-webhook.ts'
import { checkPolicy } from '../src/policy/check.ts'
import { PHASES } from '../src/policy/phase.ts'
import {
  ADDRESS_VARIABLES,
  NO_RESULTS,
  TABLE_SETTINGS,
  UNAVAILABLE_VARIABLES,
  VARIABLES,
} from '../src/policy/vocabulary/variables.ts'
import { markdownPages } from './helpers/document-part.ts'
import { openGatewayStores } from './helpers/gateway-stores.ts'
import { serviceCode } from './helpers/service-code.ts'
import { createTlsFixture } from './helpers/tls-fixture.ts'

const DOCS = join(import.meta.dirname, '..', 'docs')
const PAGE = readFileSync(join(DOCS, 'reference/compatibility.md'), 'utf8')

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
  AllowsPooling: true,
  URL: 'https://cam.site.test',
  TLSTermination: { cert: 'UEVN', key: 'UEVN', sealed_key: null },
  ProxyProto: 2,
  WebsocketTCPConverter: {},
  PoolingEnabled: true,
  '': { of: 'tomorrow' },
}

describe('the page on compatibility', () => {
  async function openBinder() {
    const stores = openGatewayStores()
    await stores.registrar.reserve({ domain: '*.site.test' })
    const { id } = (await stores.issuer.createCredential({})).credential
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

  it.each(ROWS)('is true of the option of %s endpoints %s (%s): %s', async (...row) => {
    const [kind, , wire, here = ''] = row
    const judge = await openBinder()
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
    const names = [...own.matchAll(/`([a-z0-9_]+)`/g)].map(([, name]) => name)
    expect(names).toEqual(WEBHOOK_NAMES)
  })

  const mistakesOf = (document: object | string) =>
    checkPolicy(typeof document === 'string' ? document : JSON.stringify(document), {
      service: 'embedded',
    })
      .filter(({ severity }) => severity === 'error')
      .map(({ message }) => message)
  const policyOf = (phase: string, rule: object) => ({ [phase]: [rule] })

  it.each(rowsBelow('Actions'))('is true of the action %s in %s: %s', (name, phases, here = '') => {
    const type = code(name)
    if (here.startsWith('refused: ')) {
      const rule = { actions: [{ type, config: {} }] }
      const [mistake] = mistakesOf(policyOf('on_http_request', rule))
      expect(mistake).toContain(here.replace('refused: ', ''))
      return
    }
    const config = ACTIONS.get(type)?.example
    const own = PHASES.filter((phase) => phases === 'all' || phases?.includes(`\`${phase}\``))
    expect(own).not.toEqual([])
    for (const phase of PHASES) {
      const mistakes = mistakesOf(policyOf(phase, { actions: [{ type, config }] }))
      expect([phase, mistakes.length > 0]).toEqual([phase, !own.includes(phase)])
    }
  })

  it.each(rowsBelow('Variables'))('is true of the variable %s: %s', (name, here = '') => {
    const rule = { expressions: [`${code(name)} == ''`], actions: [{ type: 'deny' }] }
    const [mistake] = mistakesOf(policyOf('on_http_request', rule))
    expect(mistake).toContain(here.replace('refused: ', ''))
  })

  it('is true of each provider of webhooks, and of those that it says are none', () => {
    const isKnown = (provider: string) => {
      const action = { type: 'verify-webhook', config: { provider, secret: 'shared secret' } }
      return mistakesOf(policyOf('on_http_request', { actions: [action] })).length === 0
    }
    expect(WEBHOOK_NAMES.filter((name) => !isKnown(name))).toEqual([])
    const none = [...WEBHOOK_ADVICE.keys()]
    expect(none).toEqual(['mailchimp', 'orbit', 'vmware', 'vmware_workspace'])
    expect(none.filter(isKnown)).toEqual([])
  })

  it('has policies for examples, as the other pages do, that can be taken as they stand', async () => {
    const { caPem } = await createTlsFixture()
    const examples = markdownPages(DOCS).flatMap((page) => {
      const text = readFileSync(join(DOCS, page), 'utf8')
      return [...text.matchAll(/```(?:json|yaml)\n(.*?)```/gs)].flatMap(([, example = '']) =>
        /^ *"?on_(tcp_connect|http_request|http_response)"?:/m.test(example)
          ? [[page, example]]
          : [],
      )
    })
    expect(new Set(examples.map(([page]) => page))).toEqual(
      new Set([
        'guides/cameras-and-web-apps.md',
        'guides/fleets.md',
        'guides/rate-limits.md',
        'guides/sign-in.md',
        'guides/ssh-and-tcp.md',
        'reference/policies.md',
        'reference/policy-actions.md',
      ]),
    )
    for (const [page, example = ''] of examples) {
      const filled = example.replace(
        '-----BEGIN CERTIFICATE-----\\n...',
        JSON.stringify(caPem).slice(1, -1),
      )
      expect([page, mistakesOf(filled)]).toEqual([page, []])
    }
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

  it('has the variables without data, and why', () => {
    const listed = rowsBelow('Variables without data').flatMap(([names = '', why = '']) =>
      Array.from(names.matchAll(/`([^`]+)`/g), ([, name]) => [name, why]),
    )
    const without = [...VARIABLES].flatMap(([name, { noData }]) =>
      noData === undefined ? [] : [[name, noData]],
    )
    expect(listed.sort()).toEqual(without.sort())
  })

  it('has the results without data, and why', () => {
    expect(rowsBelow('Results without data')).toEqual(
      Object.entries(NO_RESULTS).map(([name, why]) => [`\`${name}\``, why]),
    )
    for (const [name, why] of Object.entries(NO_RESULTS)) {
      const [namespace = ''] = name.split('.')
      const action = [...ACTIONS.values()].find((it) => it.namespace === namespace)
      const [phase = ''] = action?.phases ?? []
      const used = { actions: [{ type: action?.type, config: action?.example }] }
      const rule = {
        expressions: [`actions.ngrok.${name} == []`],
        actions: [{ type: 'log', config: { metadata: { a: 'b' } } }],
      }
      expect(mistakesOf({ [phase]: [used, rule] })).toEqual([expect.stringContaining(why)])
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
