// Has to come first: what the X.509 library is built on looks for it at import.
import 'reflect-metadata'
import { createHash, randomBytes, webcrypto } from 'node:crypto'
import { Resolver } from 'node:dns/promises'
import { once } from 'node:events'
import { createServer, type IncomingMessage, type ServerResponse } from 'node:http'
import { text } from 'node:stream/consumers'
import * as x509 from '@peculiar/x509'
import { calculateJwkThumbprint, flattenedVerify, type JWK } from 'jose'
import { onTestFinished } from 'vitest'

const ALGORITHM = { name: 'ECDSA', namedCurve: 'P-256', hash: 'SHA-256' } as const
const DAY_MS = 86_400_000
const LIFE_MS = 90 * DAY_MS

interface Order {
  readonly identifiers: readonly { type: string; value: string }[]
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
  /** Its clock, milliseconds since the epoch. */
  readonly now: () => number
}

/** An ACME authority (RFC 8555) on loopback: one identifier per order, dns-01, a CA of its own. */
export class AcmeServer {
  /** When set, new orders are refused with it. */
  refusal: string | undefined
  /** How many it has refused. */
  refused = 0
  /** Awaited before a challenge is looked at, and when it has been. */
  onChallenge: (order: number) => void | Promise<void> = () => {}
  onChecked: (order: number) => void | Promise<void> = () => {}
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
    onTestFinished(() => {
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
      const [, resource = '', index = ''] = (request.url ?? '').split('/')
      if (request.method !== 'POST') {
        response.end(resource === 'directory' ? JSON.stringify(this.#directory()) : undefined)
        return
      }
      const signed = await this.#verify(await text(request), resource)
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
    const view = resource === 'challenge' ? this.#viewChallenge(index) : this.#viewOrder(index)
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
    const value = nameOf(order).replace(/^\*\./, '')
    const status = order.status === 'ready' || order.status === 'valid' ? 'valid' : order.status
    return { status, identifier: { type: 'dns', value }, challenges: [this.#viewChallenge(id)] }
  }

  #viewChallenge(id: number): object {
    const { status, token, error } = this.orders[id] as Order
    const url = `${this.#url}/challenge/${id}`
    return { type: 'dns-01', url, token, status: status === 'ready' ? 'valid' : status, error }
  }

  /** Section 8.4: the TXT record behind the CNAME record, asked for over real DNS. */
  async #validate(order: Order): Promise<void> {
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
      extensions: [new x509.SubjectAlternativeNameExtension(names)],
    })
    order.certificate = `${leaf.toString('pem')}\n${this.caPem}\n`
    order.status = 'valid'
  }
}

const nameOf = ({ identifiers }: Order) => identifiers[0]?.value ?? ''

function resolver(server: string): Resolver {
  const asked = new Resolver({ timeout: 1_000, tries: 1 })
  asked.setServers([server])
  return asked
}
