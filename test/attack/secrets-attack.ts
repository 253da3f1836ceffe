import { readFileSync } from 'node:fs'
import { threadMs } from '../../bench/tools.ts'
import { publicRequest } from '../helpers/public-request.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { AttackSite } from './attack-site.ts'

const CANARY = 'canary-5c1e-of-the-vault'
const GET = "secrets.get('site', 'key')"
const VALUES = 20
const MOST_BUSY_MS = 100

interface Answer {
  readonly status: number
  readonly text: string
  readonly json: Readonly<Record<string, string>>
}

/** Expressions and actions that would print the secret of another account. */
const PRINTS: readonly object[] = [
  ...[
    GET,
    `${GET}.upperAscii()`,
    `actions.ngrok.log.missing || ${GET}`,
    `${GET} + ''`,
    `[${GET}][0]`,
    `{'a': ${GET}}['a']`,
    `true ? ${GET} : ''`,
    `sha256(${GET})`,
    `secrets['get']('site', 'key')`,
    `secrets.get('si' + 'te', 'key')`,
    'secrets',
    "vars.site + secrets.get('*', '*')",
  ].map((source) => ({
    type: 'custom-response',
    config: { status_code: 200, body: `\${${source}}` },
  })),
  { type: 'add-headers', config: { headers: { 'x-a': `\${${GET}}` } } },
  { type: 'redirect', config: { to: `https://a.test/\${${GET}}` } },
  { type: 'url-rewrite', config: { from: '.*', to: `/\${${GET}}` } },
  { type: 'set-vars', config: { vars: [{ a: `\${${GET}}` }] } },
  { type: 'log', config: { metadata: { a: `\${${GET}}` } } },
  { type: 'basic-auth', config: { credentials: [`tom:\${${GET}}`] } },
]

/** Asks the management API with a key. */
function apiOf({ site: { ready } }: AttackSite, key: string) {
  return async (path: string, body: object): Promise<Answer> => {
    const headers = {
      ...{ authorization: `Bearer ${key}`, 'svc-version': '2' },
      'content-type': 'application/json',
    }
    const init = { method: 'POST', headers, body: JSON.stringify(body) }
    const answer = await fetch(`${ready.management_api}/${path}`, init)
    const text = await answer.text()
    return { status: answer.status, text, json: JSON.parse(text) }
  }
}

type Api = ReturnType<typeof apiOf>

/** A policy of another account with each way to print, and what its visitors and its API show. */
async function prints(site: AttackSite, owner: Api): Promise<TrialRow> {
  const { json: a } = await owner('bot_users', { name: 'a' })
  const { json: vault } = await owner('vaults', { name: 'site', owner_id: a.id })
  await owner('vault_secrets', { vault_id: vault.id, name: 'key', value: CANARY })
  const { json: b } = await owner('bot_users', { name: 'b' })
  await owner('reserved_domains', { domain: '*.b.localhost', owner_id: b.id })
  const { json: key } = await owner('api_keys', { owner_id: b.id, owner_only: true })
  const tenant = apiOf(site, key.token ?? '')
  const seen: string[] = []
  let refused = 0
  for (const [at, action] of PRINTS.entries()) {
    const host = `n${at}.b.localhost`
    const respond = { type: 'custom-response', config: { status_code: 200, body: 'x' } }
    const policy = { on_http_request: [{ actions: [action] }, { actions: [respond] }] }
    const body = { url: `http://${host}`, traffic_policy: JSON.stringify(policy) }
    const made = await tenant('endpoints', body)
    if (made.status >= 400) refused += 1
    const visit = await publicRequest({ ingress: site.site.ready.ingress_http, host })
    seen.push(made.text, visit.text, JSON.stringify(visit.headers))
  }
  const shown = seen.filter((text) => /canary/i.test(text)).length
  return row(
    `${PRINTS.length} ways to print a secret of another account`,
    `${refused} refused, ${shown} show it`,
    'all refused, none shows it',
    shown === 0 && refused === PRINTS.length,
  )
}

/** Values that must be refused, with little time of the gateway's one thread. */
async function values(site: AttackSite, owner: Api): Promise<TrialRow[]> {
  await owner('vaults', { name: 'values' })
  const rows: TrialRow[] = []
  for (const [what, value] of [
    ['of one letter', 'x'],
    ['of 5,000 bytes', 'x'.repeat(5_000)],
    ['of 10 MB', 'x'.repeat(1e7)],
  ] as const) {
    const { pid } = site.site.gateway
    const statuses = new Set<number | string>()
    const since = threadMs(pid)
    for (let n = 0; n < VALUES; n += 1) {
      const body = { vault_name: 'values', name: `n${n}`, value }
      const answer = await owner('vault_secrets', body).catch(() => undefined)
      statuses.add(answer?.status ?? 'closed')
    }
    const busyMs = (threadMs(pid) - since) / VALUES
    const isRefused = [...statuses].every((it) => it === 400 || it === 413 || it === 'closed')
    rows.push(
      row(
        `a value ${what}`,
        `${[...statuses].join(', ')}; gateway busy ${busyMs.toFixed(1)} ms each`,
        `all refused, < ${MOST_BUSY_MS} ms`,
        isRefused && busyMs < MOST_BUSY_MS,
      ),
    )
  }
  return rows
}

export const attack = {
  name: 'secrets',
  what: 'policies that print the secret of another account, and values that are huge',
  async run(site: AttackSite): Promise<readonly TrialRow[]> {
    const owner = apiOf(site, readFileSync(site.site.ready.api_key_file, 'utf8').trim())
    return [await prints(site, owner), ...(await values(site, owner))]
  },
}
