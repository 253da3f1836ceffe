// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { createHash, randomBytes, webcrypto } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import { connect } from 'node:tls'
import * as x509 from '@peculiar/x509'
import { calculateJwkThumbprint, flattenedVerify, type JWK } from 'jose'
import { onTestFinished } from 'vitest'
import { publicRequest } from './public-request.ts'

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const DAY_MS = 86_400_000
const LIFE_MS = 90 * DAY_MS

/** OID of the extension with the digest of the key authorization (RFC 8737 section 6.1). */
const ACME_IDENTIFIER = '1.3.6.1.5.5.7.1.31'
const CHALLENGE_TYPES = ['dns-01', 'http-01', 'tls-alpn-01'] as const
type ChallengeType = (typeof CHALLENGE_TYPES)[number]

interface Order {
  readonly identifiers: readonly { type: string; value: string }[]
  /** The type of challenge that the client chose. */
  type?: ChallengeType
  status: string
  token: string
  thumbprint: string
  error?: object
  certificate?: string
}

interface Signed {
  readonly thumbprint: string
  // biome-ignore lint/suspicious/noExplicitAny: what a client may send.
  readonly payload: any
}

class Problem extends Error {
  readonly type: string
  readonly status: number

  constructor(type: string, detail: string, status = 403) {
    super(detail)
    this.type = type
    this.status = status
  }
}

export interface AcmeServerOptions {
  /** Who answers for the CNAME records of domains, `address:port`. */
  readonly records: string
  /** Who answers for what those lead to. */
  readonly challenges: () => string
  /** Ports at which it reaches the names, instead of 80 and 443. */
  readonly ports?: () => { readonly http: number; readonly https: number }
  /** Its clock, milliseconds since the epoch. */
  readonly now: () => number
  /** Called with how to close it; default: at the end of the running test. */
  readonly atEnd?: (close: () => void) => void
}

/**
 * Our own ACME authority (RFC 8555) on loopback: one identifier per order, and a CA of its own. It validates
 * dns-01, http-01 and tls-alpn-01 over the network, as public authorities do.
 */
export class AcmeServer {
  /** When set, new orders are refused with it. */
  refusal: string | undefined
  /** How many it has refused. */
  refused = 0
  /** Awaited before a challenge is looked at, and when it has been. */
  onChallenge: (order: number) => void | Promise<void> = () => {}
  onChecked: (order: number) => void | Promise<void> = () => {}
  /** Types of challenges that it offers. */
  offers: readonly ChallengeType[] = CHALLENGE_TYPES
  /** Changes the certificate before it is given out, or the view of an authorization. */
  forge: { names?: readonly string[]; identifier?: string; token?: string } = {}
  readonly orders: Order[] = []
  readonly contacts: (readonly string[])[] = []
  readonly #options: AcmeServerOptions
  readonly #accounts: JWK[] = []
  readonly #nonces = new Set<string>()
  readonly #ca: x509.X509Certificate
  readonly #caKeys: webcrypto.CryptoKeyPair
  #url = ''

  private constructor(
    options: AcmeServerOptions,
    ca: x509.X509Certificate,
    caKeys: webcrypto.CryptoKeyPair,
  ) {
    this.#options = options
    this.#ca = ca
    this.#caKeys = caKeys
  }

