import type { Endpoint } from '../endpoint.ts'
import type { ProxyStream } from '../stream-pool.ts'
import type { NoStreamReason, StreamWaiter } from '../stream-slots.ts'
import { logExchange } from './access-log.ts'
import type { Client } from './client.ts'
import { type EdgeErrorCode, edgeErrorReply } from './edge-error.ts'
import { Forward, type ForwardFailure, type ForwardOwner } from './forward.ts'
import { requestFields, responseFields } from './forwarded-headers.ts'
import { admit, redirectToHttps } from './front.ts'
import { HttpSyntaxError } from './http-syntax-error.ts'
import type { IngressContext } from './ingress-context.ts'
import type { LocalReply } from './local-reply.ts'
import { formatHead } from './message-text.ts'
import { ProgressWatch } from './progress-watch.ts'
import { RequestBody } from './request-body.ts'
import type { RequestHead } from './request-head.ts'
import type { ResponseHead } from './response-head.ts'
import { ResponseWriter } from './response-writer.ts'
import { Upgrade } from './upgrade.ts'

/** Methods that may be repeated (RFC 9110 9.2.2). */
const IDEMPOTENT: ReadonlySet<string> = new Set([
  'GET',
  'HEAD',
  'OPTIONS',
  'TRACE',
  'PUT',
  'DELETE',
])

const FAILURE_CODES: Record<ForwardFailure, EdgeErrorCode> = {
  stale: 'ERR_NGROK_3004',
  broken: 'ERR_NGROK_3004',
  invalid: 'ERR_NGROK_3004',
  lost: 'ERR_NGROK_3210',
  unreachable: 'ERR_NGROK_8012',
}

const NO_STREAM_CODES: Record<NoStreamReason, EdgeErrorCode> = {
  'queue-full': 'ERR_NGROK_724',
  'queue-timeout': 'ERR_NGROK_724',
  'session-over': 'ERR_NGROK_3210',
}

/** One request of a client, from its head to the end of the response. */
export class Exchange implements StreamWaiter, ForwardOwner {
  readonly #context: IngressContext
  readonly #client: Client
  readonly #head: RequestHead
  readonly #body: RequestBody | undefined
  readonly #response: ResponseWriter
  readonly #startedAt: number
  #endpoint: Endpoint | undefined
  #forward: Forward | undefined
  /** The head as it goes to the device, kept for a second try. */
  #requestHead = Buffer.alloc(0)
  #isRetried = false
  #watch: ProgressWatch | undefined
  /** Body bytes that the client's socket has not taken yet. */
  #unreleased = 0
  /** Bytes of the request body up to which it is worth reading on; set with the whole response. */
  #discardUntil: number | undefined
  #isOver = false

  constructor(context: IngressContext, client: Client, head: RequestHead) {
    this.#context = context
    this.#client = client
    this.#head = head
    this.#body = head.framing === 0 ? undefined : new RequestBody(head.framing, client)
    this.#response = new ResponseWriter(client, head)
    this.#startedAt = context.log.isLevelEnabled('debug') ? context.clock.monotonic() : 0
  }

  /** True when the client has its whole response and only its request is unfinished. */
  get isAnswered(): boolean {
    return this.#discardUntil !== undefined
  }

  /** Finds the endpoint and sends the request on. */
  start(): void {
    const head = this.#head
    const { front } = this.#client
    const endpoint = this.#context.registry.match(head.hostname)
    const verdict = endpoint ? admit(front, endpoint) : 'refuse'
    if (!endpoint || verdict === 'refuse') {
      this.#refuse('ERR_NGROK_3200')
    } else if (verdict === 'redirect') {
      this.#reply(redirectToHttps(endpoint, head.hostname, head.target), true)
    } else {
      this.#endpoint = endpoint
      endpoint.traffic.requests += 1
      this.#send(endpoint, head.target, requestFields(head, this.#client.ip, front.scheme))
    }
  }

