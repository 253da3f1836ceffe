import { ErrorCode, type MuxadoError } from '../../../muxado/error-code.ts'
import type { NoStreamReason } from '../../streams/proxy-stream.ts'
import { HopReset } from '../../streams/visitor-facts.ts'
import type { ResponseHead } from '../syntax/response-head.ts'
import type { ForwardOptions } from './forward.ts'
import { Http1Forward } from './http1-forward.ts'
import { ACCEPTED } from './peer-head.ts'

/**
 * A request on its way to the node where its endpoint is at home. The body goes when that node has said
 * that it is: until then it can go to another one.
 */
export class PeerForward extends Http1Forward {
  override readonly isToPeer = true
  readonly #options: ForwardOptions
  #isAccepted = false

  constructor(options: ForwardOptions) {
    super(options)
    this.#options = options
  }

  /** What was not accepted has reached no device. */
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
