// biome-ignore-all lint/suspicious/noTemplateCurlyInString: interpolations of policies
import { X509Certificate } from 'node:crypto'
import { describe, expect, it } from 'vitest'
import { ConnectionCertificate } from '../../../../src/gateway/ingress/common/connection-facts.ts'
import { PolicyError } from '../../../../src/policy/document/problem.ts'
import type { TlsEnding, TlsTerms } from '../../../../src/policy/exchange/outcome.ts'
import {
  PolicyExchange,
  type SessionCertificate,
} from '../../../../src/policy/exchange/policy-exchange.ts'
import { toJson } from '../../../../src/policy/expression/value.ts'
import { VARIABLES } from '../../../../src/policy/vocabulary/variables.ts'
import { createCertificate } from '../../../helpers/policy-certificate.ts'
import { createExchange, PolicyBench } from '../../../helpers/policy-exchange.ts'
import { createAuthority } from '../../../helpers/tls-fixture.ts'

const { caPem, issue } = await createAuthority()
const [leaf, other] = [await issue(), await issue()]
const own = { server_certificate: leaf.certPem, server_private_key: leaf.keyPem }
const mtls = { mutual_tls_certificate_authorities: [caPem] }

const policyOf = (config: object) => ({
  on_tcp_connect: [{ actions: [{ type: 'terminate-tls', config }] }],
})

/** The terms that a configuration comes to, and what the connection comes to with them. */
async function run(
  config: object,
  ending: TlsEnding = 'ended',
  certificateAuthority?: (id: string) => string | undefined,
) {
  const asked: TlsTerms[] = []
  const { connection, endpoint } = createExchange({
    connection: {
      tls: { version: 'TLSv1.3', cipherSuite: 'TLS_AES', serverName: 'a.test', alpn: '' },
    },
  })
  const exchange = new PolicyExchange({
    connection,
    endpoint,
    endTls: (terms) => {
      asked.push(terms)
      return ending
    },
  })
  const outcome = await new PolicyBench(policyOf(config), {
    certificateAuthority,
  }).policy.onTcpConnect(exchange)
  const result = exchange.results.get('terminate_tls')
  return { terms: asked[0], outcome, result: result && toJson(result) }
}

/** Pointer and code of each problem. */
function problemsOf(config: object, reach: object = {}): [string, string][] {
  try {
    new PolicyBench(policyOf(config), reach)
    return []
  } catch (error) {
    if (!(error instanceof PolicyError)) throw error
    for (const { message } of error.problems) expect(message).not.toContain('PRIVATE KEY')
    const root = '/on_tcp_connect/0/actions/0/config'
    return error.problems.map(({ pointer, code }) => [pointer.replace(`${root}/`, ''), code])
  }
}

