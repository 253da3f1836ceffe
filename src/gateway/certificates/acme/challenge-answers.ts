import { BoundedCache } from '../../../base/bounded-cache.ts'
import { withDeadline } from '../../../base/deadline.ts'
import { type ServedCertificate, served } from '../certificate-file.ts'
import { httpName, tlsAlpnName, type ZoneView } from './order-book.ts'

/** RFC 8555 section 8.3. */
const PATH = '/.well-known/acme-challenge/'
/** Longest wait for the orders of the other gateways. Then the visitor is served as usual. */
const READ_MS = 3_000
/** Certificates for challenges that are kept; more orders never run at once. */
const MAX_CERTIFICATES = 16

type Sooner<T> = T | Promise<T>

export interface ChallengeAnswersOptions {
  /** Current answers to the challenges of all gateways. */
  readonly zone: () => ZoneView | Promise<ZoneView>
}

/**
 * Answers of the public listeners to challenges of orders that are under way. Everything else is undefined,
 * and goes on as for any visitor: a device may have an ACME client of its own.
 */
export class ChallengeAnswers {
  readonly #zone: ChallengeAnswersOptions['zone']
  readonly #certificates = new BoundedCache((key) => issueFor(key), MAX_CERTIFICATES)

  constructor({ zone }: ChallengeAnswersOptions) {
    this.#zone = zone
  }

  /** Key authorization for a request to the HTTP listener (RFC 8555 section 8.3). */
  http({ method, hostname, target }: HttpQuestion): Sooner<string | undefined> {
    if (!target.startsWith(PATH) || (method !== 'GET' && method !== 'HEAD')) return undefined
    return this.#valueOf(httpName(hostname, target.slice(PATH.length)))
  }

  /** Certificate for a handshake that offers only `acme-tls/1` (RFC 8737 section 3). */
  async tls(serverName: string): Promise<ServedCertificate | undefined> {
    const value = await this.#valueOf(tlsAlpnName(serverName))
    if (value === undefined) return undefined
    return this.#certificates.get(JSON.stringify([serverName, value])).catch(() => undefined)
  }

  #valueOf(name: string): Sooner<string | undefined> {
    const zone = this.#zone()
    if (!(zone instanceof Promise)) return valueIn(zone, name)
    return withDeadline(zone, READ_MS, 'reading the challenges').then(
      (read) => valueIn(read, name),
      () => undefined,
    )
  }
}

/** The parts of a request that a challenge needs. */
interface HttpQuestion {
  readonly method: string
  readonly hostname: string
  readonly target: string
}

const valueIn = (zone: ZoneView, name: string) => zone.valuesOf(name)?.at(-1)

/** The client library is large, so it is loaded for the first challenge. */
async function issueFor(key: string): Promise<ServedCertificate> {
  const [host, value] = JSON.parse(key)
  const { challengeCertificate } = await import('./acme-account.ts')
  return served(await challengeCertificate(host, value))
}