  /** Listens on a free port until the running test is finished. */
  static async start(options: AcmeServerOptions): Promise<AcmeServer> {
    const keys = await webcrypto.subtle.generateKey(ALGORITHM, true, ['sign', 'verify'])
    const now = options.now()
    const ca = await x509.X509CertificateGenerator.createSelfSigned({
      serialNumber: '01',
      name: 'CN=test ACME CA',
      notBefore: new Date(now - DAY_MS),
      notAfter: new Date(now + 3_650 * DAY_MS),
      keys,
      signingAlgorithm: ALGORITHM,
      extensions: [new x509.BasicConstraintsExtension(true, 0, true)],
    })
    const acme = new AcmeServer(options, ca, keys)
    const server = createServer((request, response) => void acme.#serve(request, response))
    server.listen(0, '127.0.0.1')
    await once(server, 'listening')
    const { atEnd = onTestFinished } = options
    atEnd(() => {
      server.closeAllConnections()
      server.close()
    })
    const address = server.address()
    acme.#url = `http://127.0.0.1:${typeof address === 'object' && address ? address.port : 0}`
    return acme
  }

  get directoryUrl(): string {
    return `${this.#url}/directory`
  }

  get caPem(): string {
    return this.#ca.toString('pem')
  }

  get accounts(): number {
    return this.#accounts.length
  }

  async #serve(request: IncomingMessage, response: ServerResponse): Promise<void> {
    const nonce = randomBytes(12).toString('base64url')
    this.#nonces.add(nonce)
    response.setHeader('replay-nonce', nonce)
    try {
      const [, resource = '', index = '', type] = (request.url ?? '').split('/')
      if (request.method !== 'POST') {
        response.end(resource === 'directory' ? JSON.stringify(this.#directory()) : undefined)
        return
      }
      const signed = await this.#verify(await text(request), resource)
      const order = this.orders[Number(index)]
      if (order && resource === 'challenge' && signed.payload) order.type ??= type as ChallengeType
      await this.#answer(response, resource, Number(index), signed)
    } catch (error) {
      const {
        type,
        message: detail,
        status,
      } = error instanceof Problem ? error : new Problem('serverInternal', String(error), 500)
      response.writeHead(status, { 'content-type': 'application/problem+json' })
      response.end(JSON.stringify({ type: `urn:ietf:params:acme:error:${type}`, detail, status }))
    }
  }

  #directory(): object {
    return {
      newNonce: `${this.#url}/nonce`,
      newAccount: `${this.#url}/account`,
      newOrder: `${this.#url}/order`,
    }
  }

  /** RFC 8555 section 6: signed with a known key, for this URL, with a fresh nonce. */
  async #verify(body: string, resource: string): Promise<Signed> {
    const jws = JSON.parse(body)
    const header = JSON.parse(Buffer.from(jws.protected, 'base64url').toString())
    if (!this.#nonces.delete(header.nonce)) throw new Problem('badNonce', 'The nonce is used.', 400)
    const jwk: JWK | undefined = header.jwk ?? this.#accounts[Number(header.kid?.split('/').at(-1))]
    if (!jwk || (header.jwk && resource !== 'account')) {
      throw new Problem('accountDoesNotExist', 'Who are you?')
    }
    const { payload } = await flattenedVerify(jws, { ...jwk, alg: 'ES256' })
    const thumbprint = await calculateJwkThumbprint(jwk)
    if (header.jwk && !(await this.#knows(thumbprint))) this.#accounts.push(jwk)
    return {
      thumbprint,
      payload: payload.length > 0 ? JSON.parse(`${Buffer.from(payload)}`) : null,
    }
  }

  async #knows(thumbprint: string): Promise<boolean> {
    const known = await Promise.all(this.#accounts.map((jwk) => calculateJwkThumbprint(jwk)))
    return known.includes(thumbprint)
  }

  async #answer(response: ServerResponse, resource: string, index: number, signed: Signed) {
    const created = (path: string, body: object) => {
      response.writeHead(201, { location: `${this.#url}/${path}` })
      response.end(JSON.stringify(body))
    }
    if (resource === 'account') {
      this.contacts.push(signed.payload.contact ?? [])
      return created(`account/${this.#accounts.length - 1}`, { status: 'valid' })
    }
    if (resource === 'order' && signed.payload) {
      const id = this.#createOrder(signed)
      return created(`order/${id}`, this.#viewOrder(id))
    }
    const order = this.orders[index]
    if (!order) throw new Problem('malformed', 'There is no such thing.', 404)
    if (resource === 'certificate') return void response.end(order.certificate)
    if (resource === 'challenge' && signed.payload) {
      await this.onChallenge(index)
      await this.#validate(order)
      await this.onChecked(index)
    }
    if (resource === 'finalize') await this.#issue(order, signed.payload.csr)
    const type = order.type ?? 'dns-01'
    const view =
      resource === 'challenge' ? this.#viewChallenge(index, type) : this.#viewOrder(index)
    response.end(JSON.stringify(resource === 'authorization' ? this.#viewAuthz(index) : view))
  }

  #createOrder({ payload, thumbprint }: Signed): number {
    if (this.refusal !== undefined) this.refused += 1
    if (this.refusal !== undefined) throw new Problem('rateLimited', this.refusal, 429)
    const token = randomBytes(16).toString('base64url')
    const { identifiers } = payload
    return this.orders.push({ identifiers, status: 'pending', token, thumbprint }) - 1
  }

  #viewOrder(id: number): object {
    const { status, identifiers } = this.orders[id] as Order
    return {
      status,
      identifiers,
      authorizations: [`${this.#url}/authorization/${id}`],
      finalize: `${this.#url}/finalize/${id}`,
      ...(status === 'valid' && { certificate: `${this.#url}/certificate/${id}` }),
    }
  }

  #viewAuthz(id: number): object {
    const order = this.orders[id] as Order
    const value = this.forge.identifier ?? nameOf(order).replace(/^\*\./, '')
    const status = order.status === 'ready' || order.status === 'valid' ? 'valid' : order.status
    // A wildcard can only be validated by DNS (RFC 8555 section 8.3, RFC 8737 section 3).
    const types = nameOf(order).startsWith('*.') ? (['dns-01'] as const) : this.offers
    const challenges = types.map((type) => this.#viewChallenge(id, type))
    return { status, identifier: { type: 'dns', value }, challenges }
  }

  #viewChallenge(id: number, type: ChallengeType): object {
    const { status, error, ...order } = this.orders[id] as Order
    const url = `${this.#url}/challenge/${id}/${type}`
    const token = this.forge.token ?? order.token
    return { type, url, token, status: status === 'ready' ? 'valid' : status, error }
  }

  async #validate(order: Order): Promise<void> {
    if (order.type === 'dns-01') return this.#validateDns(order)
    const name = nameOf(order)
    const { http = 80, https = 443 } = this.#options.ports?.() ?? {}
    try {
      const [host = ''] = await resolver(this.#options.records).resolve4(name)
      const value = `${order.token}.${order.thumbprint}`
      if (order.type === 'http-01') await validateHttp({ host, port: http, name, value, order })
      else await validateTlsAlpn({ host, port: https, name, value })
      order.status = 'ready'
    } catch (error) {
      order.status = 'invalid'
      const detail = `${order.type} of ${name} failed: ${(error as Error).message}`
      order.error = { type: 'urn:ietf:params:acme:error:unauthorized', detail, status: 403 }
    }
  }

  /** Section 8.4: the TXT record behind the CNAME record, asked for over real DNS. */
  async #validateDns(order: Order): Promise<void> {
    const expected = createHash('sha256').update(`${order.token}.${order.thumbprint}`)
    const name = `_acme-challenge.${nameOf(order).replace(/^\*\./, '')}`
    try {
      const [target = ''] = await resolver(this.#options.records).resolveCname(name)
      const found = (await resolver(this.#options.challenges()).resolveTxt(target)).flat()
      if (!found.includes(expected.digest('base64url'))) throw new Error(`found ${found}`)
      order.status = 'ready'
    } catch (error) {
      order.status = 'invalid'
      const detail = `No TXT record at ${name}: ${(error as Error).message}`
      order.error = { type: 'urn:ietf:params:acme:error:dns', detail, status: 400 }
    }
  }

  async #issue(order: Order, csr: string): Promise<void> {
    if (order.status !== 'ready') throw new Problem('orderNotReady', 'Answer the challenge first.')
    const request = new x509.Pkcs10CertificateRequest(Buffer.from(csr, 'base64url'))
    const extension = request.extensions.find(
      (it) => it instanceof x509.SubjectAlternativeNameExtension,
    )
    const names = extension?.names.items ?? []
    if (!(await request.verify()) || names.map(({ value }) => value).join() !== nameOf(order)) {
      throw new Problem('badCSR', 'The request is for other names.')
    }
    const now = this.#options.now()
    const leaf = await x509.X509CertificateGenerator.create({
      serialNumber: randomBytes(8).toString('hex'),
      notBefore: new Date(now),
      notAfter: new Date(now + LIFE_MS),
      issuer: this.#ca.subject,
      signingKey: this.#caKeys.privateKey,
      publicKey: request.publicKey,
      signingAlgorithm: ALGORITHM,
      extensions: [
        new x509.SubjectAlternativeNameExtension(
          this.forge.names?.map((value) => ({ type: 'dns' as const, value })) ?? names,
        ),
      ],
    })
    order.certificate = `${leaf.toString('pem')}\n${this.caPem}\n`
    order.status = 'valid'
  }
}

interface Reached {
  readonly host: string
  readonly port: number
  readonly name: string
  /** Key authorization. */
  readonly value: string
}

/** RFC 8555 section 8.3. */
async function validateHttp({ host, port, name, value, order }: Reached & { order: Order }) {
  const path = `/.well-known/acme-challenge/${order.token}`
  const ingress = `http://${host}:${port}`
  const { status, text: body } = await publicRequest({ ingress, address: host, host: name, path })
  if (status !== 200 || body.trim() !== value) throw new Error(`got ${status} ${body}`)
}

/** RFC 8737 section 3: a self-signed certificate for this name alone, with the digest. */
async function validateTlsAlpn({ host, port, name, value }: Reached): Promise<void> {
  const socket = connect({
    ...{ host, port, servername: name, ALPNProtocols: ['acme-tls/1'] },
    rejectUnauthorized: false,
  })
  try {
    await once(socket, 'secureConnect')
    if (socket.alpnProtocol !== 'acme-tls/1') throw new Error('the server chose no acme-tls/1')
    const certificate = new x509.X509Certificate(socket.getPeerCertificate().raw)
    const names = certificate.getExtension(x509.SubjectAlternativeNameExtension)?.names.items ?? []
    if (names.map((each) => each.value).join() !== name) throw new Error('it has other names')
    const extension = certificate.getExtension(ACME_IDENTIFIER)
    const digest = createHash('sha256').update(value).digest()
    // The value is an OCTET STRING of 32 bytes (tag 4).
    const expected = Buffer.concat([Buffer.from([4, 32]), digest])
    if (!extension?.critical || !Buffer.from(extension.value).equals(expected)) {
      throw new Error('the digest is wrong')
    }
  } finally {
    socket.destroy()
  }
}

const nameOf = ({ identifiers }: Order) => identifiers[0]?.value ?? ''

function resolver(server: string): Resolver {
  const asked = new Resolver({ timeout: 1_000, tries: 1 })
  asked.setServers([server])
  return asked
}