describe('terminate-tls', () => {
  it('asks nobody for a certificate unless it says so', async () => {
    const { terms, outcome, result } = await run({})
    expect(terms).toMatchObject({
      minVersion: 'TLSv1.2',
      maxVersion: 'TLSv1.3',
      own: undefined,
      clientCertificates: 'none',
      authorities: [],
    })
    expect(outcome).toEqual({ kind: 'continue' })
    expect(result).toMatchObject({ cipher_suite: 'TLS_AES', sni: 'a.test', version: '1.3' })
  })

  it('hands the certificates of both sides on, with the fields that conn.tls has', async () => {
    const pem = await createCertificate({
      name: 'CN=device 7, O=Org',
      dns: ['a.test'],
      ip: [],
      email: [],
      url: [],
    })
    const certificate = new ConnectionCertificate(new X509Certificate(pem))
    const tls = { version: 'TLSv1.3', cipherSuite: '', serverName: 'a.test', alpn: '' }
    const passes = async (expression: string, clientCertificate?: SessionCertificate) => {
      const rules = [
        ...policyOf({}).on_tcp_connect,
        { expressions: [expression], actions: [{ type: 'deny' }] },
      ]
      const { connection, endpoint } = createExchange({
        connection: { tls: { ...tls, serverCertificate: certificate, clientCertificate } },
      })
      const exchange = new PolicyExchange({ connection, endpoint, endTls: () => 'ended' })
      const { policy } = new PolicyBench({ on_tcp_connect: rules })
      return (await policy.onTcpConnect(exchange)).kind === 'continue'
    }
    const names = [...VARIABLES.keys()].filter((name) => /^conn\.tls\.(client|server)\./.test(name))
    expect(names.length).toBeGreaterThan(50)
    for (const root of ['actions.ngrok', 'actions.svc']) {
      const result = (name: string) => name.replace('conn.tls', `${root}.terminate_tls`)
      const same = names.map((name) => `${result(name)} == ${name}`).slice(0, 30)
      for (const expression of same)
        expect(await passes(`!(${expression})`, certificate)).toBe(true)
      const subject = result('conn.tls.client.subject')
      expect(await passes(`${subject}.common_name == 'device 7'`, certificate)).toBe(false)
      expect(await passes(`has(${subject})`, certificate)).toBe(false)
      expect(await passes(`has(${subject})`)).toBe(true)
    }
  })

  it.each([
    [mtls, 'require-and-verify'],
    [{ ...mtls, mutual_tls_verification_strategy: 'request' }, 'request'],
    [{ mutual_tls_verification_strategy: 'require-any' }, 'require-any'],
  ])('has its way with certificates of clients: %#', async (config, expected) => {
    expect((await run(config)).terms?.clientCertificates).toBe(expected)
  })

  it('takes authorities apart, a bundle too', async () => {
    const second = (await createAuthority()).caPem
    const bundle = { mutual_tls_certificate_authorities: [`${caPem}\nand\n${second}\n`] }
    expect((await run(bundle)).terms?.authorities).toEqual([caPem.trim(), second.trim()])
  })

  it('takes authorities by id, as they are at each connection', async () => {
    const known = new Map([['ca_2b3c', `${caPem}${caPem}`]])
    const certificateAuthority = (id: string) => known.get(id)
    const config = { mutual_tls_certificate_authorities: ['ca_2b3c', caPem] }
    const pem = caPem.trim()
    const { terms } = await run(config, 'ended', certificateAuthority)
    expect(terms?.authorities).toEqual([pem, pem, pem])
    expect(terms?.clientCertificates).toBe('require-and-verify')

    const at = 'mutual_tls_certificate_authorities/0'
    const missing = { mutual_tls_certificate_authorities: ['ca_none'] }
    expect(problemsOf(missing, { certificateAuthority })).toEqual([[at, 'ERR_NGROK_2216']])
    // A device does not know the authorities of its gateway.
    expect(problemsOf(missing)).toEqual([])

    const asked: TlsTerms[] = []
    const { connection, endpoint } = createExchange()
    const { policy } = new PolicyBench(policyOf(config), { certificateAuthority })
    const connect = () => {
      const endTls = (wanted: TlsTerms): TlsEnding => {
        asked.push(wanted)
        return 'ended'
      }
      return policy.onTcpConnect(new PolicyExchange({ connection, endpoint, endTls }))
    }
    expect((await connect()).kind).toBe('continue')
    await connect()
    // The same object, for which a secure context is kept.
    expect(asked[0]).toBe(asked[1])
    known.clear()
    expect((await connect()).kind).toBe('close')
    expect(asked).toHaveLength(2)
  })

  it('is the same for the same terms alone', async () => {
    const idOf = async (config: object) => (await run(config)).terms?.id
    expect(await idOf(mtls)).toBe(await idOf({ ...mtls, min_version: '1.2' }))
    const ids = await Promise.all([
      idOf({}),
      idOf(mtls),
      idOf(own),
      idOf({ ...mtls, min_version: '1.3' }),
      idOf({ ...mtls, mutual_tls_verification_strategy: 'require-any' }),
    ])
    expect(new Set(ids).size).toBe(ids.length)
  })

  it('lets nobody go on without an agreement, or with another one', async () => {
    expect((await run({}, 'failed')).outcome).toEqual({ kind: 'close' })
    expect((await run({}, 'otherwise')).outcome).toMatchObject({
      kind: 'respond',
      reply: { status: 421, errorCode: 'ERR_GATEWAY_MISDIRECTED' },
    })
    const { policy } = new PolicyBench(policyOf({}))
    expect(await policy.onTcpConnect(createExchange())).toMatchObject({ reply: { status: 421 } })
  })

  it.each([
    [{ min_version: '1.1' }, 'min_version', 2219],
    [{ min_version: '1.3', max_version: '1.2' }, 'min_version', 2215],
    [{ server_certificate: leaf.certPem }, 'server_certificate', 2223],
    [{ server_private_key: leaf.keyPem }, 'server_private_key', 2223],
    [{ ...own, server_private_key: other.keyPem }, 'server_private_key', 2204],
    [{ ...own, server_private_key: 'no key' }, 'server_private_key', 2204],
    [{ ...own, server_private_key: '${vars.key}' }, 'server_private_key', 2224],
    [{ ...own, server_certificate: 'none' }, 'server_certificate', 2204],
    [
      { mutual_tls_certificate_authorities: ['none'] },
      'mutual_tls_certificate_authorities/0',
      2204,
    ],
    [
      { mutual_tls_certificate_authorities: [caPem, leaf.certPem] },
      'mutual_tls_certificate_authorities/1',
      2204,
    ],
    [
      { mutual_tls_verification_strategy: 'require-and-verify' },
      'mutual_tls_verification_strategy',
      2223,
    ],
  ])('is refused for what cannot be, without a word of a key: %#', (config, at, code) => {
    expect(problemsOf(config)).toEqual([[at, `ERR_NGROK_${code}`]])
  })
})
