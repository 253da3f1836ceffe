import { once } from 'node:events'
import { readFileSync } from 'node:fs'
import { connect } from 'node:net'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { AttackSite } from './attack-site.ts'

const KIB_64 = 65_536
const ROUNDS = 200
const PARALLEL = 20
const MEMORY_MB = 60
const CANARY = '<script>alert(1)</script>'
const OWN = `<!doctype html><title>{{title}}</title><a title="{{host}} {{message}}">{{host}}</a>{{code}}`

/** Pages that must be refused: each with its way into a script, a huge answer or broken text. */
const BAD_PAGES: Readonly<Record<string, string>> = {
  'one byte too many': 'x'.repeat(KIB_64 + 1),
  'deep placeholders': `${'{{'.repeat(10_000)}status${'}}'.repeat(10_000)}`,
  'thousands of placeholders': '{{message}}'.repeat(5_000),
  'a placeholder in a script': '<script>x = "{{host}}"</script>',
  'a placeholder in an event handler': `<a onclick="x('{{message}}')">x</a>`,
  'a placeholder without quotes': '<a title={{host}}>x</a>',
  'a placeholder in the name of a tag': '<{{host}}>',
  'half a surrogate pair': 'x\ud800y',
  'a NUL': 'x\0y',
}

/** Heads of visitors with a script in each place that a page might show. */
const BAD_HEADS = [
  `GET / HTTP/1.1\r\nHost: ${CANARY}.site.localhost`,
  `GET /${encodeURI(CANARY)}?${CANARY} HTTP/1.1\r\nHost: away.site.localhost`,
  `GET / HTTP/1.1\r\nHost: away.site.localhost\r\nX-Request-Id: ${CANARY}\r\nReferer: ${CANARY}`,
  `GET / HTTP/1.1\r\nHost: away.site.localhost\r\nX-Forwarded-Host: ${CANARY}\r\nUser-Agent: ${CANARY}`,
  `GET / HTTP/1.1\r\nHost: "onclick=alert(1)".site.localhost`,
  `GET / HTTP/1.1\r\nHost: away.site.localhost\r\nCookie: ${CANARY}\r\nOrigin: ${CANARY}`,
]

async function visit(site: AttackSite, head: string): Promise<string> {
  const socket = connect(site.ingress)
  let text = ''
  socket.setEncoding('latin1').on('data', (part) => {
    text += part
  })
  socket.on('error', () => {})
  socket.write(Buffer.from(`${head}\r\nAccept: text/html\r\nConnection: close\r\n\r\n`, 'latin1'))
  await once(socket, 'close')
  return text
}

/** A page with bytes of its own; `manage` of the site encodes its body. */
function send(site: AttackSite, body: string | Uint8Array<ArrayBuffer>): Promise<Response> {
  const { management_api: api, api_key_file: keyFile } = site.site.ready
  const authorization = `Bearer ${readFileSync(keyFile, 'utf8').trim()}`
  const headers = { authorization, 'svc-version': '2', 'content-type': 'application/json' }
  return fetch(`${api}/error_pages`, { method: 'POST', headers, body })
}

const setPage = (site: AttackSite, html: string) =>
  site.site.manage('POST', '/error_pages', { kind: 'default', html })

async function refusals(site: AttackSite): Promise<TrialRow> {
  const pages = Object.entries(BAD_PAGES)
  const answers = await Promise.all(pages.map(([, html]) => setPage(site, html)))
  const latin1 = await send(site, Buffer.from('{"kind":"default","html":"Gerät"}', 'latin1'))
  const huge = await send(site, JSON.stringify({ kind: 'default', html: 'x'.repeat(5_000_000) }))
  const statuses = [...answers, latin1, huge].map(({ status }) => status)
  const taken = pages.filter((_, at) => answers[at]?.status !== 400).map(([name]) => name)
  const isMet = taken.length === 0 && latin1.status === 400 && huge.status === 413
  const measured = [...new Set(statuses)].join(', ') + taken.map((name) => `; ${name}`).join('')
  return row(`${statuses.length} bad pages`, measured, '400, 413', isMet)
}

async function scripts(site: AttackSite, what: string): Promise<TrialRow> {
  const answers = await Promise.all(BAD_HEADS.map((head) => visit(site, head)))
  const count = answers.filter((text) => /<script>|"onclick/i.test(text)).length
  const errors = answers.filter((text) => /^HTTP\/1\.1 [45]\d\d /.test(text)).length
  const isMet = count === 0 && errors === answers.length
  return row(what, `${count} of ${errors} answers have it`, 'none, all are errors', isMet)
}

/** Many visitors at names that do not exist, while the page is as large as it may be. */
async function flood(site: AttackSite): Promise<TrialRow> {
  const before = site.gatewayMb
  let whole = 0
  for (let round = 0; round < ROUNDS / PARALLEL; round += 1) {
    const heads = Array.from({ length: PARALLEL }, (_, at) => {
      return `GET / HTTP/1.1\r\nHost: n${round}-${at}.nobody.localhost`
    })
    const answers = await Promise.all(heads.map((head) => visit(site, head)))
    whole += answers.filter((text) => text.length > KIB_64).length
  }
  const grown = site.gatewayMb - before
  const measured = `${whole} of ${ROUNDS} whole, ${grown.toFixed(0)} MB more`
  return row(
    'visitors of 200 names, a page of 64 KiB',
    measured,
    `all, < ${MEMORY_MB} MB`,
    whole === ROUNDS && grown < MEMORY_MB,
  )
}

export const attack = {
  name: 'error-pages',
  what: 'scripts, huge files, deep placeholders and wrong encodings against error pages',
  async run(site: AttackSite): Promise<readonly TrialRow[]> {
    const refused = await refusals(site)
    const standard = await scripts(site, 'a script in a head, on the default page')
    const made = await setPage(site, OWN)
    if (made.status !== 201) throw new Error(`no page: ${await made.text()}`)
    const own = await scripts(site, 'a script in a head, on an own page')
    const { id } = (await made.json()) as { id: string }
    const html = `${'x'.repeat(KIB_64 - 8)}{{host}}`
    await site.site.manage('PATCH', `/error_pages/${id}`, { html })
    return [refused, standard, own, await flood(site)]
  },
}
