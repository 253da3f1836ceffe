import type { BodyTransform } from '../../policy/exchange/policy-exchange.ts'
import type { AgentEndpoint } from '../endpoints/endpoint.ts'
import { BodyPipe } from './body-pipe.ts'
import type { Client } from './client.ts'
import { Forward } from './forward.ts'
import { formatHead, withoutFields } from './message-text.ts'
import type { RequestBody } from './request-body.ts'
import type { RequestHead } from './request-head.ts'
import type { ResponseRelay } from './response-relay.ts'

export interface OutgoingRequestOptions {
  readonly client: Client
  readonly head: RequestHead
  readonly body: RequestBody | undefined
  /** Where the response goes. */
  readonly relay: ResponseRelay
}

const CONTINUE_HEAD = Buffer.from('HTTP/1.1 100 Continue\r\n\r\n')
const NO_CONTENT = Buffer.alloc(0)
const NO_TRANSFORMS: readonly BodyTransform[] = []

/** A client's request as it goes to a device: its head written anew, its body as it comes. */
export class OutgoingRequest {
  readonly #client: Client
  readonly #head: RequestHead
  readonly #body: RequestBody | undefined
  readonly #relay: ResponseRelay
  #pipe: BodyPipe | undefined

  constructor({ client, head, body, relay }: OutgoingRequestOptions) {
    this.#client = client
    this.#head = head
    this.#body = body
    this.#relay = relay
  }

  /** The whole content, before the request is sent; undefined when it is longer. */
  readBody(maxBytes: number): Promise<Buffer | undefined> {
    this.#invite()
    return this.#body ? this.#body.read(maxBytes) : Promise.resolve(NO_CONTENT)
  }

  /** Sends it to an endpoint; a body that has to be transformed is read as a whole first. */
  send(
    endpoint: AgentEndpoint,
    target: string,
    fields: readonly string[],
    transforms: readonly BodyTransform[] = NO_TRANSFORMS,
  ): void {
    const line = `${this.#head.method} ${target} HTTP/1.1`
    if (this.#body && transforms.length > 0) {
      this.#transform(this.#body, transforms, (content) => {
        const kept = withoutFields(fields, 'content-length', 'transfer-encoding', 'expect')
        const head = formatHead(line, [...kept, 'content-length', String(content.length)])
        this.#forward(endpoint, Buffer.concat([Buffer.from(head, 'latin1'), content]), undefined)
      })
    } else {
      const kept = this.#relay.isContinued ? withoutFields(fields, 'expect') : fields
      this.#forward(endpoint, Buffer.from(formatHead(line, kept), 'latin1'), this.#body)
    }
  }

  /** Nobody wants the response any more. */
  abandon(): void {
    this.#pipe?.destroy()
  }

  #forward(endpoint: AgentEndpoint, request: Buffer, body: RequestBody | undefined): void {
    this.#relay.traffic.receive(request.length)
    const forward = new Forward({
      pool: endpoint.streams,
      clientAddr: this.#client.address,
      method: this.#head.method,
      request,
      body,
      scanner: this.#client.responseScanner,
      owner: this.#relay,
    })
    this.#relay.forward = forward
    forward.start()
  }

  #transform(
    body: RequestBody,
    transforms: readonly BodyTransform[],
    next: (content: Buffer) => void,
  ): void {
    this.#invite()
    const content: Buffer[] = []
    this.#pipe = new BodyPipe(transforms, {
      write: (part) => content.push(part) > 0,
      end: () => next(Buffer.concat(content)),
      onRoom: () => body.onRoom(),
      onError: (error) => this.#relay.onTransformError(error),
    })
    body.flowTo(this.#pipe, 'content')
  }

  /** The gateway itself needs the body, so it is the one to ask for it (RFC 9110 10.1.1). */
  #invite(): void {
    if (!this.#head.expectsContinue || this.#relay.isContinued) return
    this.#relay.isContinued = true
    this.#client.write(CONTINUE_HEAD)
  }
}
