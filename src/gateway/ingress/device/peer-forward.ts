import { ErrorCode, type MuxadoError } from '../../../muxado/error-code.ts'
import type { HttpVersion } from '../../../policy/exchange/policy-exchange.ts'
import type { NoStreamReason } from '../../streams/proxy-stream.ts'
import { HopReset } from '../../streams/visitor-facts.ts'
import type { IngressLimits } from '../common/ingress-context.ts'
import type { HeadLimits } from '../syntax/head-scanner.ts'
import { HttpSyntaxError } from '../syntax/http-syntax.ts'
import { knownField } from '../syntax/message-fields.ts'
import type { RequestHead } from '../syntax/request-head.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import type { ForwardOptions } from './forward.ts'
import { Http1Forward } from './http1-forward.ts'

/**
 * First field of each request between nodes: the HTTP version of its visitor. By its position, a field of a
 * visitor cannot be mistaken for it.
 */
const VERSION_FIELD = 'peer-http'
const VERSIONS: ReadonlySet<string> = new Set<HttpVersion>(['1.0', '1.1', '2.0'])

/** Status by which the serving node accepts a request with a body. The body is sent only after it. */
const ACCEPTED = 199
export const ACCEPTED_HEAD: Buffer = Buffer.from(`HTTP/1.1 ${ACCEPTED} Accepted\r\n\r\n`)

/** Additional bytes and fields of a head between nodes. */
const PEER_HEAD_BYTES = 256
const PEER_HEAD_FIELDS = 8

/** How long a head may be, of a visitor or between nodes. */
export function headLimits(
  { headBytes, headFields }: Pick<IngressLimits, 'headBytes' | 'headFields'>,
  isOfPeer: boolean,
): HeadLimits {
  return isOfPeer
    ? { maxBytes: headBytes + PEER_HEAD_BYTES, maxFields: headFields + PEER_HEAD_FIELDS }
    : { maxBytes: headBytes, maxFields: headFields }
}

/**
 * Fields of a visitor's request for the serving node, unchanged except for those of this hop (RFC 9110
 * 7.6.1). The serving node judges statements of the visitor.
 */
export function peerFields(head: RequestHead): string[] {
  const { fields } = head
  const listed = head.connection.fields
  const passed: string[] = []
  for (let at = 0; at < fields.length; at += 2) {
    const name = fields[at] as string
    if (listed.length > 0 && listed.includes(name.toLowerCase())) continue
    switch (knownField(name)) {
      case 'connection':
      case 'keep-alive':
      case 'proxy-connection':
      case 'te':
      case 'upgrade':
      case 'http2-settings':
        break
      default:
        passed.push(name, fields[at + 1] as string)
    }
  }
  if (head.acceptsTrailers) passed.push('te', 'trailers')
  if (head.upgrade !== undefined) passed.push('connection', 'Upgrade', 'upgrade', head.upgrade)
  return passed
}

/** With the version in front. */
export function withVersion(head: RequestHead, fields: readonly string[]): string[] {
  return [VERSION_FIELD, head.visitorVersion ?? head.version, ...fields]
}

/** A head from another node, as its visitor has sent it. Throws HttpSyntaxError. */
export function fromPeer(head: RequestHead): RequestHead {
  const [name, version = ''] = head.fields
  if (name !== VERSION_FIELD || !VERSIONS.has(version) || head.version !== '1.1') {
    throw new HttpSyntaxError('no HTTP version of the visitor')
  }
  return {
    ...head,
    fields: head.fields.slice(2),
    recurs: false,
    visitorVersion: version as HttpVersion,
  }
}

/**
 * A request to its serving node. The body is sent after that node has accepted it: until then, the request
 * can go to another node.
 */
export class PeerForward extends Http1Forward {
  override readonly isToPeer = true
  readonly #options: ForwardOptions
  #isAccepted = false

  constructor(options: ForwardOptions) {
    super(options)
    this.#options = options
  }

  /** A request that was not accepted has reached no device. */
  override get wasSent(): boolean {
    return this.request.body ? this.#isAccepted : super.wasSent
  }

  override onClose(error: MuxadoError | undefined): void {
    const { owner } = this.#options
    const code = error?.reason === 'stream-reset' ? error.code : undefined
    if (this.isOver) super.onClose(error)
    else if (code === HopReset.policyClosed) {
      this.abort()
      owner.onVerdict('closed')
    } else if (code === HopReset.notMine && !this.#isAccepted) {
      this.abort()
      owner.onVerdict('elsewhere')
    } else if (code === ErrorCode.streamRefused) {
      this.abort()
      owner.onFailure('link-full')
    } else super.onClose(error)
  }

  override onNoStream(reason: NoStreamReason): void {
    if (reason !== 'saturated') super.onNoStream(reason)
    else if (!this.isOver) {
      this.abort()
      this.#options.owner.onFailure('link-full')
    }
  }

  protected override sendBody(): void {
    if (!this.request.body) super.sendBody()
  }

  protected override passInterim(head: ResponseHead): void {
    if (head.status !== ACCEPTED || this.#isAccepted || !this.request.body) {
      super.passInterim(head)
      return
    }
    this.#isAccepted = true
    super.sendBody()
  }
}
