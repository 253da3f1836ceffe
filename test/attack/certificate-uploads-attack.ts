import { generateKeyPairSync } from 'node:crypto'
import { readFileSync } from 'node:fs'
import { threadMs } from '../../bench/tools.ts'
import { makeCertificate } from '../helpers/made-certificate.ts'
import type { Site } from '../helpers/site.ts'
import { row, type TrialRow } from '../helpers/trials.ts'
import type { AttackSite } from './attack-site.ts'

const UPLOADS = 10
const MOST_BUSY_MS = 100

interface Upload {
  readonly what: string
  readonly path: string
  readonly body: object
}

/** Uploads that must be refused: certificates for domains, and CAs of clients. */
async function badUploads(): Promise<Upload[]> {
  const good = await makeCertificate({ names: ['shop.localhost'] })
  const ca = await makeCertificate({ isCa: true })
  const names = Array.from({ length: 1_000 }, (_, n) => `n${n}.localhost`)
  const many = await makeCertificate({ names })
  const other = generateKeyPairSync('rsa', { modulusLength: 2_048 }).privateKey
  const wrong = other.export({ type: 'pkcs8', format: 'pem' }).toString()
  const { certPem, keyPem } = good
  const garbage = `-----BEGIN CERTIFICATE-----\n${'A'.repeat(30_000)}\n-----END CERTIFICATE-----\n`
  const certificate = (
    what: string,
    certificate_pem: string,
    private_key_pem = keyPem,
  ): Upload => ({
    what: `certificate: ${what}`,
    path: 'tls_certificates',
    body: { certificate_pem, private_key_pem },
  })
  const authority = (what: string, ca_pem: string): Upload => ({
    what: `CA: ${what}`,
    path: 'certificate_authorities',
    body: { ca_pem },
  })
  return [
    certificate('a file of 10 MB', 'x'.repeat(1e7)),
    certificate('begun 1,400 times', '-----BEGIN CERTIFICATE-----\n'.repeat(1_400)),
    certificate('garbage in DER', garbage),
    certificate('a wrong key', certPem, wrong),
    certificate('1,000 names', many.certPem, many.keyPem),
    certificate('a chain of 60', certPem + ca.certPem.repeat(59)),
    certificate('a private key in the chain', certPem + keyPem),
    authority('a file of 10 MB', 'x'.repeat(1e7)),
    authority('garbage in DER', garbage),
    authority('60 certificates', ca.certPem.repeat(60)),
    authority('not of a CA', certPem),
    authority('with its private key', ca.certPem + ca.keyPem),
  ]
}

/** Sends one upload many times. Each must be refused, with little time of the gateway's one thread. */
async function send({ ready, gateway }: Site, { what, path, body }: Upload): Promise<TrialRow> {
  const key = readFileSync(ready.api_key_file, 'utf8').trim()
  const headers = {
    ...{ authorization: `Bearer ${key}`, 'svc-version': '2' },
    'content-type': 'application/json',
  }
  const text = JSON.stringify(body)
  const statuses = new Set<number | string>()
  const since = threadMs(gateway.pid)
  for (let n = 0; n < UPLOADS; n += 1) {
    // The gateway may close the connection in the middle of a body that is too large.
    const url = `${ready.management_api}/${path}`
    const answer = await fetch(url, { method: 'POST', headers, body: text }).catch(() => {})
    statuses.add(answer?.status ?? 'closed')
    await answer?.arrayBuffer().catch(() => {})
  }
  const busyMs = (threadMs(gateway.pid) - since) / UPLOADS
  const isRefused = [...statuses].every((it) => it === 400 || it === 413 || it === 'closed')
  return row(
    what,
    `${[...statuses].join(', ')}; gateway busy ${busyMs.toFixed(1)} ms each`,
    `all refused, < ${MOST_BUSY_MS} ms`,
    isRefused && busyMs < MOST_BUSY_MS,
  )
}

export const attack = {
  name: 'certificate-uploads',
  what: 'uploads of certificates and CAs that are huge, garbage, of a wrong key, or too many',
  async run({ site }: AttackSite): Promise<readonly TrialRow[]> {
    const rows: TrialRow[] = []
    for (const upload of await badUploads()) rows.push(await send(site, upload))
    return rows
  },
}