  /** Takes what belongs to the request body; answers the offset behind it. */
  takeBody(chunk: Buffer, from: number): number {
    const body = this.#body
    if (!body) return from
    try {
      const end = body.take(chunk, from)
      if (this.#endpoint) this.#endpoint.traffic.bytesIn += end - from
      if (this.#discardUntil !== undefined) this.#settle(this.#discardUntil)
      return end
    } catch (error) {
      if (!(error instanceof HttpSyntaxError)) throw error
      this.#breakOff('ERR_GATEWAY_BAD_REQUEST', error.message)
      return chunk.length
    }
  }

  /** The client's socket has taken what it was given. */
  onClientRoom(): void {
    const bytes = this.#unreleased
    this.#unreleased = 0
    this.#forward?.release(bytes)
  }

  /** The client is gone: nobody wants the response any more. */
  abandon(): void {
    if (this.#isOver) return
    this.#giveUp()
    this.#conclude()
  }

  /** Ends an exchange that does not move; `now` is monotonic. */
  sweep(now: number): void {
    this.#watch ??= new ProgressWatch(this.#context.limits)
    const body = this.#body
    const isAwaited = body !== undefined && !body.isDone && !body.isBlocked
    const stall = this.#watch.look(
      {
        movedBytes:
          (body?.bytes ?? 0) +
          (this.#forward?.received ?? 0) +
          this.#response.bytes -
          this.#unreleased,
        awaitedBodyBytes: isAwaited ? body.bytes : undefined,
      },
      now,
    )
    if (stall === 'slow-body') this.#breakOff('ERR_GATEWAY_REQUEST_TIMEOUT')
    if (stall === 'silence') this.#breakOff('ERR_NGROK_3005')
  }

  onStream(stream: ProxyStream): void {
    const forward = new Forward({
      stream,
      method: this.#head.method,
      scanner: this.#client.responseScanner,
      owner: this,
    })
    this.#forward = forward
    forward.write(this.#requestHead)
    if (this.#body) this.#body.flowTo(forward)
    else forward.end()
  }

  onNoStream(reason: NoStreamReason): void {
    this.#refuse(NO_STREAM_CODES[reason])
  }

  onInterim(head: ResponseHead): void {
    this.#response.interim(head)
  }

  onResponse(head: ResponseHead, isMore: boolean): void {
    const { status, reason, framing } = head
    const fields = responseFields(head)
    const isDecoded = this.#response.begin({ status, reason, fields, framing }, isMore)
    if (this.#forward) this.#forward.decodesBody = isDecoded
  }

  onBody(chunk: Buffer): void {
    if (this.#response.write(chunk)) this.#forward?.release(chunk.length)
    else this.#unreleased += chunk.length
  }

  onComplete(): void {
    this.#forward = undefined
    this.#response.flush()
    this.#answered()
  }

  onSwitch(head: ResponseHead, rest: Buffer, stream: ProxyStream): void {
    this.#forward = undefined
    if (this.#head.upgrade === undefined || !this.#endpoint) {
      stream.retire()
      this.#refuse('ERR_NGROK_3004')
      return
    }
    const { status, reason, framing } = head
    this.#response.begin({ status, reason, fields: responseFields(head), framing }, false)
    this.#isOver = true
    const upgrade = new Upgrade({
      client: this.#client,
      stream,
      traffic: this.#endpoint.traffic,
      limits: this.#context.limits,
      onOver: (bytesOut) => {
        this.#response.bytes += bytesOut
        this.#conclude()
      },
    })
    this.#client.upgraded(upgrade)
    if (rest.length > 0) upgrade.onData(rest)
  }

  onFailure(failure: ForwardFailure): void {
    this.#forward = undefined
    const endpoint = this.#endpoint
    if (failure === 'stale' && endpoint && this.#mayRepeat()) {
      this.#isRetried = true
      endpoint.streams.acquireFresh(this.#client.address, this)
    } else if (this.#response.status === 0) {
      this.#refuse(FAILURE_CODES[failure])
    } else {
      this.#breakOff(FAILURE_CODES[failure])
    }
  }

  onRoom(): void {
    this.#body?.onRoom()
  }

  #send(endpoint: Endpoint, target: string, fields: readonly string[]): void {
    const text = formatHead(`${this.#head.method} ${target} HTTP/1.1`, fields)
    this.#requestHead = Buffer.from(text, 'latin1')
    endpoint.traffic.bytesIn += this.#requestHead.length
    endpoint.streams.acquire(this.#client.address, this)
  }

  #mayRepeat(): boolean {
    return !this.#isRetried && !this.#body && IDEMPOTENT.has(this.#head.method)
  }

  /** Answers with an error of the gateway. */
  #refuse(code: EdgeErrorCode, detail?: string): void {
    if (this.#endpoint) this.#endpoint.traffic.refused += 1
    this.#reply(edgeErrorReply(code, acceptOf(this.#head), detail), true)
  }

  /** Ends the exchange wherever it is: with an error while nothing was answered, else abruptly. */
  #breakOff(code: EdgeErrorCode, detail?: string): void {
    this.#giveUp()
    if (this.#response.status === 0) {
      if (this.#endpoint) this.#endpoint.traffic.refused += 1
      this.#reply(edgeErrorReply(code, acceptOf(this.#head), detail), false)
    } else {
      this.#conclude()
      this.#client.abort()
    }
  }

  #giveUp(): void {
    this.#endpoint?.streams.cancel(this)
    this.#forward?.abort()
    this.#forward = undefined
  }

  #reply(reply: LocalReply, mayGoOn: boolean): void {
    const keepAlive = mayGoOn && this.#head.keepAlive && this.#isBodyShort()
    this.#response.reply(reply, keepAlive && !this.#client.isStopping, this.#context.clock.now())
    this.#answered()
  }

  /** True when what may still come of the body is less trouble than a new connection. */
  #isBodyShort(): boolean {
    if (!this.#body || this.#body.isDone) return true
    // Who waits for a 100 may send the body after another answer, or not: nobody can tell.
    return !this.#head.expectsContinue && this.#head.framing <= this.#context.limits.discardedBytes
  }

  /** The response is complete; a rest of the request that nobody wants any more is dropped. */
  #answered(): void {
    const body = this.#body
    if (!body || body.isDone || !this.#response.keepAlive) {
      this.#finish()
    } else {
      this.#discardUntil = body.bytes + this.#context.limits.discardedBytes
      body.discard()
      this.#settle(this.#discardUntil)
    }
  }

  #settle(discardUntil: number): void {
    const body = this.#body
    if (!this.#isOver && (!body || body.isDone || body.bytes > discardUntil)) this.#finish()
  }

  #finish(): void {
    this.#isOver = true
    this.#conclude()
    const isBodyDone = this.#body === undefined || this.#body.isDone
    this.#client.exchangeDone(this.#response.keepAlive && isBodyDone)
  }

  #conclude(): void {
    this.#isOver = true
    const { log, clock } = this.#context
    if (this.#endpoint) this.#endpoint.traffic.bytesOut += this.#response.bytes
    if (!log.isLevelEnabled('debug')) return
    logExchange(log, {
      head: this.#head,
      clientIp: this.#client.ip,
      status: this.#response.status,
      bytesIn: this.#requestHead.length + (this.#body?.bytes ?? 0),
      bytesOut: this.#response.bytes,
      ms: Math.round(clock.monotonic() - this.#startedAt),
    })
  }
}

function acceptOf({ fields }: RequestHead): string {
  const at = fields.findIndex((name, index) => index % 2 === 0 && name.toLowerCase() === 'accept')
  return fields[at + 1] ?? ''
}
